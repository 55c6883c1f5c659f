"""The transformer for scikit-learn: its own checks, and the forms that images come in."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from test_training import bars

import cml
from cml.errors import UserError

SMALL: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 4,
    "steps": 1,
    "workers": 0,
    "sampler": "random(batch_size=8)",
    "loss": "log-ratio",
}


VECTORS: dict[str, Any] = {"dimension": 4, "steps": 1, "sampler": "random(batch_size=8)", "loss": "log-ratio"}


# but that of arrays of other libraries, which it skips by itself where SCIPY_ARRAY_API is not set
CHECKS = [
    (estimator, check)
    for options in (VECTORS, {**VECTORS, "missing": "mean"})
    for estimator, check in estimator_checks_generator(cml.sklearn.CMLEmbedder(**options))
    # anchors are drawn by weight: weights are repeated items in the mean alone, and no item comes twice in a batch, as
    # one of 40 % of all would have to
    if not any(name in str(check) for name in ("array_api", "sample_weight_equivalence", "weights_not_overwritten"))
]


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=lambda one: getattr(getattr(one, "func", one), "__name__", "")
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:  # noqa: ANN401
    check(estimator)


@pytest.mark.slow
def test_it_is_a_step_before_a_regressor_and_takes_arrays_paths_and_pillow_images(tmp_path: Path) -> None:
    images, places = bars(60)
    paths = [tmp_path / f"{number}.png" for number in range(60)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    found = []
    forms: list[Any] = [images, paths, [str(path) for path in paths], np.array(paths), [*images]]
    for form in [*forms, [Image.fromarray(image) for image in images]]:
        steps = make_pipeline(cml.sklearn.CMLEmbedder(**{**SMALL, "steps": 20}), KNeighborsRegressor())
        steps.fit(form[:40], places[:40])
        found.append(steps.predict(form[40:]))
    assert all(np.array_equal(one, found[0]) for one in found)
    assert np.abs(found[0] - places[40:]).mean() < 0.5 * np.abs(places[40:] - places[:40].mean()).mean()
    wanted = cml.fit(images[:40], places[:40], **{**SMALL, "steps": 20}, quiet=True).embed(images[40:])
    np.testing.assert_array_equal(steps[:-1].transform(images[40:]), wanted)


def test_rows_of_numbers_are_grey_images() -> None:
    digits, labels = load_digits(return_X_y=True)
    digits, labels = digits[:120], labels[:120]
    embedder = cml.sklearn.CMLEmbedder(**SMALL, image_shape=(8, 8)).fit(digits[:60], labels[:60])
    pictures = np.repeat((255 * digits / 16).round().astype(np.uint8).reshape(-1, 8, 8, 1), 3, axis=3)
    wanted = cml.fit(pictures[:60], labels[:60], **SMALL, quiet=True).embed(pictures[60:])
    np.testing.assert_array_equal(embedder.transform(digits[60:]), wanted)
    np.testing.assert_array_equal(embedder.transform(digits[60:] * 1000), embedder.transform(16 * (digits[60:] > 0)))
    with pytest.raises(UserError, match=r"'image_shape' \(8, 9\) does not fit rows of 64 numbers"):
        clone(embedder).set_params(image_shape=(8, 9)).fit(digits, labels)
    with pytest.raises(UserError, match="was fitted on rows of numbers: give rows, not images"):
        cml.sklearn.CMLEmbedder(**VECTORS).fit(digits, labels).transform(pictures)
    with pytest.raises(UserError, match="was fitted on images"):
        cml.sklearn.CMLEmbedder(**SMALL).fit(pictures, labels).transform(digits)


@pytest.mark.filterwarnings("ignore:The least populated class")
def test_a_grid_search_over_any_option() -> None:
    digits, labels = load_digits(n_class=3, return_X_y=True)
    embedder = cml.sklearn.CMLEmbedder(**{**SMALL, "label_distance": "classes", "steps": 4}, image_shape=(8, 8))
    steps = make_pipeline(embedder, KNeighborsClassifier())
    grid = {"cmlembedder__dimension": [2, 8], "cmlembedder__loss": ["cosent", "proxy-anchor"]}
    found = GridSearchCV(steps, grid, cv=2, error_score="raise").fit(digits[:120], labels[:120])
    assert len(found.cv_results_["params"]) == 4
    assert found.best_score_ > 0.6
    assert found.predict(digits[:3]).shape == (3,)
    best = found.best_estimator_[0]
    assert best.transform(digits[:3]).shape == (3, found.best_params_["cmlembedder__dimension"])


def test_names_and_frames_of_what_comes_out() -> None:
    images, places = bars(20)
    embedder = cml.sklearn.CMLEmbedder(**SMALL)
    with pytest.raises(NotFittedError):
        embedder.transform(images)
    found = embedder.fit_transform(images, places)
    assert found.dtype == np.float32
    assert embedder.get_feature_names_out().tolist() == [f"cmlembedder{number}" for number in range(4)]
    frame = embedder.set_output(transform="pandas").transform(images)
    assert frame.columns.tolist() == embedder.get_feature_names_out().tolist()
    np.testing.assert_array_equal(frame.to_numpy(), found)
    again = pickle.loads(pickle.dumps(embedder)).set_output(transform="default")
    np.testing.assert_array_equal(again.transform(images), found)


def test_its_parameters_are_the_options_of_training() -> None:
    parameters = cml.sklearn.CMLEmbedder().get_params()
    assert parameters.pop("image_shape") is None
    assert parameters.pop("quiet") is True
    assert parameters.pop("random_state") is None
    assert parameters.pop("augment") is None
    assert cml.TrainConfig(**parameters) == cml.TrainConfig()
    with pytest.raises(TypeError, match="no parameter 'dimensions'"):
        cml.sklearn.CMLEmbedder(dimensions=3)
    with pytest.raises(UserError, match="'steps' must be 1 or more"):
        cml.sklearn.CMLEmbedder(**{**SMALL, "steps": 0}).fit(*bars(20))


@pytest.mark.slow
def test_rows_are_vectors_and_help_a_regressor_on_diabetes() -> None:
    rows, targets = load_diabetes(return_X_y=True)
    options: dict[str, Any] = {"steps": 300, "sampler": "random(batch_size=64)"}
    embedder = cml.sklearn.CMLEmbedder(**options, random_state=3)
    steps = make_pipeline(embedder, KNeighborsRegressor(20))
    folds = KFold(5, shuffle=True, random_state=0)
    with_embedding = cross_val_score(steps, rows, targets, cv=folds).mean()
    standardised = make_pipeline(StandardScaler(), KNeighborsRegressor(20))
    assert with_embedding > cross_val_score(standardised, rows, targets, cv=folds).mean()
    fitted = clone(embedder).fit(rows, targets)
    wanted = cml.fit(rows, targets, **options, seed=3, quiet=True)
    np.testing.assert_array_equal(fitted.transform(rows), wanted.embed(rows))
    assert fitted.score(rows, targets) == wanted.evaluate(rows, targets).rows["embedding"]["spearman_rho"].mean


def test_a_grid_search_by_its_own_score() -> None:
    rows, targets = load_diabetes(return_X_y=True)
    embedder = cml.sklearn.CMLEmbedder(**{**VECTORS, "steps": 5}, random_state=np.random.RandomState(1))
    search = GridSearchCV(embedder, {"learning_rate": [1e-12, 3e-2]}, cv=3, error_score="raise").fit(rows, targets)
    assert -1 < search.best_score_ < 1
    digits, names = load_digits(n_class=3, return_X_y=True)
    classes = cml.sklearn.CMLEmbedder(label_distance="classes", loss="proxy-anchor", steps=5).fit(digits, names)
    assert 0.3 < classes.score(digits, names) <= 1


def test_losses_backbones_and_label_distances_may_be_objects() -> None:
    rows, targets = load_diabetes(return_X_y=True)
    embedder = cml.sklearn.CMLEmbedder(
        dimension=4,
        steps=3,
        sampler="random(batch_size=16)",
        loss=cml.losses.get("cosent"),
        label_distance=cml.distances.get("euclidean"),
        backbone=torch.nn.Linear(10, 6),
        weights="none",
    )
    assert clone(embedder).fit(rows, targets).transform(rows).shape == (442, 4)
