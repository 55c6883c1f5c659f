"""What misled: causes that were named wrongly, and data that was believed in silence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reread_files import sign_again

import cml
from cml.comparing.bench.check import ROUNDING, TOLERANCE, _common_direction
from cml.data import open_image
from cml.errors import DataError, UserError
from cml.feature_store.store import FeatureStore
from cml.storage.work_folder import exclusive_lock

ROWS = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
OPTIONS: dict[str, Any] = {"dimension": 3, "workers": 0, "sampler": "random(batch_size=20)", "quiet": True}


def _same(rows: Any) -> Any:  # noqa: ANN401
    return np.asarray(rows, np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_features_without_distances_are_named_not_the_learning_rate(value: float, tmp_path: Path) -> None:
    cml.features(ROWS, backbone=_same, out=tmp_path / "store", quiet=True)
    path = tmp_path / "store/features-00000.npy"
    rows = np.load(path)
    rows[7, 2] = value
    np.save(path, rows)
    sign_again(tmp_path / "store")
    with pytest.raises(DataError, match=r"features-00000\.npy has .* at row 7, column 2\. Features must be finite"):
        FeatureStore.open(tmp_path / "store").select()


def test_embeddings_that_are_nan_at_the_first_step_blame_what_goes_in() -> None:
    from cml.training.metrics_log import _check_finite

    with pytest.raises(FloatingPointError, match="at step 1: the inputs hold NaN"):
        _check_finite(1, [[0.5, 0.0]])
    with pytest.raises(FloatingPointError, match="at step 2: lower the learning_rate"):
        _check_finite(1, [[0.5, 1.0], [0.5, 0.0]])


def test_memory_that_is_full_is_no_fault_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors

    cml.fit(ROWS, ROWS[:, 0], steps=1, **OPTIONS).save(tmp_path / "model")

    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:115] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(safetensors, "safe_open", full)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        cml.load(tmp_path / "model", device="cpu")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("read", [open_image.read_upright, open_image.read_deep_tiff])
def test_what_the_machine_lacks_is_no_fault_of_an_image(
    read: Callable[[Path], object], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tifffile")

    def lacks(*_: object) -> None:
        raise OSError(number, "the machine has no more")

    monkeypatch.setattr(open_image, "open_regular", lacks)
    with pytest.raises(OSError, match="the machine has no more"):  # no image that --skip-bad would leave out
        read(tmp_path / "a.tif")


@pytest.mark.parametrize("content", [b"", b"x" * 99, "numbers", "a bit"])
def test_training_items_that_are_damaged_are_not_taken_for_none(content: bytes | str, tmp_path: Path) -> None:
    model = cml.load(cml.fit(ROWS, ROWS[:, 0], steps=1, **OPTIONS).save(tmp_path / "model"), device="cpu")
    path = tmp_path / "model/training_items.npy"
    sound = path.read_bytes()
    if content == "numbers":
        np.save(path, ROWS)
    else:
        path.write_bytes(content if isinstance(content, bytes) else sound[:-20] + bytes([sound[-20] ^ 1]) + sound[-19:])
    with pytest.raises(DataError, match=r"training_items\.npy (is damaged|holds float32)"):
        model.find_training_items(ROWS)
    path.unlink()
    assert not cml.load(tmp_path / "model", device="cpu").find_training_items(ROWS).any()


def test_a_lock_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with (
        pytest.raises(UserError, match="is no regular file, so that it cannot lock the work"),
        exclusive_lock(tmp_path / ".lock", "the work"),
    ):
        pass


@pytest.mark.parametrize("size", [[1], [0] * 3])
def test_an_image_size_of_a_store_has_two_numbers(size: list[int], tmp_path: Path) -> None:
    import json

    cml.features(ROWS, backbone=_same, out=tmp_path / "store", quiet=True)
    path = tmp_path / "store/manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"made_by": manifest["made_by"] | {"image_size": size}}))
    with pytest.raises(DataError, match="image_size, items or features of no store"):
        FeatureStore.open(tmp_path / "store")


def test_an_item_nested_deep_is_one_line(tmp_path: Path) -> None:
    cml.features(ROWS, backbone=_same, out=tmp_path / "store", quiet=True)
    (tmp_path / "store/items.jsonl").write_text('{"item_id": ' + "[" * 100_000 + "\n")
    sign_again(tmp_path / "store")
    with pytest.raises(DataError, match=r"items\.jsonl:1 is not an item"):
        _ = FeatureStore.open(tmp_path / "store").items


def test_scores_that_are_changed_in_one_direction_are_no_rounding() -> None:
    again = [0.51, 0.53, 0.52]
    for shift in (0.5 * TOLERANCE, -0.5 * TOLERANCE):
        (said,) = _common_direction("score", again, [score + shift for score in again])
        assert said.startswith(f"score of all 3 runs differs in one direction, by {shift:+.6f}")
    assert list(_common_direction("score", again, [0.5104, 0.5296, 0.5204])) == []
    assert list(_common_direction("score", again, [score + 0.5 * ROUNDING for score in again])) == []


def test_an_entry_that_no_result_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.comparing.bench import result

    known = dict.fromkeys(result.Result.__dataclass_fields__)
    monkeypatch.setattr(result, "read_json", lambda *_: {**known, "score": 1})
    monkeypatch.setattr(result, "check_format", lambda *_: None)
    monkeypatch.setattr(result, "record", lambda *_: SimpleNamespace())
    with pytest.raises(DataError, match=r"has the entry 'score', which no result has\. Did you mean 'scores'"):
        result.read_result(tmp_path / "a.json")
