"""cml as a scikit-learn transformer: vectors or images and their labels in, embeddings out."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cml.array_types import Float32, Float64, UInt8
from cml.doors.fit import fit
from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.own_functions import Augment
from cml.training.train_options import TrainOptions, list_options

_PARTS = ("label_distance", "loss", "backbone", "optimizer", "schedule")  # options that may also be objects
_LARGEST_SEED = 2**31 - 1


class CMLEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embeds vectors or images so that embedding distances mirror label distances; a supervised transformer.

    ``X`` is an (N, F) array or data frame of numbers, whose rows are standardised vectors for a linear head (or the
    network that ``backbone`` names). With ``image_shape`` each row is a grey image, as in scikit-learn's own image data
    sets; the least and the greatest number at ``fit`` become black and white, with 256 levels. ``X`` may also hold N
    images: a list or 1-D array of paths, Pillow images or uint8 arrays, or one uint8 array (N, H, W, 3). ``y`` holds N
    labels of the kind that ``label_distance`` takes.

    Args:
        image_shape: Height and width of the images in rows; None for rows that are vectors.
        augment: A function that augments one input at each use, as ``cml.fit`` takes it.
        random_state: An integer or a ``RandomState`` that sets the seed; None for the option ``seed``.
        quiet: Whether ``fit`` shows no progress bar and no remarks.
        **options: Any option of ``TrainConfig``; all are parameters of the estimator, for ``set_params`` and
            ``GridSearchCV``. ``label_distance``, ``loss``, ``backbone``, ``optimizer`` and ``schedule`` may be objects,
            as ``cml.fit`` takes them.

    Attributes:
        model_: The trained ``cml.Model``.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.neighbors import KNeighborsRegressor
        >>> from sklearn.pipeline import make_pipeline
        >>> rows, progression = load_diabetes(return_X_y=True)  # (442, 10), (442,)
        >>> embedder = CMLEmbedder(dimension=8, steps=50, sampler="random(batch_size=64)")
        >>> steps = make_pipeline(embedder, KNeighborsRegressor(20)).fit(rows[:300], progression[:300])
        >>> steps[:-1].transform(rows[300:]).shape
        (142, 8)
    """

    @list_options  # scikit-learn's get_params and clone read the parameters from the signature
    def __init__(
        self,
        *,
        image_shape: tuple[int, int] | None = None,
        augment: Augment | None = None,
        random_state: int | np.random.RandomState | None = None,
        quiet: bool = True,
        **options: Unpack[TrainOptions],
    ) -> None:
        self.image_shape = image_shape
        self.augment = augment
        self.random_state = random_state
        self.quiet = quiet
        for option in fields(TrainConfig):
            setattr(self, option.name, options.get(option.name, option.default))
        for name in options:
            if not hasattr(self, name):
                raise TypeError(f"CMLEmbedder has no parameter {name!r}; see cml.TrainConfig.")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CMLEmbedder:  # noqa: ANN401 - as above
        """Train on inputs and their labels.

        Args:
            X: N vectors, or N images, as images or as rows.
            y: N labels.
            sample_weight: N weights, as ``cml.fit`` takes them; None for all alike.

        Returns:
            The estimator itself.

        Raises:
            ValueError: There are no labels, the rows are no numbers, or all weights are 0.
            UserError: Inputs, labels or options do not fit each other.
        """
        if y is None:
            raise ValueError("CMLEmbedder requires y to be passed, but the target y is None")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
            if not sample_weight.any():  # the words that scikit-learn's own check expects
                raise ValueError("Sample weights must contain at least one non-zero number.")
        options = {option.name: getattr(self, option.name) for option in fields(TrainConfig)}
        parts = {name: options.pop(name) for name in _PARTS if not isinstance(options[name], str)}
        if self.random_state is not None:
            options["seed"] = _draw_seed(self.random_state)
        self.takes_images_ = _are_images(X)
        self.range_ = None
        if not self.takes_images_:
            X = self._rows(X, reset=True)
            if self.image_shape is not None:
                self.range_ = float(X.min()), float(X.max())
                X = self._pictures(X)
        labels = y if hasattr(y, "__len__") else np.asarray(y)
        parts |= {"augment": self.augment, "sample_weight": sample_weight}
        self.model_ = fit(X, labels, TrainConfig(**options), **parts, quiet=self.quiet)
        self._n_features_out = self.model_.config.dimension
        return self

    def transform(self, X: Any) -> Float32:  # noqa: ANN401
        """Embed vectors or images.

        Args:
            X: N inputs of the kind that the estimator was fitted on.

        Returns:
            Embeddings (N, dimension) float32.

        Raises:
            NotFittedError: The estimator was not fitted.
            UserError: It was fitted on images, and these are rows, or the reverse.
        """
        check_is_fitted(self)
        if _are_images(X):
            if not self.takes_images_ and self.image_shape is None:
                raise UserError("The CMLEmbedder was fitted on rows of numbers: give rows, not images.")
            return self.model_.embed(X)
        if self.takes_images_:
            raise UserError("The CMLEmbedder was fitted on images: give images, not rows of numbers.")
        rows = self._rows(X, reset=False)
        return self.model_.embed(rows if self.image_shape is None else self._pictures(rows))

    def score(self, X: Any, y: Any) -> float:  # noqa: ANN401
        """Measure how well embedding distances mirror label distances, for ``GridSearchCV`` and ``cross_val_score``.

        Args:
            X: N inputs of the kind that the estimator was fitted on.
            y: N labels.

        Returns:
            The mean over items of Spearman's rho between the embedding and the label distances to all other items; of
            classes, the mean of MAP@R. Higher is better.

        Raises:
            NotFittedError: The estimator was not fitted.
            UserError: Labels do not fit the inputs or the label distance.
        """
        from cml.retrieval import evaluate_embeddings

        embeddings = self.transform(X)
        row = evaluate_embeddings(embeddings, y, label_distance=self.model_.label_distance).rows["embedding"]
        return float(row["map@r" if "map@r" in row else "spearman_rho"].mean)

    def _rows(self, X: Any, *, reset: bool) -> Float64:  # noqa: ANN401
        """Rows of numbers (N, F), checked as scikit-learn does."""
        finite = "allow-nan" if self.missing == "mean" else True
        least = 2 if reset else 1
        rows: Float64 = validate_data(
            self, X, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=least, reset=reset
        )
        return rows

    def _pictures(self, rows: Float64) -> UInt8:
        """Images (N, h, w, 3) of rows (N, F)."""
        assert self.range_ is not None
        assert self.image_shape is not None
        shape, (low, high) = self.image_shape, self.range_
        if rows.shape[1] != shape[0] * shape[1]:
            raise UserError(f"'image_shape' {shape} does not fit rows of {rows.shape[1]} numbers.")
        levels = np.clip((rows - low) / max(high - low, np.finfo(float).tiny), 0, 1)
        return np.repeat((255 * levels).round().astype(np.uint8).reshape(len(rows), *shape, 1), 3, axis=3)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.missing == "mean"
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32
        return tags


def _draw_seed(state: int | np.random.RandomState) -> int:
    """The seed of a run: an integer itself, or a number drawn from a generator."""
    if isinstance(state, int | np.integer):
        return int(state)
    return int(check_random_state(state).randint(_LARGEST_SEED))


def _are_images(data: Any) -> bool:  # noqa: ANN401 - any X
    axes = getattr(data, "ndim", 1)
    if axes != 1:
        return bool(axes == 4)
    first = next(iter(data), None) if hasattr(data, "__iter__") else None
    return isinstance(first, str | Path | Image.Image) or getattr(first, "ndim", 0) == 3
