from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reread_files import sign_again

import cml.distances
from cml.array_types import Float32
from cml.distances.euclidean import Euclidean
from cml.distances.jobs import folder as job_folder
from cml.distances.jobs import row_file
from cml.distances.jobs.forecast import choose_strip_pairs, forecast, measure_rate
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.row_file import RowFile
from cml.distances.jobs.run import write_matrix, write_neighbors
from cml.distances.jobs.verify import verify
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, cut
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.precomputed import Precomputed
from cml.distances.sparse_distances import SparseDistances
from cml.errors import DataError, UserError
from cml.option_types import check_options
from cml.storage.work_folder import FolderError, encode_line, exclusive_lock, parse_line

QUIET = JobOptions(bar_after=None)
COUNT = 97


@dataclass(frozen=True)
class OneWay(Euclidean):
    """Not the same both ways: what b exceeds a by counts twice."""

    name = "test one-way"

    @property
    def is_symmetric(self) -> bool:
        return False

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        left, right = (side.arrays["vectors"].sum(axis=1) for side in (a, b))
        gap = np.subtract.outer(left, right).astype(np.float32)
        block: Float32 = np.where(gap > 0, gap, -2 * gap)
        return block


@dataclass(frozen=True)
class Broken(Euclidean):
    """Gives ``value`` for the items 40 and 41."""

    value: float = math.nan
    name = "test broken"

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        left, right = (side.arrays["vectors"][:, 0] for side in (a, b))
        block = super().pairwise(a, b)
        wrong = np.isin(left, (40, 41))[:, None] & np.isin(right, (40, 41)) & (left[:, None] != right)
        block[wrong] = self.value
        return block


def words(folder: Path) -> str:
    np.save(folder / "words.npy", np.random.default_rng(0).normal(size=(8, 4)))
    (folder / "words.txt").write_text("\n".join("abcdefgh"))
    return str(folder / "words.npy")


def sample(kind: str, folder: Path) -> tuple[LabelDistance, Labels]:
    """A label distance and labels with ties, zeros and pairs that cannot be compared."""
    rng = np.random.default_rng(5)
    distance: LabelDistance
    if kind == "captions":
        distance = cml.distances.get("captions", vectors=words(folder), stop_words="none")
        texts = [
            [" ".join(rng.choice(list("abcdefgh"), n)) for n in rng.integers(1, 5, 1 + i % 3)] for i in range(COUNT)
        ]
        return distance, distance.encode([*texts[:-1], texts[0]])
    if kind == "keypoints":
        distance = cml.distances.get("keypoints", min_shared=2)
        poses = np.dstack([rng.integers(0, 6, (COUNT, 4, 2)), rng.random((COUNT, 4)) < 0.6])
        poses[3, :, 2] = 0
        with pytest.warns(UserWarning, match="cannot be compared with any other"):
            return distance, distance.encode(poses.tolist())
    distance = OneWay() if kind == "one-way" else Euclidean()
    return distance, distance.encode(rng.integers(0, 40, COUNT).tolist())


KINDS = ("euclidean", "one-way", "keypoints", "captions")


@pytest.mark.parametrize("kind", KINDS)
def test_matrix_is_that_of_pairwise_whatever_the_strips(kind: str, tmp_path: Path) -> None:
    distance, labels = sample(kind, tmp_path)
    whole = distance.pairwise(labels, labels)
    for number, (pairs, threads) in enumerate([(None, 2), (1, 3), (1000, 1), (10**9, 2)]):
        options = JobOptions(threads=threads, strip_pairs=pairs, bar_after=None)
        result = write_matrix(distance, labels, tmp_path / str(number), options=options)
        stored = np.load(result.path)
        np.testing.assert_array_equal(stored, whole)
        assert stored.dtype == np.float32
        assert result.pairs == (COUNT * (COUNT + 1) // 2 if distance.is_symmetric else COUNT**2)
        strips = json.loads((result.folder / "job.json").read_text())["strips"]
        assert pairs is None or len(strips) == {1: COUNT, 1000: math.ceil(result.pairs / 1000), 10**9: 1}[pairs]
        again = cml.distances.get("precomputed", path=str(result.path), symmetric=distance.is_symmetric)
        rows = again.encode(list(range(COUNT)))
        np.testing.assert_array_equal(again.pairwise(rows, rows), whole)
    half = np.load(write_matrix(distance, labels, tmp_path / "half", dtype="float16", options=QUIET).path)
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, whole.astype(np.float16))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_those_of_neighbors_whatever_the_strips(kind: str, tmp_path: Path) -> None:
    distance, labels = sample(kind, tmp_path)
    expected = distance.neighbors(labels, 9)
    for number, (pairs, threads) in enumerate([(None, 2), (1, 3), (1000, 1)]):
        options = JobOptions(threads=threads, strip_pairs=pairs, bar_after=None)
        result = write_neighbors(distance, labels, tmp_path / str(number), 9, options=options, item_ids=["a"] * COUNT)
        ids, distances = (np.load(result.path / f"{name}.npy") for name in ("ids", "distances"))
        np.testing.assert_array_equal(ids, expected.ids)
        np.testing.assert_array_equal(distances, expected.distances)
        assert (ids.dtype, distances.dtype) == (np.int32, np.float32)
        assert json.loads((result.folder / "items.json").read_text()) == ["a"] * COUNT
        cml.distances.get("precomputed", path=str(result.path)).encode(list(range(COUNT)))


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.integers(1, 4000), st.booleans())
def test_strips_cover_all_rows_once_and_are_balanced(n: int, pairs: int, both_ways: bool) -> None:
    distance = Euclidean() if both_ways else OneWay()
    work = MatrixWork(distance, distance.encode(list(range(n))))
    strips = cut(work, pairs)
    assert [row for strip in strips for row in range(*strip)] == list(range(n))
    expected = [sum(n - row if both_ways else n for row in range(*strip)) for strip in strips]
    assert [work.pairs(strip) for strip in strips] == expected
    assert all(count <= pairs + 2 * n for count in expected)


def test_a_finished_job_is_left_alone(tmp_path: Path) -> None:
    distance, labels = sample("euclidean", tmp_path)
    first = write_matrix(distance, labels, tmp_path / "m", options=QUIET)
    before = first.path.stat().st_mtime_ns
    again = write_matrix(distance, labels, tmp_path / "m", options=replace(QUIET, strip_pairs=10, threads=1))
    assert again.pairs == 0
    assert first.path.stat().st_mtime_ns == before
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"job.json", "matrix.npy"}


SCRIPT = """
import sys, time
from pathlib import Path
import numpy as np
from cml.distances import label_distance
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_matrix, write_neighbors
out, log, strips = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
class Slow(Euclidean):
    def fingerprint(self):
        return Euclidean().fingerprint()
    def pairwise(self, a, b):
        block = super().pairwise(a, b)
        if len(a) > 1:  # not the sample that is measured
            with log.open("a") as file:
                file.write("x")
            begun.append(1)
            time.sleep(0.01)
            while len(begun) > strips and not (out.parent / "go on").exists():
                time.sleep(0.01)
        return block
distance, begun = Slow(), []
labels = distance.encode(np.random.default_rng(1).integers(0, 999, 150).tolist())
options = JobOptions(strip_pairs=900, bar_after=None)
if sys.argv[4] == "matrix":
    write_matrix(distance, labels, out, options=options)
else:
    write_neighbors(distance, labels, out, 5, options=options)
"""


@contextlib.contextmanager
def slow_job(out: Path, log: Path, kind: str, strips: int) -> Iterator[subprocess.Popen[bytes]]:
    """A job that stands still after so many strips, until there is a file ``go on`` beside its folder."""
    script = out.parent / "job.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(out), str(log), str(strips), kind]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def slow_labels() -> tuple[Euclidean, Labels]:
    distance = Euclidean()
    return distance, distance.encode(np.random.default_rng(1).integers(0, 999, 150).tolist())


def recorded(out: Path) -> list[dict[str, object]]:
    """What a job that is not finished has recorded: first how the rows are cut, then the strips and bands."""
    journal = out / ".job.partial-work" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
    return [parse_line(line) for line in lines[1:] if line.endswith(b"\n")]


def wait_for_strips(process: subprocess.Popen[bytes], out: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(recorded(out)) <= count:
        assert process.poll() is None, "the job ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["matrix", "neighbors"])
def test_killed_and_resumed_is_the_uninterrupted_job(kind: str, tmp_path: Path) -> None:
    out, log = tmp_path / "killed", tmp_path / "log"
    rng = np.random.default_rng()
    done = 0
    for _ in range(3):
        with slow_job(out, log, kind, 4) as process:
            wait_for_strips(process, out, done + 1)
            time.sleep(rng.uniform(0, 0.06))
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = len(recorded(out)) - 1
        assert not list(out.glob("matrix.npy")) + list(out.glob("ids.npy"))
    with slow_job(out, log, kind, 1000) as process:
        assert process.wait(60) == 0
    distance, labels = slow_labels()
    strips = len(json.loads((out / "job.json").read_text())["strips"])
    assert done < strips
    assert len(log.read_text()) <= strips + 3 * 2 + 10  # at most the two under way at each kill; the rest is the sample
    if kind == "matrix":
        whole = write_matrix(distance, labels, tmp_path / "whole", options=QUIET)
        np.testing.assert_array_equal(np.load(whole.path), distance.pairwise(labels, labels))
    else:
        whole = write_neighbors(distance, labels, tmp_path / "whole", 5, options=QUIET)
    for path in whole.folder.glob("*.npy"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert verify(distance, labels, out).compared > 0


def test_a_second_process_is_refused_and_a_dead_one_holds_no_lock(tmp_path: Path) -> None:
    distance, labels = slow_labels()
    out = tmp_path / "job"
    with slow_job(out, tmp_path / "log", "matrix", 4) as process:
        wait_for_strips(process, out, 1)
        with pytest.raises(UserError, match=f"Another process is working on {out} "):
            write_matrix(distance, labels, out, options=QUIET)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert write_matrix(distance, labels, out, options=QUIET).pairs > 0


def test_waiting_for_another_process_takes_its_result(tmp_path: Path) -> None:
    distance, labels = slow_labels()
    out = tmp_path / "job"
    with slow_job(out, tmp_path / "log", "neighbors", 4) as process:
        wait_for_strips(process, out, 1)
        (tmp_path / "go on").touch()
        assert write_neighbors(distance, labels, out, 5, options=replace(QUIET, wait=True)).pairs == 0
        assert process.wait(60) == 0


class Cut(Exception):
    """Stands for whatever stops a process."""


@dataclass(frozen=True)
class Stopping(Euclidean):
    """Euclidean that stops at rows from ``last`` on."""

    last: int = 10**9
    name = "euclidean"

    def fingerprint(self) -> str:
        return Euclidean().fingerprint()

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        if len(a) > 1 and len(b) < COUNT - self.last:
            raise Cut
        return super().pairwise(a, b)


def begun(tmp_path: Path) -> tuple[Path, Euclidean, Labels]:
    """A matrix job that stopped at row 40 or so."""
    distance, labels = Euclidean(), Euclidean().encode(list(range(COUNT)))
    with pytest.raises(Cut):
        write_matrix(
            Stopping(last=40), labels, tmp_path / "job", options=JobOptions(threads=1, strip_pairs=500, bar_after=None)
        )
    return tmp_path / "job", distance, labels


def test_only_recorded_strips_count(tmp_path: Path) -> None:
    out, distance, labels = begun(tmp_path)
    cut_at, *done = recorded(out)
    starts = cut_at["strips"]
    assert isinstance(starts, list)
    assert [entry["strip"] for entry in done] == starts[: len(done)]
    assert 0 < len(done) < len(starts)
    partial = out / ".job.partial-work" / "matrix.npy"
    stored = np.load(partial, mmap_mode="r+")
    stored[starts[len(done)] :] = -7  # what a killed process had half-written
    stored.flush()
    with (out / ".job.partial-work" / "journal.jsonl").open("a") as file:
        file.write(
            encode_line({"strip": starts[len(done)], "crc": [0]}).decode().strip()
        )  # a line without its end was cut off in mid-word
    result = write_matrix(distance, labels, out, options=QUIET)
    np.testing.assert_array_equal(np.load(result.path), distance.pairwise(labels, labels))
    assert result.pairs < COUNT * (COUNT + 1) // 2


@pytest.mark.parametrize("damage", ["gone", "short", "other"])
def test_a_lost_or_damaged_partial_file_is_made_again(damage: str, tmp_path: Path) -> None:
    out, distance, labels = begun(tmp_path)
    partial = out / ".job.partial-work" / "matrix.npy"
    if damage == "gone":
        partial.unlink()
    elif damage == "short":
        partial.write_bytes(partial.read_bytes()[:-1])
    else:
        partial.write_bytes(b"no array")
    result = write_matrix(distance, labels, out, options=QUIET)
    assert result.pairs == COUNT * (COUNT + 1) // 2
    np.testing.assert_array_equal(np.load(result.path), distance.pairwise(labels, labels))


def test_mirroring_is_begun_anew_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_folder, "TILE", 16)
    monkeypatch.setattr(row_file, "TILE", 16)
    distance, labels = Euclidean(), Euclidean().encode(list(range(COUNT)))
    mirrored: list[int] = []
    whole = RowFile.mirror

    def stops(self: RowFile, start: int) -> None:
        if len(mirrored) == 3:
            raise Cut
        mirrored.append(start)
        whole(self, start)

    monkeypatch.setattr(RowFile, "mirror", stops)
    with pytest.raises(Cut):
        write_matrix(distance, labels, tmp_path / "job", options=JobOptions(threads=1, bar_after=None))
    assert not (tmp_path / "job" / "matrix.npy").exists()

    def goes_on(self: RowFile, start: int) -> None:
        mirrored.append(start)
        whole(self, start)

    monkeypatch.setattr(RowFile, "mirror", goes_on)
    result = write_matrix(distance, labels, tmp_path / "job", options=QUIET)
    assert sorted(mirrored[3:]) == list(range(0, COUNT, 16))  # what was mirrored before has no checksum
    np.testing.assert_array_equal(np.load(result.path), distance.pairwise(labels, labels))


@pytest.mark.parametrize("moment", ["second part", "manifest", "deletion"])
def test_a_process_killed_among_the_last_renames(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distance, labels = sample("euclidean", tmp_path)
    whole = write_neighbors(distance, labels, tmp_path / "whole", 3, options=QUIET)
    replace_file, delete = os.replace, shutil.rmtree

    def renames(source: Path, target: Path) -> None:
        if Path(target).name == {"second part": "distances.npy", "manifest": "job.json"}.get(moment):
            raise Cut
        replace_file(source, target)

    def deletes(folder: Path, **how: bool) -> None:
        if moment == "deletion":
            raise Cut
        delete(folder, **how)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", renames)
        patch.setattr("shutil.rmtree", deletes)
        with pytest.raises(Cut):
            write_neighbors(distance, labels, tmp_path / "job", 3, options=QUIET)
    assert (tmp_path / "job" / ".job.partial-work").is_dir()
    assert write_neighbors(distance, labels, tmp_path / "job", 3, options=QUIET).pairs == 0
    assert {path.name for path in (tmp_path / "job").iterdir()} == {"job.json", "ids.npy", "distances.npy"}
    for path in whole.folder.glob("*.npy"):
        assert (tmp_path / "job" / path.name).read_bytes() == path.read_bytes()


def test_a_job_that_lost_its_matrix_is_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distance, labels = sample("euclidean", tmp_path)
    out = write_matrix(distance, labels, tmp_path / "job", options=QUIET).folder
    (out / "matrix.npy").unlink()
    with pytest.raises(UserError, match="not finished; run it again"):
        verify(distance, labels, out)
    assert write_matrix(distance, labels, out, options=QUIET).pairs == COUNT * (COUNT + 1) // 2
    assert f"{out} is damaged; starting over." in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(out / "matrix.npy"), distance.pairwise(labels, labels))


def test_what_is_not_finished_is_not_read(tmp_path: Path) -> None:
    out, distance, labels = begun(tmp_path)
    with pytest.raises(UserError, match="not finished; run it again"):
        verify(distance, labels, out)
    with pytest.raises(DataError, match=r"matrix\.npy is missing"):
        cml.distances.get("precomputed", path=str(out / "matrix.npy"))


def test_another_job_in_the_folder_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distance, labels = sample("euclidean", tmp_path)
    out = tmp_path / "job"
    write_matrix(distance, labels, out, options=QUIET)
    before = (out / "matrix.npy").read_bytes()
    changed = distance.encode([*range(COUNT - 1), 1000])
    mend = r"Choose another folder or delete this one\."
    with pytest.raises(UserError, match=f"different settings .not with the same labels.*{mend}"):
        write_matrix(distance, changed, out, options=QUIET)
    with pytest.raises(
        UserError, match=r"label_distance was euclidean\(squared=False\), now euclidean\(squared=True\)"
    ):
        write_matrix(Euclidean(squared=True), labels, out, options=QUIET)
    with pytest.raises(UserError, match="dtype was float32, now float16"):
        write_matrix(distance, labels, out, dtype="float16", options=QUIET)
    with pytest.raises(UserError, match="kind was matrix, now neighbors"):
        write_neighbors(distance, labels, out, 4, options=QUIET)
    write_neighbors(distance, labels, tmp_path / "lists", 4, options=QUIET)
    with pytest.raises(UserError, match="k was 4, now 5"):
        write_neighbors(distance, labels, tmp_path / "lists", 5, options=QUIET)
    with pytest.raises(UserError, match=f"job of {COUNT} items, but there are 5"):
        verify(distance, labels[:5], out)
    with pytest.raises(UserError, match="not with the same labels"):
        verify(distance, changed, out)
    monkeypatch.setattr(job_folder, "REVISION", 2)
    with pytest.raises(UserError, match="another version of cml made it"):
        write_matrix(distance, labels, out, options=QUIET)
    assert (out / "matrix.npy").read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"strips": [1, 0], "items": 3}', '{"strips": "0", "items": 3}'])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    distance, labels = sample("euclidean", tmp_path)
    write_matrix(distance, labels, tmp_path / "job", options=QUIET)
    (tmp_path / "job" / "job.json").write_text(text)
    with pytest.raises(DataError, match=r"job\.json"):
        write_matrix(distance, labels, tmp_path / "job", options=QUIET)


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    distance, labels = sample("euclidean", tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear")
    with pytest.raises(UserError, match="mine already exists and is not an empty folder"):
        write_matrix(distance, labels, tmp_path / "mine", options=QUIET)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["diary.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file already exists and is not an empty folder"):
        write_matrix(distance, labels, tmp_path / "file", options=QUIET)
    for unwritable in (tmp_path / "file" / "below", Path("/proc/job")):
        with pytest.raises(FolderError, match=f"The folder {unwritable} cannot be written"):
            write_matrix(distance, labels, unwritable, options=QUIET)


def test_too_little_room_is_said_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distance, labels = sample("euclidean", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: os.terminal_size((1, 2)) and _Usage(1000, 0, 1000))
        with pytest.raises(FolderError, match=r"takes 37\.6 kB on the disk.*only 1 kB free.*--dtype float16"):
            write_matrix(distance, labels, tmp_path / "m", options=QUIET)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        with pytest.raises(FolderError, match=r"no room for .*matrix\.npy: it takes .* bytes"):
            write_matrix(distance, labels, tmp_path / "m", options=QUIET)
        assert not list((tmp_path / "m").rglob("*.npy*"))
    np.testing.assert_array_equal(
        np.load(write_matrix(distance, labels, tmp_path / "m", options=QUIET).path), distance.pairwise(labels, labels)
    )


@dataclass(frozen=True)
class _Usage:
    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [
        (math.nan, "float32", "of the items 40 and 41 is nan; it should be a number >= 0, or infinity"),
        (-1.0, "float32", "of the items 40 and 41 is -1; it should be a number >= 0, or infinity"),
        (70000.0, "float16", "of the items 40 and 41 is 70000; it does not fit into float16"),
        (1e-9, "float16", "of the items 40 and 41 is 1e-09; it does not fit into float16"),
    ],
)
def test_numbers_that_cannot_be_stored_are_named(value: float, dtype: str, error: str, tmp_path: Path) -> None:
    distance = Broken(value=value)
    labels = distance.encode(list(range(COUNT)))
    with pytest.raises(UserError, match=error):
        write_matrix(distance, labels, tmp_path / "m", dtype=dtype, options=replace(QUIET, strip_pairs=500))
    assert not (tmp_path / "m" / "matrix.npy").exists()
    if math.isnan(value):
        with pytest.raises(UserError, match="NaN"):
            write_neighbors(distance, labels, tmp_path / "n", 3, options=QUIET)
    infinite = Broken(value=math.inf)
    assert np.isinf(
        np.load(write_matrix(infinite, labels, tmp_path / "i", dtype="float16", options=QUIET).path)[40, 41]
    )


def test_wrong_arguments(tmp_path: Path) -> None:
    distance, labels = sample("euclidean", tmp_path)
    for k in (0, COUNT, COUNT + 5):
        with pytest.raises(UserError, match=f"below the number of items, {COUNT}. Got k={k}"):
            write_neighbors(distance, labels, tmp_path / "n", k, options=QUIET)
    with pytest.raises(UserError, match=r"must be float32 or float16\. Got 'float64'"):
        write_matrix(distance, labels, tmp_path / "m", dtype="float64", options=QUIET)
    with pytest.raises(UserError, match="'threads' and 'strip_pairs' must be at least 1"):
        check_options(JobOptions(threads=0))
    assert not (tmp_path / "n").exists()


def test_verify_compares_and_finds_a_changed_number(tmp_path: Path) -> None:
    distance, labels = sample("keypoints", tmp_path)
    matrix = write_matrix(distance, labels, tmp_path / "m", options=QUIET)
    lists = write_neighbors(distance, labels, tmp_path / "n", 4, options=QUIET)
    assert verify(distance, labels, matrix.folder) == (64 * 64, len(labels) ** 2, ["matrix.npy"])
    assert verify(distance, labels, lists.folder, seed=1) == (16 * 4, 4 * len(labels), ["distances.npy", "ids.npy"])
    for path in (matrix.path, lists.path / "ids.npy", lists.path / "distances.npy"):
        whole = path.read_bytes()
        stored = np.load(path, mmap_mode="r+")
        stored[:] = np.where(np.isfinite(stored), stored + 1, stored)
        stored.flush()
        record = (path.parent / "job.json").read_bytes()
        with pytest.raises(DataError, match=rf"{path.name} is damaged: its checksum is wrong"):
            verify(distance, labels, path.parent)
        sign_again(path.parent)
        with pytest.raises(DataError, match=rf"{path.name} has .* at row \d+, column \d+, where .* was computed now"):
            verify(distance, labels, path.parent)
        path.write_bytes(whole)
        (path.parent / "job.json").write_bytes(record)
        assert verify(distance, labels, path.parent)
    with pytest.raises(DataError, match=r"job\.json is missing"):
        verify(distance, labels, tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float32", "float16", "neighbors"])
def test_memory_is_that_of_strips(kind: str, tmp_path: Path) -> None:
    distance = Euclidean()
    labels = distance.encode(np.random.default_rng(0).normal(size=(6000, 2)).tolist())
    options = replace(QUIET, strip_pairs=1 << 20)
    tracemalloc.start()
    if kind == "neighbors":
        write_neighbors(distance, labels, tmp_path / "n", 10, options=options)
    else:
        write_matrix(distance, labels, tmp_path / "m", dtype=kind, options=options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80e6  # two strips of 4 MB, or a sample of up to 16 MB, with what they take; all pairs are 144 MB


def test_forecast_says_room_pairs_and_time(tmp_path: Path) -> None:
    distance, labels = sample("euclidean", tmp_path)
    said: list[str] = []
    write_matrix(distance, labels, tmp_path / "m", options=replace(QUIET, say=said.append))
    assert len(said) == 1
    for part in ("matrix of 97 items, dtype float32: 37.6 kB in", "free)", "4,753 pairs in 1 strip on 2 threads: "):
        assert part in said[0]
    work = MatrixWork(distance, labels)
    assert measure_rate(work) > 0
    assert "about 7 s" in forecast(work, [Strip(0, COUNT)], tmp_path, 4753 / 7, 1, "1 threads")
    assert "about 2 min" in forecast(work, [Strip(0, COUNT)], tmp_path, 4753 / 480, 4, "4 workers")
    assert choose_strip_pairs(10**12, 20_000, 2) == 600_000  # half a minute of captions
    assert choose_strip_pairs(10**12, 10**9, 2) == 1 << 22
    assert choose_strip_pairs(10, 10, 2) == 5
    assert choose_strip_pairs(8_000_000, 60_000, 2) == 125_000


@pytest.mark.parametrize("symmetric", [True, False])
def test_lists_of_known_pairs_plan_these_alone(symmetric: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    known = np.triu(rng.random((400, 400)) < 0.01, 1)
    known[:50] = False  # of some items nothing is known, or little
    i, j = np.nonzero(known)
    distance = Precomputed(SparseDistances.from_triples(i, j, rng.random(len(i)), items=400, symmetric=symmetric))
    labels = distance.encode([*rng.permutation(400)[:390].tolist(), 3, 3])
    block = distance.pairwise(labels, labels)
    np.fill_diagonal(block, np.inf)
    work = NeighborsWork(distance, labels, 5)
    counts = np.isfinite(block).sum(axis=1)
    assert work.row_pairs.tolist() == counts.tolist()
    assert work.all_pairs == counts.sum() < 392**2 / 20
    said: list[str] = []
    options = JobOptions(strip_pairs=300, bar_after=None, say=said.append)
    result = write_neighbors(distance, labels, tmp_path / "lists", 5, options=options)
    assert result.pairs == counts.sum()
    assert f"{counts.sum():,} pairs in" in said[0]
    strips = cut(work, 300)
    assert max(strip.stop - strip.start for strip in strips) <= 60 + 1  # of 5 neighbours each
    assert sum(map(work.pairs, strips)) == counts.sum()
    expected = distance.neighbors(labels, 5)
    np.testing.assert_array_equal(np.load(tmp_path / "lists/ids.npy"), expected.ids)
    np.testing.assert_array_equal(np.load(tmp_path / "lists/distances.npy"), expected.distances)


def test_the_progress_bar_shows_pairs_and_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distance, labels = sample("euclidean", tmp_path)
    write_matrix(distance, labels, tmp_path / "m", options=JobOptions(bar_after=0.0, strip_pairs=500))
    shown = capsys.readouterr().err
    assert "pair/s" in shown
    assert "4.75k/4.75k" in shown


def test_lock_of_files_waits(tmp_path: Path) -> None:
    import threading

    order: list[str] = []
    held, refused = threading.Event(), threading.Event()

    def holder() -> None:
        with exclusive_lock(tmp_path / "lock", "it"):
            held.set()
            refused.wait(60)
            time.sleep(0.2)
            order.append("first")

    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(60)
    with pytest.raises(UserError, match="Another process"), exclusive_lock(tmp_path / "lock", "it"):
        pass
    refused.set()
    with exclusive_lock(tmp_path / "lock", "it", wait=True):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
