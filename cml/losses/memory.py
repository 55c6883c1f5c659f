"""Cross-batch memory: embeddings of earlier batches as further items that anchors are compared with.

A loss over label distances takes anchors x items, (A, B). The memory makes it (A, B + S): S stored embeddings, without
gradient, follow the B of the batch, and the label distances get S columns more. What is stored beside an embedding is
the number of its item, not its label, so labels may be of any kind; whoever has the labels makes the columns.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cml.errors import UserError


class CrossBatchMemory:
    """The last embeddings that a network made, newest batch first, with their items' numbers.

    Args:
        size: M, embeddings kept at most; 0 keeps none, and the loss is what it is without a memory, bit for bit.

    Attributes:
        items: (S,) int64 item numbers of the stored embeddings, S <= M.
        embeddings: (S, D) stored embeddings, without gradient.

    Raises:
        UserError: the size is negative or not a whole number.

    Example:
        >>> import torch
        >>> from cml.losses import CrossBatchMemory, dense_triplet_loss, leave_out_copies
        >>> values = torch.rand(100, 1)
        >>> memory = CrossBatchMemory(size=50)
        >>> for step in range(3):
        ...     items = torch.arange(20) + 20 * step
        ...     embeddings = torch.randn(20, 4, requires_grad=True)  # of the network
        ...     columns = torch.cat([items, memory.items])
        ...     label_distances = leave_out_copies(torch.cdist(values[items], values[columns]), items, memory.items)
        ...     loss = dense_triplet_loss(memory.extended(embeddings), label_distances)
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

    def extended(self, embeddings: Tensor) -> Tensor:
        """The batch's embeddings (B, D), then the stored ones: (B + S, D). With none stored, what was given."""
        return torch.cat([embeddings, self.embeddings.to(embeddings)]) if len(self.items) else embeddings

    def store(self, embeddings: Tensor, items: Tensor) -> None:
        """Put a batch (B, D) before what is stored, its item numbers (B,) int64; drop what is beyond the size."""
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
        """What a checkpoint holds."""
        return {"items": self.items, "embeddings": self.embeddings}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state_dict`` gave; a ``UserError`` if it holds more than this memory keeps."""
        if len(state["items"]) > self.size:
            raise UserError(
                f"A memory of size {self.size} cannot take the {len(state['items'])} embeddings of a saved one."
            )
        self.items, self.embeddings = state["items"], state["embeddings"]


def leave_out_copies(label_distances: Tensor | NDArray[np.floating], items: Tensor, stored: Tensor) -> Tensor:
    """Label distances, as a tensor, with infinity where a stored item is the anchor itself, seen in an earlier batch.

    An item is not compared with itself: such a pair would only ask the network to embed as it did before.

    Args:
        label_distances: (A, B + S), the S stored items last, a tensor or the array of ``pairwise``; changed in place.
        items: (A,) or more: numbers of the anchors' items, then of others.
        stored: (S,) numbers of the stored items.

    Example:
        >>> import torch
        >>> from cml.losses import leave_out_copies
        >>> leave_out_copies(torch.ones(1, 4), torch.tensor([5, 6]), torch.tensor([6, 5])).tolist()
        [[1.0, 1.0, 1.0, inf]]
    """
    label_distances = torch.as_tensor(label_distances)
    if len(stored):
        copies = items[: len(label_distances), None] == stored  # (A, S)
        label_distances[:, -len(stored) :].masked_fill_(copies.to(label_distances.device), torch.inf)
    return label_distances
