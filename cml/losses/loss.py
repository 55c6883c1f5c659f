"""The contract of a loss: what it is given, what it may ask of the labels, and what it finds in a training set.

A loss is ``loss(embeddings (B, D), target) -> scalar``. It makes its target from a batch by itself (``target``), and
once, of the whole training set, what depends on it: constants, proxies, a scale (``prepare``). Three kinds are at hand:
``LabelDistanceLoss`` (label distances), ``ClassLoss`` (class numbers) and ``VectorLoss`` (label vectors). Gradients
flow to the embeddings and the loss's own parameters, never to the labels.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.errors import UserError


class LabelSource(Protocol):
    """What a loss may ask of the labels of a batch, or of a training set; cml.training.targets answers.

    Labels that are not classes, or not vectors, are a ``UserError`` where they are asked for as such.
    """

    def label_distances(self) -> NDArray[np.float32]:
        """Of a batch (A, B), from its anchors to all its items; of a training set (P,), those of a sample of pairs."""

    def classes(self) -> NDArray[np.int64]:
        """(B,) class numbers 0..C-1; of a training set, of all its items."""

    def vectors(self) -> NDArray[np.float32]:
        """(B, V) labels that are vectors, in their own unit; of a training set, of all its items."""


@dataclass(frozen=True)
class About:
    """What ``cml losses`` and the documentation say about a loss; each text is one line.

    Attributes:
        cost: Time of a batch of B items, A anchors, C classes, beside the products of its vectors: "O(A B log B)".
        source: Authors, venue and year: "Kim et al., CVPR 2019".
        when: When to use it.
    """

    cost: str
    source: str
    when: str


class Loss(nn.Module):
    """Base of all losses. A setting that is out of range is a ``UserError`` when the loss is made.

    Attributes:
        labels: What its target is called in the list of losses: "label distances", "classes", "vectors".
        about: Cost, source and use, for the list of losses.
        normalize: True if the loss L2-normalises embeddings. Whoever retrieves with the trained embedding must
            do the same; the trainer copies this flag into the model, it is said nowhere else.
        starts_at_zero: True if every embedding should be 0 before training, as a predicted label starts at the mean.
        vary: Settings to the values or ranges that ``cml bench`` draws its trials from, as in
            ``{"scale": "0.01..1.0:log"}``, beside learning rate and weight decay.
        constants: Names of what ``prepare`` finds, in the order in which a ``state_dict`` holds them.
        left_out: Anchors seen so far that had no pair or triplet to learn from.
    """

    labels: ClassVar[str]
    about: ClassVar[About]
    normalize: bool = False
    starts_at_zero: ClassVar[bool] = False
    vary: ClassVar[Mapping[str, str]] = {}
    constants: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._fitted: dict[str, float] = {}
        self.left_out = 0

    def target(self, batch: LabelSource) -> Tensor:
        """What ``forward`` is given of a batch's labels beside the embeddings, or ``prepare`` of a training set's.

        It is called in data workers, and of several processes the target of one counts for all: its shape should
        follow from the numbers of items and anchors alone.
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
        """Refuse, by a ``UserError`` that says what to call: losses over label distances alone are fitted."""
        asked = type(self).prepare is not Loss.prepare
        raise UserError(
            f"{type(self).__name__} is a loss over {self.labels} and has no fit: "
            + (f"call prepare({self.labels}, dimension=D)." if asked else "it finds nothing in the training labels.")
        )

    def proxies(self) -> list[nn.Parameter]:
        """The parameters that learn at ``proxy_rate`` times the learning rate; all others learn at the head's."""
        return []

    def fitted(self) -> dict[str, float]:
        """The constants that ``prepare`` found, by name, for the saved config; empty before."""
        return dict(self._fitted)

    def get_extra_state(self) -> Tensor:
        """The fitted constants as they go into a ``state_dict``: float64, empty before ``prepare``."""
        found = [self._fitted[name] for name in self.constants if name in self._fitted]
        return torch.tensor(found, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the fitted constants back from a ``state_dict``; those of another loss are a ``UserError``."""
        if len(state) not in (0, len(self.constants)):
            got = f"Got {len(state)} of them in the state_dict instead: it is that of another loss."
            raise UserError(f"{type(self).__name__} has {len(self.constants)} fitted constants. {got}")
        self._fitted = dict(zip(self.constants, state.tolist(), strict=False))

    def count_left_out(self, counts: Tensor) -> None:
        """Add the anchors without a term in ``counts`` (A,) to ``left_out``."""
        self.left_out += int((counts == 0).sum())

    def extra_repr(self) -> str:
        """The settings as they are written: the constructor's arguments, which are attributes of the same name."""
        arguments = inspect.signature(type(self)).parameters
        settings = {name: getattr(self, name) for name in arguments if hasattr(self, name)}
        unset = {name for name, value in settings.items() if value is None and arguments[name].default is None}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items() if name not in unset)


class VectorLoss(Loss):
    """Base of the losses over label vectors: ``loss(embeddings (B, D), vectors (B, V)) -> scalar``."""

    labels = "vectors"

    def target(self, batch: LabelSource) -> Tensor:
        """The label vectors (B, V) float32, in their own unit."""
        return torch.from_numpy(batch.vectors())

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """The loss of a batch, in at least float32: embeddings (B, D), vectors (B, V) in their own unit."""
        raise NotImplementedError
