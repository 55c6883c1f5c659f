from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_neighbors
from cml.distances.jobs.stored_lists import folder_of, note, stored_neighbors
from cml.distances.jobs.work import NeighborsWork
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors, Search
from cml.errors import UserError

QUIET = JobOptions(bar_after=None)
COUNT = 97


def sample() -> tuple[Euclidean, Labels]:
    distance = Euclidean()
    return distance, distance.encode(np.random.default_rng(5).integers(0, 40, COUNT).tolist())


@dataclass(frozen=True)
class Unsearchable(Euclidean):
    """Euclidean whose neighbours can only be read."""

    name = "euclidean"

    def fingerprint(self) -> str:
        return Euclidean(self.squared).fingerprint()

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 1) -> Search:
        raise AssertionError("lists were computed again")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(a: Neighbors, b: Neighbors) -> bool:
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.distances, b.distances)


def test_lists_are_stored_and_found_again_and_cut(cache: Path, tmp_path: Path) -> None:
    distance, labels = sample()
    assert Unsearchable().fingerprint() == distance.fingerprint()
    assert same(stored_neighbors(distance, labels, 7), distance.neighbors(labels, 7))
    for k in (7, 3, 1):
        assert same(stored_neighbors(Unsearchable(), labels, k), distance.neighbors(labels, k))
    with pytest.raises(AssertionError, match="computed again"):
        stored_neighbors(Unsearchable(), labels, 8)
    with pytest.raises(AssertionError, match="computed again"):
        stored_neighbors(Unsearchable(), distance.encode(list(range(COUNT))), 3)
    with pytest.raises(AssertionError, match="computed again"):
        stored_neighbors(Unsearchable(squared=True), labels, 3)
    with pytest.raises(UserError, match=f"Got k={COUNT}"):
        stored_neighbors(distance, labels, COUNT)


def test_lists_written_elsewhere_are_found_until_they_are_gone(cache: Path, tmp_path: Path) -> None:
    distance, labels = sample()
    work = NeighborsWork(distance, labels, 9)
    write_neighbors(distance, labels, tmp_path / "mine", 9, options=QUIET)
    note(tmp_path / "mine", work)
    assert same(stored_neighbors(Unsearchable(), labels, 5), distance.neighbors(labels, 5))
    (tmp_path / "mine").rename(tmp_path / "moved")
    assert same(stored_neighbors(distance, labels, 5), distance.neighbors(labels, 5))
    assert folder_of(NeighborsWork(distance, labels, 5)).is_dir()


@pytest.mark.parametrize("damage", ["record", "array", "cut short"])
def test_damaged_stored_lists_are_not_used(damage: str, cache: Path, tmp_path: Path) -> None:
    distance, labels = sample()
    expected = stored_neighbors(distance, labels, 5)
    folder = folder_of(NeighborsWork(distance, labels, 5))
    if damage == "record":
        (folder / "job.json").write_text("{")
    elif damage == "array":
        (folder / "ids.npy").write_text("no array")
    else:
        (folder / "ids.npy").write_bytes((folder / "ids.npy").read_bytes()[:-8])
    assert same(stored_neighbors(distance, labels, 5), expected)


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "file"))
    distance, labels = sample()
    assert same(stored_neighbors(distance, labels, 5), distance.neighbors(labels, 5))
    note(tmp_path / "somewhere", NeighborsWork(distance, labels, 5))


def test_training_uses_and_stores_lists(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cml import sampling
    from cml.training.training_targets import TrainingTargets

    distance, labels = sample()
    sampler = sampling.registry.make("dense(batch_size=20, nearest=5)")
    expected = sampler.sampler_state(TrainingTargets(distance, labels))
    np.testing.assert_array_equal(expected, distance.neighbors(labels, 5).ids)
    np.testing.assert_array_equal(sampler.sampler_state(TrainingTargets(Unsearchable(), labels)), expected)


def test_own_code_is_part_of_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    source = """
from dataclasses import dataclass
from cml.distances.euclidean import Euclidean
@dataclass(frozen=True)
class Own(Euclidean):
    name = "own"
    def pairwise(self, a, b):
        return 2 * super().pairwise(a, b)
"""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "own_module.py").write_text(source)
    module = importlib.import_module("own_module")
    first = module.Own().fingerprint()
    assert module.Own().fingerprint() == first
    (tmp_path / "own_module.py").write_text(source.replace("2 *", "30 *"))
    importlib.invalidate_caches()
    assert importlib.reload(module).Own().fingerprint() != first
