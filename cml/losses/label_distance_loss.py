"""The base of the losses over label distances: ``loss(embeddings (B, D), label_distances (A, B)) -> scalar``.

A loss here is a formula over the pairs (anchor, item) of a batch. The first A items of the batch are its anchors; row a
of the label distances holds those of anchor a to all B items. A loss writes its formula in ``anchor_values``, from one
row to one value, and the loss is the mean over the anchors' terms.

A constant of a formula may depend on the unit of the label distance: pixels in one data set, years in another. ``fit``
finds such constants in the training set, or the first batch does if ``fit`` was not called.
"""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from cml.array_types import Float32, Float64
from cml.errors import UserError
from cml.losses.anchor_blocks import AnchorMean, mean_over_anchors
from cml.losses.loss import LabelSource, Loss
from cml.losses.pairs import as_block, check_batch, comparable_pairs, warn_of_odd_matrix, without_diagonal
from cml.settings import check_auto

Auto = float | Literal["auto"]  # a number, or "auto": ``fit`` finds it in the training set
FIT_ITEMS = 512  # items whose pairwise label distances fix a loss's constants: 130,816 pairs
_HOW_TO_FIT = "call loss.fit(distance, labels) with the label distance and the labels of the training set"


class LabelDistanceLoss(Loss):
    """Base of the losses over label distances.

    A subclass writes ``anchor_values``; or ``mean``, if the loss is not a mean over anchors
    or has a gradient in closed form; or ``forward``, if it has no notion of terms. One whose constants come from the
    training set names them in ``constant_names`` and finds them in ``find_constants``.

    Attributes:
        missing: What an anchor without a term lacks, for the warning: "two items of a usable label distance".
        takes_heads: True if ``mean`` also takes embeddings (H, B, D) of H heads, linear maps that are trained on the
            same features at once, with settings (H, 1, 1) that are tensors; see ``cml.training.head_losses``. A formula
            in plain torch needs nothing more if it broadcasts.
    """

    labels = "label distances"
    missing: ClassVar[str] = "two items of a usable label distance"
    takes_heads: ClassVar[bool] = False
    _labels_were_checked = False  # whether targets come from a ``LabelDistance``, which was checked when it was made

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula: the value of each of R anchors, in plain torch.

        Args:
            squared: (R, B) squared Euclidean distances of embeddings, (H, R, B) of H heads; see
                ``cml.losses.squared_distances.plain_distances`` for their roots.
            labels: (R, B) label distances, infinite where a pair cannot be compared.
            used: (R, B) bool, the pairs that may be used: no anchor with itself, and none that cannot be compared.

        Returns:
            The value (R,) of each anchor, a sum over its terms, and the number (R,) of these
            terms; of H heads, values (H, R). An anchor of no
            terms is left out.
        """
        raise NotImplementedError

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The mean of ``anchor_values`` over the anchors of a batch, in blocks of anchors where it is large.

        Args:
            embeddings: (B, D) floating point; (H, B, D) of H heads if the loss ``takes_heads``.
            label_distances: (A, B).

        Returns:
            The loss and the terms (A,) of each anchor.
        """
        look = self.may_check_numbers(embeddings)
        return mean_over_anchors(embeddings, label_distances, self.anchor_values, normalize=self.normalize, look=look)

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            label_distances: (A, B), >= 0, in the label's unit, a tensor or the array of ``distance.pairwise``: those of
                the first A items, the anchors, to all B. Infinite where two labels cannot be compared.

        Returns:
            A scalar; if no anchor has a term, 0 with zero gradient and a warning.

        Raises:
            UserError: a shape or type does not fit, or a number is negative or NaN.
        """
        result = self.mean(embeddings, label_distances)
        self.count_skipped(result.counts)
        if self.may_check_numbers(result.counts) and not bool(result.counts.any()):
            text = f"No anchor of the batch has {self.missing}: its loss is 0 and contributes no gradient."
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return result.loss

    def __call__(self, embeddings: Tensor, label_distances: Tensor) -> Any:  # noqa: ANN401 - as torch has it
        """``forward``, of a subclass too, after fitting the constants to the batch if ``fit`` was not called."""
        label_distances = as_block(label_distances, embeddings)
        if not (self._has_checked_numbers or self._labels_were_checked or torch.compiler.is_compiling()):
            warn_of_odd_matrix(embeddings, label_distances)
        if not self._constants and self.open_constants():
            self._fit_to_first_batch(embeddings, label_distances)
        return super().__call__(embeddings, label_distances)

    def target(self, batch: LabelSource) -> Tensor:  # (A, B) of a batch, (P,) of a sample
        """The label distances of a batch, or of a sample of training pairs."""
        self._labels_were_checked = True
        return torch.from_numpy(batch.label_distances())

    def prepare(
        self,
        target: Tensor,  # (P,) label distances of a sample of training pairs
        *,
        dimension: int = 0,
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        """Find the constants, as ``fit`` does."""
        self.fit(target)

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants in the training set ("auto", quantiles), so that they are not those of the first batch.

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
            from cml.distances import Labels, as_distance_of  # here, as few users' training loops need them

            label_distance = as_distance_of(distance, labels, "fit")
            self._labels_were_checked = True
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
            All ``constant_names`` with their values; nothing if the settings leave none open.

        Raises:
            UserError: the sample does not determine them.
        """
        return {}

    def open_constants(self) -> tuple[str, ...]:
        """The constants that the settings leave open, fitted or not: attributes of these names are "auto"."""
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
        if isinstance(setting, (int, float, Tensor)):  # a tensor holds one number for each of H heads
            return setting
        if name not in self._constants:
            raise UserError(f"{type(self).__name__} has no {name!r} yet: {_HOW_TO_FIT}.")
        return self._constants[name]

    def _fit_to_first_batch(self, embeddings: Tensor, label_distances: Tensor) -> None:
        name, open_constants = type(self).__name__, " and ".join(map(repr, self.open_constants()))
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        if together and torch.distributed.get_world_size() > 1:  # the processes' losses would differ for good
            raise UserError(
                f"Each process would find a different {open_constants} for {name} in its first batch: {_HOW_TO_FIT}."
            )
        check_batch(embeddings, label_distances)
        self.fit(label_distances[comparable_pairs(label_distances)])
        warnings.warn(
            f"{name} was not fitted, so it took {open_constants} from the first batch alone; {_HOW_TO_FIT} before "
            "training.",
            RuntimeWarning,
            stacklevel=3,
        )


class ScaledLabelLoss(LabelDistanceLoss):
    """Base of the losses that measure label distances in units of a scale.

    A published constant such as sigma = 1 holds for the label distances of one paper. In units of a scale that ``fit``
    finds in the training set, one constant serves pixels and angles alike. Losses that use only ranks or ratios of
    label distances need no scale.
    """

    constant_names = ("label_scale",)

    def __init__(self, label_scale: Auto) -> None:
        super().__init__()
        self.label_scale = check_auto("label_scale", label_scale)

    def find_constants(
        self,
        label_distances: Tensor,  # (P,) of training pairs
    ) -> dict[str, float]:
        """Find the scale, if it is "auto"."""
        if self.label_scale != "auto":
            return {}
        sample = finite_sample(label_distances)
        positive = sample[sample > 0]
        if len(positive) == 0:
            raise UserError(
                f"{type(self).__name__} needs label distances above 0 to find its label_scale. "
                "Got a sample of zeros instead; give label_scale as a number."
            )
        return {"label_scale": float(np.median(positive))}


class PairwiseDistance(Protocol):
    """The part of a label distance that a sample needs; every ``cml.distances.LabelDistance`` has it.

    One that also has ``known_pairs`` may know the distances of these pairs alone.
    """

    def pairwise(self, a: Any, b: Any) -> Float32:  # noqa: ANN401 - encoded labels
        """Label distances (len(a), len(b))."""


def sample_label_distances(distance: PairwiseDistance, labels: Any, seed: int) -> Float32:  # noqa: ANN401
    """Label distances (P,) of all pairs among ``FIT_ITEMS`` of the encoded labels, drawn at random.

    Of a distance that lists its ``known_pairs``, at most as many of those.
    """
    generator = np.random.default_rng(seed)
    known = distance.known_pairs(labels) if hasattr(distance, "known_pairs") else None
    if known is not None:
        sample: Float32 = known.distances
        most = FIT_ITEMS * (FIT_ITEMS - 1) // 2
        return sample if len(sample) <= most else sample[generator.choice(len(sample), most, replace=False)]
    drawn = labels[generator.permutation(len(labels))[:FIT_ITEMS]]
    return np.asarray(distance.pairwise(drawn, drawn)[np.triu_indices(len(drawn), 1)])


def finite_sample(label_distances: Tensor) -> Float64:
    """The finite label distances of a sample (P,); refused if one is negative or NaN, or none is finite."""
    sample = label_distances.detach().to("cpu").double().flatten()
    sample = sample[~sample.isposinf()]
    if not bool((sample >= 0).all()):
        raise UserError("The label distances given to fit must be at least 0. Got a negative or NaN one instead.")
    if len(sample) == 0:
        raise UserError("fit needs label distances of pairs that can be compared. Got no finite one instead.")
    return sample.numpy()
