"""The bases of the losses over label distances: ``loss(embeddings (B, D), label_distances (A, B)) -> scalar``."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.loss import About, LabelSource, Loss
from cml.losses.pairs import RowMean, as_block, check_batch, comparable, masked
from cml.losses.row_blocks import RowTerms, mean_over_rows
from cml.settings import check_auto

Auto = float | Literal["auto"]  # a constant, or that it shall be found in the training set
Mask = Tensor | None  # (A, B) bool, True where a pair may be used; None for everywhere
_FIT = "call loss.fit(distance, labels) with the label distance and the labels of the training set"
FIT_ITEMS = 512  # items whose pairwise label distances fix a loss's constants: 130,816 pairs


class LabelDistanceLoss(Loss):
    """Base of the losses over label distances.

    A subclass writes ``mean``, or ``row_terms`` if it is a sum over anchors. One whose constants come from the training
    set names them in ``constants``, says in ``to_find`` which of them its settings leave open, and finds them in
    ``find_constants``.

    Attributes:
        lacking: What an anchor without a term lacks, for the warning: "two items of a usable label distance".
    """

    labels = "label distances"
    lacking: ClassVar[str] = "two items of a usable label distance"

    def target(self, batch: LabelSource) -> Tensor:
        """The label distances of a batch (A, B), or of a sample of training pairs (P,)."""
        return torch.from_numpy(batch.label_distances())

    def prepare(
        self, target: Tensor, *, dimension: int = 0, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """``fit`` to label distances (P,) of a sample of training pairs."""
        self.fit(target)

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants of the training set ("auto", quantiles), so that they are not those of the first batch.

        Args:
            distance: A label distance, such as ``cml.distances.get("euclidean")``; or, without labels, a tensor or
                array of label distances: (P,) of a sample of training pairs, an item never with itself, or (N, N),
                whose diagonal is left out. Infinite ones are left out.
            labels: The labels of the training set, as they are or encoded by the distance. All pairs among 512 of them
                are looked at, drawn at random; the trainer does the same.
            seed: Of the draw.

        Returns:
            The loss.

        Raises:
            UserError: there is neither a tensor nor a label distance with labels, or the loss finds nothing to fit to.

        Example:
            >>> from cml import distances, losses
            >>> loss = losses.get("log-ratio").fit(distances.get("euclidean"), [31, 35, 60, 18, 44])
            >>> sorted(loss.fitted())
            ['floor', 'label_exponent']
        """
        if isinstance(distance, Tensor | np.ndarray):
            sample = as_block(distance, torch.device("cpu"))
            if sample.ndim == 2 and sample.shape[0] == sample.shape[1]:
                sample = sample[~torch.eye(len(sample), dtype=torch.bool, device=sample.device)]
        elif labels is None or not hasattr(distance, "pairwise"):
            raise UserError(
                "fit takes a label distance and the labels of the training set, as in "
                "loss.fit(cml.distances.get('euclidean'), labels) or, of a function of two labels, "
                "loss.fit(cml.distances.as_label_distance(function), labels); or a tensor of label distances alone. "
                f"Got {type(distance).__name__} and {'no labels' if labels is None else type(labels).__name__} instead."
            )
        else:
            sample = torch.from_numpy(sample_label_distances(distance, distance.encode(labels), seed))
        self._fitted = self.find_constants(sample)
        return self

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """The ``constants`` by name, of a sample of label distances (P,); none if the settings leave none to find."""
        return {}

    def to_find(self) -> tuple[str, ...]:
        """The constants that the settings leave open: those whose setting of the same name is "auto"."""
        return tuple(name for name in self.constants if getattr(self, name, None) == "auto")

    def constant(self, name: str) -> float:
        """The value that ``fit`` found for ``name``; a ``UserError`` if the loss was not fitted."""
        if name not in self._fitted:
            raise UserError(f"{type(self).__name__} has no {name!r} yet: {_FIT}.")
        return self._fitted[name]

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor: embeddings (B, D), label_distances (A, B)."""
        return mean_over_rows(embeddings, label_distances, self.row_terms, normalize=self.normalize)

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """What R anchors add, of squared distances, label distances and the pairs that may be used: (R, B) each."""
        raise NotImplementedError

    def value(self, embeddings: Tensor, label_distances: Tensor, mask: Mask = None) -> Tensor:
        """The loss as a pure function, which counts nothing and needs its constants: what ``.._loss(..)`` gives.

        Embeddings are (B, D), label distances (A, B); a mask (A, B) bool is True where a pair may be used.
        """
        return taught(self.mean(embeddings, masked(label_distances, mask)), self.lacking)

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch, a scalar; if no anchor has a term, 0 with zero gradient and a warning.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            label_distances: (A, B), >= 0, in the label's unit, a tensor or what ``distance.pairwise`` gave; row a
                belongs to item a. The anchor's own column and infinite entries are left out.

        Raises:
            UserError: a tensor has another shape or type than it should, or a label distance is NaN or negative.
        """
        mean = self.mean(embeddings, label_distances)
        self.count_left_out(mean.counts)
        return taught(mean, self.lacking)

    def __call__(self, embeddings: Tensor, label_distances: Tensor) -> Any:  # noqa: ANN401 - as torch has it
        """``forward``, in a subclass's own words too, after a fit to the batch where nobody called ``fit``."""
        label_distances = as_block(label_distances, embeddings.device)
        if not self._fitted and self.to_find():
            self._fit_to_first_batch(embeddings, label_distances)
        return super().__call__(embeddings, label_distances)

    def _fit_to_first_batch(self, embeddings: Tensor, label_distances: Tensor) -> None:
        name, lacking = type(self).__name__, " and ".join(map(repr, self.to_find()))
        together = torch.distributed.is_available() and torch.distributed.is_initialized()
        if together and torch.distributed.get_world_size() > 1:
            raise UserError(f"Each process would find a different {lacking} for {name} in its first batch: {_FIT}.")
        check_batch(embeddings, label_distances)
        self.fit(label_distances[comparable(label_distances)])
        said = f"{name} was not fitted, so it took {lacking} from the first batch alone; {_FIT} before training."
        warnings.warn(said, RuntimeWarning, stacklevel=3)


class ScaledLabelLoss(LabelDistanceLoss):
    """Base of the losses that divide label distances by ``label_scale``, so that one constant serves pixels and angles.

    "auto" is the median of the positive ones that ``fit`` sees.
    """

    constants = ("label_scale",)

    def __init__(self, label_scale: Auto) -> None:
        super().__init__()
        self.label_scale = check_auto("label_scale", label_scale)

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """The scale, if it is "auto"."""
        if self.label_scale != "auto":
            return {}
        sample = finite_sample(label_distances)
        if not (sample > 0).any():
            got = "Got a sample of zeros instead; give label_scale as a number."
            raise UserError(f"{type(self).__name__} needs label distances above 0 to find its label_scale. {got}")
        return {"label_scale": float(np.median(sample[sample > 0]))}

    def scale(self) -> float:
        """The label distance that counts as 1."""
        return self.constant("label_scale") if self.label_scale == "auto" else float(self.label_scale)


class OwnModule(LabelDistanceLoss):
    """A torch module of the user's own, called with embeddings (B, D) and label distances (A, B).

    Its parameters are trained at the head's learning rate. If it has a true attribute ``normalize``, it L2-normalises
    embeddings itself, and so does the trained model.
    """

    about = About("the module's", "the user", "A loss that is being tried out.")

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.normalize = bool(getattr(module, "normalize", False))

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The module's value; a ``UserError`` if it fails, or gives no scalar that gradients can flow from."""
        name = type(self.module).__name__
        shapes = f"embeddings {tuple(embeddings.shape)} and label distances {tuple(label_distances.shape)}"
        try:
            value = self.module(embeddings, label_distances)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"The loss {name} failed on {shapes}: {error}") from error
        if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            got = f"a tensor {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"The loss {name} must return a scalar tensor for {shapes}. Got {got} instead.")
        return value


def as_loss(loss: nn.Module) -> Loss:
    """A loss of cml as it is, any other module as one over label distances."""
    if not isinstance(loss, nn.Module):
        raise UserError(
            "The 'loss' must be a text such as 'log-ratio' or a torch module that takes embeddings (B, D) and label "
            f"distances (A, B). Got {type(loss).__name__} instead."
        )
    return loss if isinstance(loss, Loss) else OwnModule(loss)


def sample_label_distances(distance: Any, labels: Any, seed: int) -> NDArray[np.float32]:  # noqa: ANN401
    """Label distances (P,) of all pairs among ``FIT_ITEMS`` encoded labels drawn at random."""
    some = labels[np.random.default_rng(seed).permutation(len(labels))[:FIT_ITEMS]]
    return np.asarray(distance.pairwise(some, some)[np.triu_indices(len(some), 1)])


def finite_sample(label_distances: Tensor) -> NDArray[np.float64]:
    """The finite label distances (P,) that a ``fit`` was given; a ``UserError`` for negative ones, or none."""
    sample = label_distances.detach().to("cpu", torch.float64).flatten()
    sample = sample[~sample.isposinf()]
    if not bool((sample >= 0).all()):
        raise UserError("The label distances given to fit must be at least 0. Got a negative or NaN one instead.")
    if len(sample) == 0:
        raise UserError("fit needs label distances of pairs that can be compared. Got no finite one instead.")
    return sample.numpy()


def taught(mean: RowMean, lacking: str) -> Tensor:
    """The loss, with a warning (Python shows it once a place) if no anchor of the batch has a term."""
    if not bool(mean.counts.any()):
        said = f"No anchor of the batch has {lacking}: its loss is 0 and teaches nothing."
        warnings.warn(said, RuntimeWarning, stacklevel=3)
    return mean.loss
