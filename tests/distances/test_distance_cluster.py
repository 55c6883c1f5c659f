from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from cluster_stand_in import Workers, two_workers

import cml.distances
from cml.distances.euclidean import Euclidean
from cml.distances.jobs import dask_executor
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_matrix, write_neighbors
from cml.errors import UserError
from cml.processes import dask_client as connection
from cml.storage.resumable_output import ResumableOutput

QUIET = JobOptions(bar_after=None)
# A label distance that the workers know by --preload. It is slow, and notes which process computed which rows.
OWN = """
import os, sys, time
from pathlib import Path
import cml.distances
from cml.distances.euclidean import Euclidean
from dataclasses import dataclass

@cml.distances.register("slow-euclidean")
@dataclass(frozen=True)
class Slow(Euclidean):
    log: str = ""
    name = "slow-euclidean"

    def pairwise(self, a, b):
        if "worker" in " ".join(sys.argv):
            with open(self.log, "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(0.15)
        return super().pairwise(a, b)
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "own_distances.py").write_text(OWN)
    with two_workers(folder, "own_distances") as started:
        yield started


@pytest.fixture(scope="module")
def slow(workers: Workers) -> type[Euclidean]:
    """The workers' own label distance, in this process too."""
    import importlib.util

    found = importlib.util.spec_from_file_location("own_distances", workers.folder / "own_distances.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["own_distances"] = module
    found.loader.exec_module(module)
    made: type[Euclidean] = module.Slow
    return made


def test_the_result_is_the_local_one(workers: Workers, tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", np.random.default_rng(0).normal(size=(8, 4)))
    (tmp_path / "words.txt").write_text("\n".join("abcdefgh"))
    rng = np.random.default_rng(5)
    texts = [[" ".join(rng.choice(list("abcdefgh"), n)) for n in rng.integers(1, 5, 1 + i % 3)] for i in range(90)]
    distance = cml.distances.get("captions", vectors=str(tmp_path / "words.npy"), stop_words="none")
    labels = distance.encode(texts)
    said: list[str] = []
    there = replace(QUIET, scheduler=workers.address, strip_pairs=300, say=said.append)
    matrix = write_matrix(distance, labels, tmp_path / "m", dtype="float16", options=there)
    lists = write_neighbors(distance, labels, tmp_path / "n", 7, options=there)
    here = write_matrix(distance, labels, tmp_path / "m here", dtype="float16", options=QUIET)
    assert matrix.path.read_bytes() == here.path.read_bytes()
    write_neighbors(distance, labels, tmp_path / "n here", 7, options=QUIET)
    for name in ("ids.npy", "distances.npy"):
        assert (lists.path / name).read_bytes() == (tmp_path / "n here" / name).read_bytes()
    assert "on 2 workers" in said[0]


def when_recorded(monkeypatch: pytest.MonkeyPatch, strips: int, act: Callable[[], object]) -> None:
    """Do something in the job's own process once it has recorded so many strips."""
    record, done = ResumableOutput.record, []

    def recorded(self: ResumableOutput, entry: Mapping[str, object]) -> None:
        record(self, entry)
        done.append(entry)
        if len(done) == 1 + strips:  # the first entry says how the rows are cut
            act()

    monkeypatch.setattr(ResumableOutput, "record", recorded)


def test_a_worker_killed_in_the_middle_costs_only_its_strips(
    workers: Workers, slow: type[Euclidean], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    distance = cml.distances.get("slow-euclidean", log=str(log))
    labels = distance.encode(list(range(100)))
    out = tmp_path / "m"
    killed: list[int] = []

    def kill_one() -> None:
        workers.workers[0].kill()
        killed.append(workers.workers[0].pid)

    when_recorded(monkeypatch, 3, kill_one)
    options = replace(QUIET, scheduler=workers.address, strip_pairs=300)
    result = write_matrix(distance, labels, out, options=options)
    expected = write_matrix(Euclidean(), labels, tmp_path / "here", options=QUIET)
    assert result.path.read_bytes() == expected.path.read_bytes()
    computed = log.read_text().splitlines()
    assert {str(process.pid) for process in workers.workers} == set(computed)
    assert killed == [workers.workers[0].pid]
    strips = 17
    lost = len(computed) - strips
    assert 0 <= lost <= 2 * connection.AHEAD  # what the dead worker had computed and not yet sent back
    workers.workers[0] = workers.start_worker()


@pytest.mark.slow
def test_a_job_without_workers_says_so_and_goes_on_when_one_comes(
    workers: Workers,
    slow: type[Euclidean],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(connection, "QUIET", 0.3)
    distance = cml.distances.get("slow-euclidean", log=str(tmp_path / "log"))
    labels = distance.encode(list(range(60)))
    out = tmp_path / "m"
    journal = out / ".job.partial-work" / "journal.jsonl"

    def kill_all(_: str) -> None:
        def when_a_strip_came_back() -> None:
            while not journal.exists() or len(journal.read_text().splitlines()) < 2 + 1:
                time.sleep(0.01)
            for process in workers.workers:
                process.kill()
                process.wait()
            time.sleep(2)
            workers.workers = [workers.start_worker() for _ in range(2)]

        threading.Thread(target=when_a_strip_came_back, daemon=True).start()

    options = replace(QUIET, scheduler=workers.address, strip_pairs=180, say=kill_all)
    result = write_matrix(distance, labels, out, options=options)
    expected = write_matrix(Euclidean(), labels, tmp_path / "here", options=QUIET)
    assert result.path.read_bytes() == expected.path.read_bytes()
    said = capsys.readouterr().err
    assert f"The scheduler at {workers.address} has no worker left; the job waits" in said
    assert f"'dask worker {workers.address}'" in said


@pytest.mark.slow
def test_errors_of_workers_and_addresses_are_one_sentence(
    workers: Workers, slow: type[Euclidean], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = replace(QUIET, scheduler=workers.address)

    @dataclass(frozen=True)
    class Nameless(Euclidean):
        name = "test-nameless"

    labels = Euclidean().encode(list(range(30)))
    with pytest.raises(UserError, match=r"by its name and settings, test-nameless\(squared=False\): Unknown label"):
        write_matrix(Nameless(), labels, tmp_path / "a", options=there)

    @cml.distances.register("test-only-here")
    @dataclass(frozen=True)
    class OnlyHere(Euclidean):
        name = "test-only-here"

    with pytest.raises(UserError, match="worker of the cluster cannot make the label distance: Unknown label"):
        write_matrix(OnlyHere(), labels, tmp_path / "b", options=there)

    np.save(tmp_path / "matrix.npy", np.zeros((30, 30), np.float32))
    stored = cml.distances.get("precomputed", path=str(tmp_path / "matrix.npy"))
    rows = stored.encode(list(range(30)))
    original = dask_executor._recipe

    def other(work: object) -> dict[str, object]:
        return {**original(work), "fingerprint": "0"}  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(dask_executor, "_recipe", other)
        with pytest.raises(UserError, match="makes another label distance of 'precomputed'"):
            write_matrix(stored, rows, tmp_path / "c", options=there)
    monkeypatch.setattr(connection, "PATIENCE", 1)
    for address in ("tcp://127.0.0.1:9", "nowhere at all"):
        with pytest.raises(UserError, match=f"No Dask scheduler answers at '{address}'"):
            write_matrix(Euclidean(), labels, tmp_path / "d", options=replace(there, scheduler=address))
    with monkeypatch.context() as patch:
        patch.setattr(connection, "find_spec", {}.get)
        patch.setattr(connection, "PATIENCE", 15)
        with pytest.raises(UserError, match="The scheduler has no cml: install the same packages"):
            write_matrix(Euclidean(), labels, tmp_path / "d", options=there)
    # what failed on the cluster goes on here
    np.testing.assert_array_equal(
        np.load(write_matrix(Euclidean(), labels, tmp_path / "d", options=QUIET).path),
        Euclidean().pairwise(labels, labels),
    )


@pytest.mark.slow
def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("cml.distances.jobs.dask_executor", "cml.processes.dask_client"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"pip install .*\[cluster\]'"):
        write_matrix(
            Euclidean(), Euclidean().encode([1, 2, 3]), tmp_path / "m", options=replace(QUIET, scheduler="tcp://x:1")
        )
