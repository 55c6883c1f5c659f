"""Half-done work that was damaged meanwhile: what is sound is kept, the rest is done again, and nothing is believed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import run_job
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work
from cml.training import pair_map

ROWS = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)
LABELS = Euclidean().encode(ROWS.tolist())


class Stop(cml.UserError):
    pass


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def damage(path: Path, how: str, rng: random.Random) -> None:
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "flip" and content:
        at = rng.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
    else:
        path.write_bytes(content[: len(content) // 2] if how == "cut" else b"")


@pytest.mark.parametrize("kind", [MatrixWork, NeighborsWork])
def test_a_job_that_was_interrupted_and_damaged_has_the_right_distances(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: Work = kind(Euclidean(), LABELS)
    options = JobOptions(threads=1, strip_pairs=800, bar_after=None)
    expected = dict(work.compute(Strip(0, 90)))
    compute = kind.compute

    def stop(self: Work, strip: Strip) -> Any:  # noqa: ANN401
        if strip.start > 45:
            raise Stop("stop")
        return compute(self, strip)

    monkeypatch.setattr(kind, "compute", stop)
    with pytest.raises(Stop):
        run_job(work, tmp_path / "half", options)
    monkeypatch.setattr(kind, "compute", compute)
    rng, names = random.Random(0), files_of(tmp_path / "half")
    assert len(names) >= 2
    for number, (name, how) in enumerate((n, h) for n in names for h in ("flip",) * 4 + ("cut", "empty", "gone")):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "half", folder)
        damage(folder / name, how, rng)
        run_job(work, folder, options)
        for file, array in expected.items():
            np.testing.assert_array_equal(np.load(folder / file), array, err_msg=f"{name} {how}")


@pytest.mark.slow
def test_an_approximation_that_was_interrupted_and_damaged_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FEWEST_STEPS", "_ENOUGH_STEPS", "_MOST_STEPS"):  # of a map, in each of more than thirty calls
        monkeypatch.setattr(pair_map, name, 8)
    calls = 0

    def apart(a: Any, b: Any) -> float:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls == stop:
            raise RuntimeError("stop")
        return float(np.abs(a - b).sum())

    def approximate(out: Path) -> Any:  # noqa: ANN401
        distance = cml.distances.as_label_distance(apart, version="1")
        return cml.distances.approximate(distance, list(ROWS), ROWS, "25%", k=4, out=out, quiet=True)

    stop = 700
    with pytest.raises(cml.UserError, match="keeps the answers so far: the same call continues"):
        approximate(tmp_path / "half")
    stop, rng, names = 0, random.Random(0), files_of(tmp_path / "half")
    assert {path.suffix for path in names} >= {".npz", ".npy", ".json", ".jsonl"}
    for number, (name, how) in enumerate((n, h) for n in names for h in ("flip", "cut", "gone")):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "half", folder)
        damage(folder / name, how, rng)
        lists = approximate(folder).neighbors
        truth = np.abs(ROWS[:, None] - ROWS[lists.ids]).sum(axis=-1)
        np.testing.assert_allclose(
            np.where(lists.ids >= 0, truth, 0), np.where(lists.ids >= 0, lists.distances, 0), 1e-5
        )
        shutil.rmtree(folder)
