"""cml as a scikit-learn transformer: images and labels in, embeddings out."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from cml.errors import UserError
from cml.runs.train import fit
from cml.training.config import TrainConfig
from cml.training.train_options import TrainOptions, list_options


class CMLEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embeds images so that embedding distances mirror label distances; a supervised transformer.

    ``X`` holds N images as images or as rows. Images are a list or 1-D array of paths, Pillow images or uint8 arrays,
    or one uint8 array (N, H, W, 3). Rows are an (N, F) array or data frame of numbers, as in scikit-learn's own image
    data sets: each row is a grey image of ``image_shape``. The least and the greatest number at ``fit`` become black
    and white, with 256 levels. ``y`` holds N labels of the kind that ``label_distance`` takes.

    Args:
        image_shape: Height and width of the images in rows; None for images of 1 x F pixels.
        **options: Any option of ``TrainConfig``; all are parameters of the estimator, for ``set_params`` and
            ``GridSearchCV``.

    Attributes:
        model_: The trained ``cml.Model``.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> images, digits = load_digits(return_X_y=True)  # (1797, 64), (1797,)
        >>> embedder = CMLEmbedder(image_shape=(8, 8), label_distance="classes", loss="proxy-anchor", dimension=16,
        ...                        backbone="small-cnn", weights="none", image_size=(16, 16), steps=3, workers=0)
        >>> steps = make_pipeline(embedder, KNeighborsClassifier()).fit(images[:500], digits[:500])
        >>> steps[:-1].transform(images[500:]).shape
        (1297, 16)
    """

    @list_options  # scikit-learn's get_params and clone read the parameters from the signature
    def __init__(self, *, image_shape: tuple[int, int] | None = None, **options: Unpack[TrainOptions]) -> None:
        self.image_shape = image_shape
        for option in fields(TrainConfig):
            setattr(self, option.name, options.get(option.name, option.default))
        for name in options:
            if not hasattr(self, name):
                raise TypeError(f"CMLEmbedder has no parameter {name!r}; see cml.TrainConfig.")

    def fit(self, X: Any, y: Any = None) -> CMLEmbedder:  # noqa: ANN401 - as above
        """Train on images and their labels.

        Args:
            X: N images, as images or as rows.
            y: N labels.

        Returns:
            The estimator itself.

        Raises:
            ValueError: There are no labels, or the rows are no numbers.
            UserError: Images, labels or options do not fit each other.
        """
        if y is None:
            raise ValueError("CMLEmbedder requires y to be passed, but the target y is None")
        config = TrainConfig(**{option.name: getattr(self, option.name) for option in fields(TrainConfig)})
        self.range_ = None
        if not _are_images(X):
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            self.range_ = float(X.min()), float(X.max())
            X = self._pictures(X)
        self.model_ = fit(X, y if hasattr(y, "__len__") else np.asarray(y), config, quiet=True)
        self._n_features_out = config.dimension
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: ANN401
        """Embed images.

        Args:
            X: N images, in either form.

        Returns:
            Embeddings (N, dimension) float32.

        Raises:
            NotFittedError: The estimator was not fitted.
            UserError: It was fitted on images, and these are rows.
        """
        check_is_fitted(self)
        if not _are_images(X):
            X = self._pictures(validate_data(self, X, dtype=np.float64, reset=False))
        return self.model_.embed(X)

    def _pictures(self, rows: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Images (N, h, w, 3) of rows (N, F)."""
        if self.range_ is None:
            raise UserError("The CMLEmbedder was fitted on images: give images, not rows of numbers.")
        shape, (low, high) = self.image_shape or (1, rows.shape[1]), self.range_
        if rows.shape[1] != shape[0] * shape[1]:
            raise UserError(f"'image_shape' {shape} does not fit rows of {rows.shape[1]} numbers.")
        levels = np.clip((rows - low) / max(high - low, np.finfo(float).tiny), 0, 1)
        return np.repeat((255 * levels).round().astype(np.uint8).reshape(len(rows), *shape, 1), 3, axis=3)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32
        return tags


def _are_images(data: Any) -> bool:  # noqa: ANN401 - any X
    axes = getattr(data, "ndim", 1)
    if axes != 1:
        return bool(axes == 4)
    first = next(iter(data), None) if hasattr(data, "__iter__") else None
    return isinstance(first, str | Path | Image.Image) or getattr(first, "ndim", 0) == 3
