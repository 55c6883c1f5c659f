"""The history of a run in hand: steps, losses and validations, also of a model that was saved and loaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.errors import DataError
from cml.training.history import History

ROWS = np.random.default_rng(0).normal(size=(80, 4))
TINY: dict[str, Any] = {"sampler": "random(batch_size=20)", "steps": 12, "dimension": 4, "quiet": True}


def test_it_has_the_losses_and_validations_of_the_run() -> None:
    seen: dict[str, list[Any]] = {"losses": [], "validation": []}
    watch = cml.Callback(
        on_step=lambda state: seen["losses"].append(state.loss),
        on_validate=lambda state: seen["validation"].append(state.validation),
    )
    history = cml.fit(ROWS, ROWS[:, 0], evaluate_every=5, callbacks=[watch], **TINY).history
    assert history.to_dict() == {
        "steps": list(range(1, 13)),
        "losses": seen["losses"],
        "validation_steps": [5, 10],
        "validation": seen["validation"],
    }
    json.dumps(history.to_dict(), allow_nan=False)
    frame = history.to_pandas()
    assert frame.columns.tolist() == ["step", "loss", "validation"]
    assert frame.step.tolist() == history.steps.tolist()
    assert frame.loss.tolist() == history.losses.tolist()
    assert frame.validation.dropna().to_dict() == dict(zip([4, 9], history.validation.tolist(), strict=True))
    best = history.validation.min()
    assert repr(history).startswith("History(12 steps, loss ")
    assert f"best validation {best:.4g} after step {5 * (1 + int(history.validation.argmin()))}" in repr(history)


@pytest.mark.parametrize("door", ["save", "out", "pickle"])
def test_it_is_kept_with_the_model(door: str, tmp_path: Path) -> None:
    out = {"out": tmp_path / "model"} if door == "out" else {}
    model = cml.fit(ROWS, ROWS[:, 0], evaluate_every=4, **TINY, **out)
    if door == "save":
        model.save(tmp_path / "model")
    again = pickle.loads(pickle.dumps(model)) if door == "pickle" else cml.load(tmp_path / "model")
    assert len(again.history) == 12
    assert again.history.to_dict() == model.history.to_dict()
    twice = cml.load(again.save(tmp_path / "twice"))
    assert pickle.loads(pickle.dumps(twice)).history.to_dict() == model.history.to_dict()


def test_it_is_empty_without_steps_and_told_where_it_is_damaged(tmp_path: Path) -> None:
    empty = History.of([])
    assert empty.to_pandas().columns.tolist() == ["step", "loss", "validation"]
    assert repr(empty) == "History(no steps)"
    model = cml.fit(ROWS, ROWS[:, 0], **TINY)
    folder = model.save(tmp_path / "model")
    (folder / "metrics.jsonl").unlink()
    assert len(cml.load(folder).history) == 0
    (folder / "metrics.jsonl").write_text("no record\n")
    loaded = cml.load(folder)  # weights do not depend on it
    assert np.array_equal(loaded.embed(ROWS), model.embed(ROWS))
    with pytest.raises(DataError, match="is not a metrics record"):
        loaded.history  # noqa: B018
