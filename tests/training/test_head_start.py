"""The start of a head: principal components are kept as they are, and the head ends as a linear map of the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

import cml
from cml.cli import main
from cml.errors import UserError
from cml.models.rotated_head import RotatedHead

SHORT: dict[str, Any] = {"sampler": "random(batch_size=20)", "quiet": True, "dimension": 4}


def rows_and_labels(count: int = 60) -> tuple[NDArray[np.float32], list[float]]:
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
    assert type(model.head) is torch.nn.Linear
    wanted = PCA(4).fit_transform((rows - rows.mean(axis=0)) / rows.std(axis=0))
    with torch.inference_mode():
        found = model.head(torch.from_numpy(model.standardize(rows))).numpy()  # before they are L2-normalised
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
