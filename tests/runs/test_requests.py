"""What users of neighbouring libraries ask for, as their scripts would try it first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss, ProxyAnchorLoss
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cml
from cml.errors import UserError
from cml.sklearn import CMLEmbedder

rng = np.random.default_rng(0)
PLACES = rng.uniform(4, 28, 80)
_BLOBS = np.exp(-((np.arange(32) - PLACES[:, None]) ** 2) / 6)[:, None, :, None]
IMAGES = (255 * _BLOBS * rng.uniform(0.3, 1, (80, 32, 1, 3))).astype(np.uint8)
AGES = rng.uniform(0, 80, 400)
_CURVE = np.stack([np.sin(AGES / 20), np.cos(AGES / 20), AGES / 80], 1)
FEATURES = (_CURVE @ rng.normal(size=(3, 64)) + 0.3 * rng.normal(size=(400, 64))).astype(np.float32)
SMALL: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (32, 32),
    "sampler": "random(batch_size=30)",
    "steps": 4,
    "workers": 0,
    "quiet": True,
}
HEAD: dict[str, Any] = {"sampler": "random(batch_size=60)", "steps": 20, "quiet": True}


class Rows(torch.utils.data.Dataset[Any]):
    """Features and ages, item by item."""

    def __len__(self) -> int:
        return len(FEATURES)

    def __getitem__(self, item: int) -> tuple[Any, float]:
        return torch.from_numpy(FEATURES[item]), float(AGES[item])


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: (torch.from_numpy(FEATURES), AGES),
        lambda: (list(FEATURES), AGES),
        lambda: (FEATURES, list(AGES)),
        lambda: (Rows(),),
    ],
    ids=["tensor", "list of rows", "list of labels", "Dataset"],
)
def test_features_train_a_head_in_every_form(arguments: Callable[[], tuple[Any, ...]]) -> None:
    expected = cml.fit(FEATURES, AGES, **HEAD).embed(FEATURES)
    assert np.allclose(cml.fit(*arguments(), **HEAD).embed(FEATURES), expected, atol=1e-6)


def test_features_with_a_backbone_for_images_are_no_pictures() -> None:
    for fit in (lambda: cml.fit(FEATURES, AGES, **SMALL), lambda: CMLEmbedder(**_estimator()).fit(FEATURES, AGES)):
        with pytest.raises(UserError, match="takes images, but the inputs are 64 numbers"):
            fit()


def _estimator() -> dict[str, Any]:
    return {name: value for name, value in SMALL.items() if name != "quiet"}


def test_rows_of_a_table_keep_small_columns_beside_a_large_one() -> None:
    table = np.c_[_CURVE, rng.normal(size=(400, 8)), rng.uniform(0, 1e6, 400)]
    order = rng.permutation(12)

    def error(rows: np.ndarray, *before: Any) -> float:  # noqa: ANN401 - transformers
        embedder = CMLEmbedder(sampler="random(batch_size=60)", steps=60, dimension=8)
        model = make_pipeline(*before, embedder, KNeighborsRegressor(5)).fit(rows[:300], AGES[:300])
        assert len(np.unique(model[:-1].transform(rows[300:]).round(4), axis=0)) == 100
        return float(mean_absolute_error(AGES[300:], model.predict(rows[300:])))

    of_table = error(table)
    assert of_table < np.abs(AGES[300:] - AGES[:300].mean()).mean() / 2
    assert error(table, StandardScaler()) == pytest.approx(of_table, rel=0.1)
    assert error(table[:, order]) == pytest.approx(of_table, rel=0.5)  # a picture would fall apart


def test_a_head_on_features_is_better_than_ridge() -> None:
    model = cml.fit(FEATURES[:300], AGES[:300], **{**HEAD, "steps": 100})
    ridge = Ridge().fit(FEATURES[:300], AGES[:300])
    error = mean_absolute_error(AGES[300:], model.predict(FEATURES[300:], k=5))
    assert error < mean_absolute_error(AGES[300:], ridge.predict(FEATURES[300:]))


def test_labels_of_two_kinds_are_trained_and_measured() -> None:
    labels = [{"age": float(place), "sex": "mf"[number % 2]} for number, place in enumerate(PLACES)]
    distance = 'combined(parts={"age":"euclidean","sex":"classes"})'
    model = cml.fit(IMAGES, labels, label_distance=distance, **SMALL)
    evaluation = model.evaluate(IMAGES[:40], labels[:40])
    assert evaluation.verdict
    assert len(evaluation.to_pandas()) == 3 * len(evaluation.rows["embedding"])
    assert json.loads(json.dumps(evaluation.to_json(), allow_nan=False))["rows"].keys() == evaluation.to_dict().keys()
    assert (
        evaluation.to_dict()["embedding"]["spearman_rho"]["mean"] == evaluation.rows["embedding"]["spearman_rho"].mean
    )


def test_losses_of_pytorch_metric_learning_are_taken_as_objects() -> None:
    classes = (PLACES > 16).astype(int)
    options = {**SMALL, "label_distance": "classes"}
    model = cml.fit(IMAGES, classes, loss=MultiSimilarityLoss(), **options)
    module = MultiSimilarityLoss()

    class ByHand(cml.losses.ClassLoss):
        normalize = True

        def value(self, embeddings: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
            return module(torch.nn.functional.normalize(embeddings), classes)

    by_hand = cml.fit(IMAGES, classes, loss=ByHand(), **options)
    assert model.config.normalize
    assert np.allclose(model.embed(IMAGES), by_hand.embed(IMAGES), atol=1e-3)
    proxies = ProxyAnchorLoss(num_classes=2, embedding_size=128)
    before = proxies.proxies.detach().clone()
    cml.fit(IMAGES, classes, loss=proxies, **options)
    assert not torch.equal(before, proxies.proxies)
    with pytest.raises(UserError, match="classes"):
        cml.fit(IMAGES, PLACES, loss=MultiSimilarityLoss(), **SMALL)


def test_a_module_as_head_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"There is no option 'head'\."):
        cml.fit(IMAGES, PLACES, head=torch.nn.Linear(4, 4), **SMALL)  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_script_that_is_interrupted_from_outside_has_the_model(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, signal, sys, threading\n"
        "import numpy as np, cml\n"
        "rows = np.random.default_rng(0).normal(size=(200, 8))\n"
        "class Press(cml.Callback):\n"
        "    def on_step(self, state):\n"
        "        if state.step == 3:\n"
        "            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "for out in (None, 'run'):\n"
        "    try:\n"
        "        cml.fit(rows, rows[:, 0], steps=10**6, out=out, callbacks=[Press()])\n"
        "    except KeyboardInterrupt as stop:\n"
        "        print(stop.model is cml.last(), len(cml.last().history) >= 3, cml.last().embed(rows).shape)\n"
        "try:\n"
        "    cml.load('run')\n"
        "except cml.UserError as error:\n"
        "    print('resume=True' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True True (200, 128)"] * 2 + ["True"]
