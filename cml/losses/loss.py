"""The contract of a loss: its inputs, what it may ask of the labels, and what it finds in a training set.

A loss is ``loss(embeddings (B, D), target) -> scalar``. It makes its target from a batch by itself (``target``), and
once, of the whole training set, what depends on it: constants, proxies, a scale (``prepare``). There are three kinds:
``LabelDistanceLoss`` (label distances, ``label_distance_loss.py``), ``ClassLoss`` (class numbers, ``class_loss.py``)
and ``VectorLoss`` (label vectors, below). Every registered loss is one class, in a file of its name: its settings, and
one method with its formula. Gradients flow to the embeddings and the loss's own parameters, never to the labels.

Losses are written in plain torch, so that they can be differentiated any number of times and compiled without a graph
break. They never wait for a number of a GPU: see ``Loss.may_check_numbers``. Five have a gradient in closed form, which
is faster and smaller for large batches (``closed_form.py``).
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from cml.array_types import Float32, Int64
from cml.errors import UserError
from cml.losses.pairs import unwrap


class LabelSource(Protocol):
    """What a loss may ask of the labels of a batch, or of a training set: see ``BatchTargets``, ``TrainingTargets``."""

    def label_distances(self) -> Float32:
        """Label distances, infinite where a pair cannot be compared.

        Returns:
            Of a batch (A, B), from its anchors to all its items; of a training set (P,), those of a sample of pairs.
        """

    def classes(self) -> Int64:
        """Class numbers 0..C-1.

        Returns:
            (B,) of a batch; of a training set, of all its items.

        Raises:
            UserError: the labels are not classes.
        """

    def vectors(self) -> Float32:
        """Label vectors, in their own unit.

        Returns:
            (B, V) of a batch; of a training set, of all its items.

        Raises:
            UserError: the labels are not vectors.
        """

    def triplets(self) -> Int64:
        """Judged triplets.

        Returns:
            (T, 4): anchor, nearer and farther item, as positions in the batch or in the training set, and how often
            they were judged so.

        Raises:
            UserError: the labels are no triplets.
        """


@dataclass(frozen=True)
class LossInfo:
    """What ``cml losses`` and the documentation print about a loss; each text is one line.

    Attributes:
        cost: Time of a batch of B items, A anchors, C classes, beside the products of its vectors: "O(A B log B)".
        source: Authors, venue and year: "Kim et al., CVPR 2019".
        when: When to use it.

    Example:
        >>> LossInfo(cost="O(A B)", source="Kim et al., CVPR 2019", when="Labels are continuous.").cost
        'O(A B)'
    """

    cost: str
    source: str
    when: str


class Loss(nn.Module):
    """Base of all losses. A setting that is out of range is a ``UserError`` when the loss is made.

    Attributes:
        labels: The kind of its target in the list of losses: "label distances", "classes", "vectors", "triplets".
        info: Cost, source and use, for the list of losses.
        normalize: True if the loss L2-normalises embeddings. Retrieval with the trained embedding must do the same; the
            trainer copies this flag into the model.
        uses_order_alone: True if any increasing function of the label distances leaves the loss as it is.
        starts_at_zero: True if every embedding should be 0 before training, as a predicted label starts at the mean.
        search_space: Settings to the values or ranges that ``cml bench`` draws its trials from, as in
            ``{"scale": "0.01..1.0:log"}``, beside learning rate and weight decay.
        constant_names: Names of the constants that ``prepare`` finds, in the order in which a ``state_dict`` holds
            them.

    Example:
        >>> from cml.losses import LabelDistanceLoss
        >>> class MeanDistanceLoss(LabelDistanceLoss):  # a loss of one's own: its settings and its formula
        ...     info = LossInfo(cost="O(A B)", source="an example", when="Never.")
        ...
        ...     def anchor_values(self, squared, labels, used):
        ...         return (squared - labels).abs().where(used, 0).sum(dim=-1), used.sum(dim=-1)
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> MeanDistanceLoss()(points, torch.cdist(points, points) ** 2).item()
        0.0
    """

    labels: ClassVar[str]
    info: ClassVar[LossInfo]
    normalize: bool = False
    starts_at_zero: ClassVar[bool] = False
    uses_order_alone: ClassVar[bool] = False
    search_space: ClassVar[Mapping[str, str]] = {}
    constant_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, float] = {}
        self._skipped = torch.zeros((), dtype=torch.int64)  # on a device, a tensor: to read it would wait
        self._has_checked_numbers = False

    def target(self, batch: LabelSource) -> Tensor:
        """Make the second argument of ``forward`` from a batch's labels, or the target of ``prepare``.

        It is called in data workers, and in a run of several processes the target of one counts for all: its shape
        should follow from the numbers of items and anchors alone.

        Args:
            batch: The labels of a batch, or of the training set.

        Returns:
            The target.

        Raises:
            UserError: the labels are of another kind.
        """
        raise NotImplementedError

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Make what depends on the training labels: constants, proxies, the scale of a label vector.

        The trainer calls it once, on the CPU, before the loss moves to its device and before the optimiser and a
        checkpoint look at its parameters.

        Args:
            target: The ``target`` of the training set.
            dimension: D of the embeddings.
            names: The names of the C classes, if the labels are classes.
            generator: For the start of the parameters. It is the loss's own, so that the network starts the same under
                every loss.
        """

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants of a loss over label distances; any other loss refuses.

        Args:
            distance: A label distance of any kind that ``cml.fit`` takes. Without ``labels``, a sample of label
                distances of training pairs: (P,), or a square matrix, whose diagonal is left out.
            labels: Those of the training set, as they are or encoded.
            seed: Draws the labels that are compared, of more than 512.

        Returns:
            The loss.

        Raises:
            UserError: the loss is not over label distances, and the error says what to call instead; the labels do not
                fit the label distance; or the sample does not determine the constants.
        """
        has_prepare = type(self).prepare is not Loss.prepare
        raise UserError(
            f"{type(self).__name__} is a loss over {self.labels} and has no fit: "
            + (f"call prepare({self.labels}, dimension=D)." if has_prepare else "it needs no training labels.")
        )

    def proxies(self) -> list[nn.Parameter]:
        """The parameters that learn at ``proxy_rate`` times the learning rate; all others learn at the head's."""
        return []

    def constants(self) -> dict[str, float]:
        """The constants that ``prepare`` found, by name, for the saved config; empty before."""
        return dict(self._constants)

    def describe_labels(self) -> str:
        """Say what the loss learned of the labels, for a report; "" where it learns nothing of them."""
        return ""

    def get_extra_state(self) -> Tensor:
        """The constants as they go into a ``state_dict``: float64, empty before ``prepare``."""
        values = [self._constants[name] for name in self.constant_names if name in self._constants]
        return torch.tensor(values, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the constants back from a ``state_dict``."""
        if len(state) not in (0, len(self.constant_names)):
            got = f"Got {len(state)} of them in the state_dict instead: it is that of another loss."
            raise UserError(f"{type(self).__name__} has {len(self.constant_names)} fitted constants. {got}")
        self._constants = dict(zip(self.constant_names, state.tolist(), strict=False))

    @property
    def skipped_anchors(self) -> int:
        """Anchors seen so far that had no pair or triplet to learn from."""
        return int(self._skipped)

    def count_skipped(self, counts: Tensor) -> None:
        """Add the anchors without a term to ``skipped_anchors``.

        Args:
            counts: (A,) the terms of each anchor.
        """
        self._skipped = unwrap(self._skipped.to(counts.device) + (counts == 0).sum())

    def may_check_numbers(self, tensor: Tensor) -> bool:
        """Whether a check may look at the numbers of a tensor.

        On the CPU always. On another device only in the first call, for the processor waits for the device then. Under
        ``torch.compile`` never, for a graph cannot branch on a number.

        Args:
            tensor: The embeddings of a batch.

        Returns:
            Whether to check numbers. Shapes and types are always checked.
        """
        return not torch.compiler.is_compiling() and (tensor.device.type == "cpu" or not self._has_checked_numbers)

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch has it
        """``forward``, after which numbers on a device are no longer looked at."""
        value = super().__call__(*arguments, **options)
        if not torch.compiler.is_compiling():
            self._has_checked_numbers = True
        return value

    def extra_repr(self) -> str:
        """The settings as they are written: the constructor's arguments, which are attributes of the same name."""
        arguments = inspect.signature(type(self)).parameters
        settings = {name: getattr(self, name) for name in setting_names(self)}
        unset = {name for name, value in settings.items() if value is None and arguments[name].default is None}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items() if name not in unset)


def setting_names(loss: Loss) -> list[str]:
    """The constructor's arguments of a loss that are attributes of the same name."""
    return [name for name in inspect.signature(type(loss)).parameters if hasattr(loss, name)]


class VectorLoss(Loss):
    """Base of the losses over label vectors: ``loss(embeddings (B, D), vectors (B, V)) -> scalar``."""

    labels = "vectors"

    def target(self, batch: LabelSource) -> Tensor:  # (B, V) float32, in their own unit
        """The label vectors of a batch, or of a training set."""
        return torch.from_numpy(batch.vectors())

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32.
            vectors: (B, V) label vectors in their own unit.

        Returns:
            A scalar.
        """
        raise NotImplementedError
