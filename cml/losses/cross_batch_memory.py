"""Cross-batch memory: embeddings of earlier batches as further items that anchors are compared with.

A loss over label distances takes anchors x items, (A, B). The memory makes it (A, B + S): S stored embeddings, without
gradient, follow the B of the batch, and the label distances get S columns more. What is stored beside an embedding is
the number of its item, not its label, so labels may be of any kind. Whoever has the labels makes the columns. The
memory is not for losses over classes or vectors.
"""

import torch
from torch import Tensor

from cml.array_types import Floating
from cml.errors import UserError


class CrossBatchMemory:
    """The last embeddings that a network made, newest batch first, with the numbers of their items.

    Args:
        size: M, the most embeddings that are kept. With 0 the loss is what it is without a memory, bit for bit.

    Attributes:
        items: (S,) int64 item numbers of the stored embeddings, S <= M.
        embeddings: (S, D) stored embeddings, without gradient.

    Raises:
        UserError: the size is negative or not a whole number.

    Example:
        >>> import torch
        >>> from cml.losses import CrossBatchMemory, DenseTripletLoss, mask_duplicates
        >>> loss, values = DenseTripletLoss(), torch.rand(100, 1)
        >>> memory = CrossBatchMemory(size=50)
        >>> for step in range(3):
        ...     items = torch.arange(20) + 20 * step
        ...     embeddings = torch.randn(20, 4, requires_grad=True)  # of the network
        ...     columns = torch.cat([items, memory.items])
        ...     label_distances = mask_duplicates(torch.cdist(values[items], values[columns]), items, memory.items)
        ...     value = loss(memory.augment(embeddings), label_distances)
        ...     memory.store(embeddings, items)
        >>> label_distances.shape, memory.items[:2].tolist()
        (torch.Size([20, 60]), [40, 41])

    Reference:
        Wang, Zhang, Huang, Scott: Cross-Batch Memory for Embedding Learning, CVPR 2020.
    """

    def __init__(self, size: int) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise UserError(f"The 'size' of a memory must be a whole number of at least 0. Got {size!r} instead.")
        self.size = size
        self.items = torch.empty(0, dtype=torch.int64)
        self.embeddings = torch.empty(0, 0)

    def augment(self, embeddings: Tensor) -> Tensor:
        """Append the stored embeddings to a batch.

        Args:
            embeddings: (B, D).

        Returns:
            (B + S, D), the batch first; with nothing stored, ``embeddings`` itself.
        """
        return torch.cat([embeddings, self.embeddings.to(embeddings)]) if len(self.items) else embeddings

    def store(self, embeddings: Tensor, items: Tensor) -> None:
        """Put a batch before the stored embeddings, and drop those beyond the size.

        Args:
            embeddings: (B, D).
            items: (B,) int64 item numbers.

        Raises:
            UserError: there is not one number per embedding.
        """
        if items.shape != embeddings.shape[:1]:
            got = f"Got shapes {tuple(items.shape)} and {tuple(embeddings.shape)} instead."
            raise UserError(f"A memory stores one item number per embedding. {got}")
        if self.size == 0:
            return
        new = embeddings.detach()[: self.size]
        kept = self.size - len(new)
        old = self.embeddings[:kept].to(new) if len(self.items) else new[:0]
        self.embeddings = torch.cat([new, old])
        self.items = torch.cat([items[: self.size].cpu(), self.items[:kept]])

    def state_dict(self) -> dict[str, Tensor]:
        """The stored embeddings and item numbers, for a checkpoint."""
        return {"items": self.items, "embeddings": self.embeddings}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the content of a memory.

        Args:
            state: The result of ``state_dict``.

        Raises:
            UserError: it holds more embeddings than this memory keeps.
        """
        if len(state["items"]) > self.size:
            raise UserError(
                f"A memory of size {self.size} cannot take the {len(state['items'])} embeddings of a saved one."
            )
        self.items, self.embeddings = state["items"], state["embeddings"]


def mask_duplicates(label_distances: Tensor | Floating, items: Tensor, stored: Tensor) -> Tensor:
    """Set label distances to infinity where a stored item is the anchor itself, seen in an earlier batch.

    An item is not compared with itself: such a pair would only ask the network to embed as it did before.

    Args:
        label_distances: (A, B + S), the S stored items last; a tensor or the array of ``pairwise``. Changed in place.
        items: (A,) or more: numbers of the anchors' items, then of others.
        stored: (S,) numbers of the stored items.

    Returns:
        ``label_distances`` as a tensor.

    Example:
        >>> import torch
        >>> from cml.losses import mask_duplicates
        >>> mask_duplicates(torch.ones(1, 4), torch.tensor([5, 6]), torch.tensor([6, 5])).tolist()
        [[1.0, 1.0, 1.0, inf]]
    """
    label_distances = torch.as_tensor(label_distances)
    if len(stored):
        duplicates = items[: len(label_distances), None] == stored  # (A, S)
        label_distances[:, -len(stored) :].masked_fill_(duplicates.to(label_distances.device), torch.inf)
    return label_distances
