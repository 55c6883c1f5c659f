"""The start of a head: principal components are kept as they are, and the head ends as a linear map of the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import cml
from cml.array_types import Float32
from cml.cli import main
from cml.errors import UserError
from cml.models.heads import RotatedHead

SHORT: dict[str, Any] = {"sampler": "random(batch_size=20)", "quiet": True, "dimension": 4}


def rows_and_labels(count: int = 60) -> tuple[Float32, list[float]]:
    rows = np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32) @ np.diag([1, 2, 3, 4, 5, 6])
    return rows.astype(np.float32), rows[:, 0].tolist()


def test_composed_head_equals_the_rotated_one() -> None:
    generator = torch.Generator().manual_seed(0)
    center, axes, weight, rows = (torch.randn(*shape, generator=generator) for shape in ((5,), (5, 3), (2, 3), (7, 5)))
    head = RotatedHead(center, axes, weight)
    with torch.no_grad():
        head.bias.fill_(0.5)
        torch.testing.assert_close(head.compose()(rows), head(rows))


def test_pca_keeps_the_distances_between_the_first_components() -> None:
    rows, labels = rows_and_labels()
    model = cml.fit(rows, labels, head_start="pca", steps=1, learning_rate=1e-9, **SHORT)
    assert type(model.network.head) is torch.nn.Linear
    wanted = PCA(4).fit_transform((rows - rows.mean(axis=0)) / rows.std(axis=0))
    with torch.inference_mode():
        found = model.network.head(
            torch.from_numpy(model.network.standardize(rows))
        ).numpy()  # before they are L2-normalised
    ratio = np.linalg.norm(found[:1] - found[1:], axis=1) / np.linalg.norm(wanted[:1] - wanted[1:], axis=1)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


def test_starts_differ_and_train(tmp_path: Path) -> None:
    rows, labels = rows_and_labels()
    found = {
        start: cml.fit(rows, labels, head_start=start, steps=5, **SHORT).embed(rows)
        for start in ("random", "pca", "standardised")
    }
    assert not np.allclose(found["random"], found["standardised"], atol=1e-3)
    assert not np.allclose(found["pca"], found["standardised"], atol=1e-3)
    model = cml.fit(rows, labels, head_start="standardised", steps=5, out=tmp_path / "run", **SHORT)
    np.testing.assert_array_equal(cml.load(tmp_path / "run").embed(rows), model.embed(rows))


def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    rows, labels = rows_and_labels()
    options: dict[str, Any] = {"head_start": "standardised", "steps": 6, "checkpoint_every": 2, **SHORT}
    whole = cml.fit(rows, labels, out=tmp_path / "whole", **options)

    def interrupt(state: Any) -> None:  # noqa: ANN401 - of the trainer
        if state.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cml.fit(rows, labels, out=tmp_path / "cut", callbacks=[cml.Callback(on_step=interrupt)], **options)
    resumed = cml.fit(rows, labels, out=tmp_path / "cut", resume=True, **options)
    np.testing.assert_array_equal(resumed.embed(rows), whole.embed(rows))


def classes(count: int) -> list[str]:
    """Names of 60 items of some classes, of which every one has as many items."""
    return [f"class {item % count}" for item in range(60)]


@pytest.mark.parametrize("loss", ["log-ratio", "cosent", "proxy-anchor"])
def test_a_head_starts_from_principal_components_where_label_distances_hardly_spread(
    loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = rows_and_labels()
    options: dict[str, Any] = {**SHORT, "label_distance": "classes", "loss": loss, "steps": 2, "quiet": False}
    found = {start: cml.fit(rows, classes(10), head_start=start, **options).embed(rows) for start in ("pca", "random")}
    capsys.readouterr()
    chosen = cml.fit(rows, classes(10), **options).embed(rows)
    assert "The head starts from the principal components of its features" in capsys.readouterr().err
    np.testing.assert_array_equal(chosen, found["pca"])
    assert not np.allclose(chosen, found["random"], atol=1e-3)


def test_the_exponent_at_its_bound_decides() -> None:
    """1 / standard deviation of the log label distances, with zeros at half of the floor, against 4."""
    rows, _ = rows_and_labels()
    for count, exponent in ((2, 2.9), (5, 3.7), (10, 5.2)):
        labels = classes(count)
        equal = np.array([a == b for item, a in enumerate(labels) for b in labels[:item]])
        assert 1 / np.where(equal, np.log(0.5), 0).std() == pytest.approx(exponent, abs=0.15)
        options: dict[str, Any] = {**SHORT, "label_distance": "classes", "steps": 2}
        found = {start: cml.fit(rows, labels, head_start=start, **options).embed(rows) for start in ("auto", "random")}
        assert np.array_equal(found["auto"], found["random"]) == (exponent < 4)


@pytest.mark.parametrize(
    "options", [{"backbone": "mlp(8)"}, {"loss": "regression", "label_distance": "euclidean"}], ids=["mlp", "zero"]
)
def test_other_heads_start_as_before(options: dict[str, Any]) -> None:
    rows, labels = rows_and_labels()
    labels = labels if "loss" in options else classes(10)  # type: ignore[assignment]
    common: dict[str, Any] = {**SHORT, "label_distance": "classes", "steps": 2, **options}
    if "loss" in options:
        common["dimension"] = 1
    found = [cml.fit(rows, labels, head_start=start, **common).embed(rows) for start in ("auto", "random")]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backbone": "mlp(8)"}, "head_start=standardised begins at the principal components"),
        ({"keep_models": True}, "leave out 'keep_models' or head_start=standardised"),
        ({"loss": "regression"}, "The loss 'regression' starts at 0: leave out head_start=standardised"),
        ({"tune": True, "sampler": "random"}, "leave out 'head_start'"),
        ({"head_start": "zero"}, "'head_start'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_one_line(options: dict[str, Any], said: str) -> None:
    rows, labels = rows_and_labels()
    with pytest.raises(UserError, match=said) as error:
        cml.fit(rows, labels, **{**SHORT, "head_start": "standardised", **options})
    assert "\n" not in str(error.value)


def test_train_command_starts_a_frozen_head(tmp_path: Path) -> None:
    main(["prepare", "people", "--out", str(tmp_path / "data"), "--count", "40", "--size", "32"])
    network = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--freeze-backbone"]
    short = ["--steps", "3", "--sampler", "random(batch_size=16)", "--head-start", "standardised"]
    out = tmp_path / "run"
    assert main(["train", "pose", "--data", str(tmp_path / "data"), "--out", str(out), *network, *short]) == 0
    assert cml.open_run(out).config.train.head_start == "standardised"
