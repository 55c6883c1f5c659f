"""The base of the losses over label distances: ``loss(embeddings (B, D), label_distances (A, B)) -> scalar``.

A loss here is a formula over the pairs of a batch (``pairs.py``) and says how many terms each anchor has. The formula
is a function with its constants as arguments. The class holds the constants. ``fit`` finds them in the training set,
or the first batch does where nobody called it.
"""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_sample import sample_label_distances
from cml.losses.loss import LabelSource, Loss
from cml.losses.own_column import comparable_pairs, without_diagonal
from cml.losses.pairs import as_block, check_batch
from cml.losses.row_mean import RowMean, warn_without_terms

Auto = float | Literal["auto"]  # a constant, or that ``fit`` shall find it in the training set
Mask = Tensor | None  # (A, B) bool, True where a pair may be used; None for everywhere
_FIT = "call loss.fit(distance, labels) with the label distance and the labels of the training set"


class LabelDistanceLoss(Loss):
    """Base of the losses over label distances.

    A subclass writes ``mean``, or ``forward`` if it counts no terms. One whose constants come from the training set
    names them in ``constant_names`` and finds them in ``find_constants``.

    Every loss of cml may be differentiated any number of times, and by ``torch.func``; ``torch.compile`` leaves its
    closed form as it is.

    Attributes:
        missing: What an anchor without a term has not, for the warning: "two items of a usable label distance".
        takes_heads: True if ``mean`` also takes embeddings (H, B, D) of H heads, with settings (H, 1, 1) that are
            tensors; see ``cml.losses.stack_heads``.
    """

    labels = "label distances"
    missing: ClassVar[str] = "two items of a usable label distance"
    takes_heads: ClassVar[bool] = False

    def target(self, batch: LabelSource) -> Tensor:
        """The label distances of a batch, or of a sample of training pairs.

        Args:
            batch: The labels.

        Returns:
            (A, B) of a batch, (P,) of a sample.
        """
        return torch.from_numpy(batch.label_distances())

    def prepare(
        self, target: Tensor, *, dimension: int = 0, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Find the constants, as ``fit`` does.

        Args:
            target: (P,) label distances of a sample of training pairs.
            dimension: Not used: the constants do not depend on it.
            names: Not used: there are no classes.
            generator: Not used: there are no parameters.

        Raises:
            UserError: the loss finds nothing to fit to.
        """
        self.fit(target)

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants in the training set ("auto", quantiles), so that they are not those of the first batch.

        Args:
            distance: A string, a ``LabelDistance``, a function of two labels or a matrix, as ``cml.fit`` takes it; or,
                without labels, a tensor or array of label distances: (P,) of a sample of training pairs, an item never
                with itself, or (N, N), whose diagonal is left out. Infinite ones are left out.
            labels: The labels of the training set, as they are or encoded by the distance. All pairs among 512 of them,
                drawn at random, are looked at; the trainer does the same.
            seed: Random seed of the draw.

        Returns:
            The loss.

        Raises:
            UserError: there is neither a tensor nor a label distance with labels, the two are exchanged, or the loss
                finds nothing to fit to.

        Example:
            >>> from cml import losses
            >>> loss = losses.get("log-ratio").fit("euclidean", [31, 35, 60, 18, 44])
            >>> sorted(loss.constants())
            ['floor', 'label_exponent']
        """
        if labels is None and isinstance(distance, Tensor | np.ndarray):
            sample = distance if isinstance(distance, Tensor) else torch.tensor(distance)
            if sample.ndim == 2 and sample.shape[0] == sample.shape[1]:
                sample = without_diagonal(sample)
        else:
            from cml.distances import Labels, as_distance_of

            label_distance = as_distance_of(distance, labels, "fit")
            if not isinstance(labels, Labels):
                label_distance = label_distance.fit(labels)
            sample = torch.from_numpy(sample_label_distances(label_distance, label_distance.encode(labels), seed))
        self._constants = self.find_constants(sample)
        return self

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the constants in a sample.

        Args:
            label_distances: (P,) of training pairs.

        Returns:
            The ``constant_names`` with their values; nothing if the settings leave none open.

        Raises:
            UserError: the sample does not determine them.
        """
        return {}

    def unfitted_constants(self) -> tuple[str, ...]:
        """The constants that the settings leave open: those whose attribute of the same name is "auto"."""
        settings = {name: getattr(self, name, None) for name in self.constant_names}
        return tuple(name for name, setting in settings.items() if isinstance(setting, str) and setting == "auto")

    def constant(self, name: str) -> Any:  # noqa: ANN401 - a float, or a tensor for H heads
        """The value of a constant: the attribute of that name where it is a number, else the value that ``fit`` found.

        Args:
            name: One of ``constant_names``.

        Returns:
            The value.

        Raises:
            UserError: the loss was not fitted.
        """
        setting: Any = getattr(self, name, None)
        if isinstance(setting, int | float | Tensor):  # a tensor holds one number for each of H heads
            return setting
        if name not in self._constants:
            raise UserError(f"{type(self).__name__} has no {name!r} yet: {_FIT}.")
        return self._constants[name]

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the number of terms of each anchor.

        Args:
            embeddings: (B, D) floating point; (H, B, D) of H heads if the loss ``takes_heads``.
            label_distances: (A, B).

        Returns:
            The loss and the terms (A,) of each anchor.
        """
        raise NotImplementedError

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch; if no anchor has a term, 0 with zero gradient and a warning.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            label_distances: (A, B), >= 0, in the label's unit, a tensor or the array of ``distance.pairwise``; row a
                belongs to item a. The anchor's own column and infinite entries are left out. Integers are converted to
                the type of the embeddings.

        Returns:
            A scalar.

        Raises:
            UserError: a tensor has another shape or type, a label distance is NaN or negative or requires a gradient,
                or the batch is one of many under ``torch.func.vmap``.
        """
        mean = self.mean(embeddings, label_distances)
        self.count_skipped(mean.counts)
        return warn_without_terms(mean, self.missing)

    def __call__(self, embeddings: Tensor, label_distances: Tensor) -> Any:  # noqa: ANN401 - as torch has it
        """``forward``, of a subclass too, after a fit to the batch where nobody called ``fit``."""
        label_distances = as_block(label_distances, embeddings)
        if not self._constants and self.unfitted_constants():
            self._fit_to_first_batch(embeddings, label_distances)
        return super().__call__(embeddings, label_distances)

    def _fit_to_first_batch(self, embeddings: Tensor, label_distances: Tensor) -> None:
        name, open_constants = type(self).__name__, " and ".join(map(repr, self.unfitted_constants()))
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        if together and torch.distributed.get_world_size() > 1:
            raise UserError(
                f"Each process would find a different {open_constants} for {name} in its first batch: {_FIT}."
            )
        check_batch(embeddings, label_distances)
        self.fit(label_distances[comparable_pairs(label_distances)])
        warnings.warn(
            f"{name} was not fitted, so it took {open_constants} from the first batch alone; {_FIT} before training.",
            RuntimeWarning,
            stacklevel=3,
        )
