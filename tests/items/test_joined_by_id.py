"""Mappings of ids, as dicts and .npz files are, join inputs and what belongs to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.errors import UserError
from cml.items.names import list_by_id

IDS = [f"item {number}" for number in range(40)]
VECTORS = {name: np.random.default_rng(number).normal(size=3) for number, name in enumerate(IDS)}
LABELS = {name: float(number) for number, name in reversed(list(enumerate(IDS)))}
OPTIONS: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=20)", "quiet": True, "seed": 0}


def test_mappings_are_joined_by_id(tmp_path: Path) -> None:
    inputs, given, ids = list_by_id(VECTORS, {"labels": LABELS, "groups": None})
    assert ids == IDS
    assert inputs == pytest.approx(np.stack(list(VECTORS.values())))
    assert given == {"labels": list(map(float, range(40))), "groups": None}
    rows = np.stack(list(VECTORS.values()))
    plain = cml.fit(rows, list(given["labels"]), **OPTIONS).embed(rows)
    assert cml.fit(VECTORS, LABELS, **OPTIONS).embed(rows) == pytest.approx(plain, abs=1e-6)
    np.savez(tmp_path / "x.npz", **VECTORS)
    np.savez(tmp_path / "y.npz", **LABELS)
    with np.load(tmp_path / "x.npz") as x, np.load(tmp_path / "y.npz") as y:
        assert list_by_id(x, {"labels": y})[1]["labels"] == list(map(float, range(40)))


def test_what_cannot_be_joined_is_refused() -> None:
    few = dict(list(LABELS.items())[1:])
    with pytest.raises(UserError, match="'labels' has nothing for 1 of the 40 inputs, the first 'item 39'"):
        cml.fit(VECTORS, few, **OPTIONS)
    with pytest.raises(UserError, match="but 'labels' is none: give what belongs to each id"):
        cml.fit(VECTORS, list(LABELS.values()), **OPTIONS)
    with pytest.raises(UserError, match="but the inputs have no ids: give them as a mapping too"):
        cml.fit(list(VECTORS.values()), LABELS, **OPTIONS)
    with pytest.raises(UserError, match="Give one of its arrays"):
        list_by_id({"x": np.zeros((4, 3)), "y": np.zeros(4)}, {"labels": {"x": 1, "y": 2}})
