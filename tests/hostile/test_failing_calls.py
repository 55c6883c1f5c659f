"""The n-th allocation, read or write fails, n = 1, 2, ..: the call says so, and the process then does it as before.

A profile function raises inside the chosen calls into C, so that no part of cml is replaced. Not for: killed processes
(faults.py), full disks (full_disks.py), the service of the tutorial (test_service.py).
"""

from __future__ import annotations

import errno
import itertools
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from reread_files import FORMATS

import cml
from cml.checks.audit_list import read_scores
from cml.data.prepared import PreparedDataset
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_neighbors
from cml.errors import MachineError, UserError
from cml.storage.atomic import write_csv

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
ALLOCATIONS = {"empty", "zeros", "concatenate", "array", "copy"}
INPUT_OUTPUT = {"open", "read", "readinto", "write", "pwrite", "preadv", "fsync", "replace", "mkdir", "execute", "stat"}
EXPECTED = (UserError, MachineError, MemoryError, OSError)


class Failing:
    """Lets the n-th call of some names fail in this thread."""

    def __init__(self, names: set[str], error: BaseException, number: int) -> None:
        self._names, self._error, self._left, self.fired = names, error, number, False

    def __enter__(self) -> Failing:
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _watch(self, frame: FrameType, event: str, call: Any) -> None:  # noqa: ANN401
        if event != "c_call" or call.__name__ not in self._names or not _is_of_cml(frame):
            return
        self._left -= 1
        if self._left == 0:
            self.fired = True
            raise self._error


def _is_of_cml(frame: FrameType | None) -> bool:
    """Whether a call comes from cml, through few other frames, and not from an import."""
    for _ in range(4):
        if frame is None or "importlib" in frame.f_code.co_filename:
            return False
        if "/cml/" in frame.f_code.co_filename or "/data_prep/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _search(folder: Path) -> object:
    index = cml.Index.open(folder / "index")
    return repr(index.search(ROWS[:3], k=4))


def _add(folder: Path) -> object:
    index = cml.Index.open(folder / "index")
    if "new" not in index:
        index.add(ROWS[:1] + 1, ids=["new"])
    return len(index), repr(index.search(ROWS[:1] + 1, k=1))


def _embeddings(folder: Path) -> object:
    return repr(cml.EmbeddingFolder.open(folder / "embedded").search(np.eye(5, dtype=np.float32), 4))


def _distances(folder: Path) -> object:
    labels = Euclidean().encode(ROWS.tolist())
    job = write_neighbors(Euclidean(), labels, folder / "job", 3, options=JobOptions(threads=1, bar_after=None))
    return [np.load(job.path / name).tolist() for name in ("ids.npy", "distances.npy")]


def _prepare(folder: Path) -> object:
    if not (folder / "data").exists():
        options: dict[str, Any] = {"features": ("a", "b"), "label_columns": ("y",)}
        cml.prepare("table", folder / "data", source=folder / "rows.csv", **options)
    return [PreparedDataset.open(folder / "data").split(role).item_ids for role in ("train", "query")]


def _fit(folder: Path) -> object:
    model = cml.fit(ROWS, ROWS[:, 0], steps=2, dimension=3, sampler="random(batch_size=20)", workers=0, quiet=True)
    return model.embed(ROWS).tolist()


def _evaluate(folder: Path) -> object:
    from cml.retrieval.embeddings import evaluate_embeddings

    result = evaluate_embeddings(ROWS[:10], ROWS[:10, 0], ROWS[10:], ROWS[10:, 0], label_distance="euclidean")
    return str(result)


def _load(folder: Path) -> object:
    return cml.load(folder / "model", device="cpu").embed(ROWS).tolist()


def _audit(folder: Path) -> object:
    return read_scores(folder / "audit/audit.csv")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "sound"
    folder.mkdir()
    cml.Index.create(folder / "index", dimension=4, digest="m").add(ROWS, ids=range(40))
    FORMATS["embeddings"].make(folder / "embedded")
    write_csv(folder / "rows.csv", ["a", "b", "y"], [[f"{value}" for value in row[:3].tolist()] for row in ROWS])
    FORMATS["audit"].make(folder / "audit")
    model = cml.fit(ROWS, ROWS[:, 0], steps=1, dimension=3, sampler="random(batch_size=20)", workers=0, quiet=True)
    model.save(folder / "model")
    return folder


def count_failures(
    act: Callable[[Path], object], sound: Path, place: Path, names: set[str], error: type, step: int = 1
) -> int:
    """Let each ``step``-th call fail once, until none does; the number of calls. The same call then has to succeed."""
    shutil.copytree(sound, place / "expected")
    expected = act(place / "expected")
    for number in itertools.count(1, step):
        folder = place / str(number)
        shutil.copytree(sound, folder)
        failure = error(errno.ENOSPC, "No space left on device") if error is OSError else error("full")
        outcome: object = None
        with warnings.catch_warnings(action="ignore"), Failing(names, failure, number) as failing:
            try:
                outcome = act(folder)
            except EXPECTED as said:
                outcome = said
        if isinstance(outcome, Exception):
            assert failing.fired, outcome
            assert "\n" not in str(outcome)
        else:
            assert outcome == expected, f"another result in silence, call {number}"
        assert act(folder) == expected, f"not as before, call {number}"
        shutil.rmtree(folder)
        if not failing.fired:
            return number
    raise AssertionError


STEPS = {_prepare: 3, _evaluate: 7}  # of acts with many calls
ACTS = {_search: 3, _add: 3, _embeddings: 3, _distances: 10, _prepare: 10, _load: 3, _audit: 1, _fit: 1, _evaluate: 1}


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize(("names", "error"), [(INPUT_OUTPUT, OSError), (ALLOCATIONS, MemoryError)])
def test_the_process_lives_on(
    act: Callable[[Path], object], names: set[str], error: type, sound: Path, tmp_path: Path
) -> None:
    failures = count_failures(act, sound, tmp_path, names, error, STEPS.get(act, 1))
    assert failures >= (ACTS[act] if error is OSError and act not in (_fit, _evaluate) else 1)


def test_the_index_lives_on(sound: Path, tmp_path: Path) -> None:
    assert count_failures(_search, sound, tmp_path, INPUT_OUTPUT, OSError) >= 3
