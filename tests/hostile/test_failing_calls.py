"""A call that fails is told, and the process then does as before: each n-th call in turn (failing_calls.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import ACTS, KINDS, find_faults, find_faults_of_service, make_sound

EVERY = {"index": 7, "prepare": 7, "evaluate": 9}  # of acts with many calls
FEWEST = {
    "search": 3,
    "add": 3,
    "index": 10,
    "embeddings": 3,
    "distances": 10,
    "prepare": 2,
    "load": 3,
}  # calls that read or write


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "sound"
    make_sound(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ACTS)
def test_the_process_lives_on(name: str, kind: str, sound: Path, tmp_path: Path) -> None:
    outcomes = list(find_faults(name, kind, sound, tmp_path / "place", EVERY.get(name, 1)))
    assert [finding for _, finding in outcomes if finding] == []
    assert len(outcomes) >= (FEWEST.get(name, 0) if kind == "input and output" else 0)


def test_the_index_lives_on(sound: Path, tmp_path: Path) -> None:
    outcomes = list(find_faults("search", "input and output", sound, tmp_path / "place"))
    assert [finding for _, finding in outcomes if finding] == []
    assert len(outcomes) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_lives_on(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("fastapi_offline")
    outcomes = list(find_faults_of_service(kind, tmp_path / "place", 5))
    assert [finding for _, finding in outcomes if finding] == []
    assert len(outcomes) >= 2
