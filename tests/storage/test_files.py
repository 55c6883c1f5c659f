"""Locks, and files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cml.cli import main
from cml.errors import UserError
from cml.storage import system
from cml.storage.atomic import atomic_file, atomic_folder, hidden_name, write_all
from cml.storage.partial_dataset import partial_folder
from cml.storage.regular_file import load_or_compute_rows
from cml.storage.work_folder import exclusive_lock


def test_a_second_holder_of_a_lock_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from cml.storage.work_folder import exclusive_lock\n"
            "with exclusive_lock(Path(sys.argv[1]), 'the job'):\n    print('held', flush=True); time.sleep(60)",
            str(lock),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="Another process is working on the job"), exclusive_lock(lock, "the job"):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with exclusive_lock(lock, "the job"):
        pass
    with exclusive_lock(lock, "the job"):
        pass


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, "x" * 200 + "." + "y" * 54, "x" * 250 + ".json", "short.json"])
def test_a_file_or_folder_may_have_the_longest_name_there_is(name: str, tmp_path: Path) -> None:
    with atomic_file(tmp_path / name) as temporary:
        temporary.write_text("whole")
    assert (tmp_path / name).read_text() == "whole"
    with atomic_folder(tmp_path / "below" / name) as temporary:
        (temporary / "file").touch()
    assert [path.name for path in (tmp_path / "below").iterdir()] == [name]
    partial_folder(tmp_path / name).mkdir()


def test_long_names_that_begin_alike_have_different_hidden_names() -> None:
    assert hidden_name("x" * 254 + "a") != hidden_name("x" * 254 + "b")
    assert hidden_name("x" * 200) == "." + "x" * 200


@pytest.mark.parametrize(
    "line",
    [
        "prepare people --count 24 --size 16 --out {}",
        "train pose --data nowhere --out a/{}/b",
        "index run images --out {}",
        "explore run --out {}.html",
    ],
)
def test_a_name_that_no_file_can_have_is_refused_before_the_work(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.format("x" * 256).split()) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("error: A file name in --out must have at most 255 bytes. Got 2")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_few_bytes_at_a_time_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_at, write = system.write_at, os.write
    monkeypatch.setattr(system, "write_at", lambda number, content, at: write_at(number, content[:3], at))
    monkeypatch.setattr(os, "write", lambda number, content: write(number, content[:3]))
    path = tmp_path / "file"
    path.write_bytes(b"-" * 14)
    number = os.open(path, os.O_RDWR)
    write_all(number, bytes(range(10)), 2)
    os.lseek(number, 0, os.SEEK_END)
    write_all(number, b"end.")
    os.close(number)
    assert path.read_bytes() == b"--" + bytes(range(10)) + b"--end."


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, happened = tmp_path / "report.txt", list[str]()
    fsync, replace = os.fsync, system.replace

    def force(descriptor: int) -> None:
        happened.append(f"{os.fstat(descriptor).st_size} bytes forced")
        fsync(descriptor)

    def rename(source: Path, target: Path) -> None:
        happened.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", force)
    monkeypatch.setattr(system, "replace", rename)
    with atomic_file(path) as temporary:
        temporary.write_text("whole")
    assert happened == ["5 bytes forced", "renamed"]


def test_rows_of_the_cache_that_do_not_fit_are_computed_anew_and_kept(tmp_path: Path) -> None:
    path, rows, computed = tmp_path / "rows.npy", np.arange(12, dtype=np.float32).reshape(4, 3), 0

    def compute() -> np.ndarray:
        nonlocal computed
        computed += 1
        return rows

    for there in (None, np.zeros((5, 3), np.float32), np.zeros((3, 3), np.float32), np.zeros(4, np.float32)):
        if there is not None:
            np.save(path, there)
        np.testing.assert_array_equal(load_or_compute_rows(path, 4, compute), rows)
    path.write_bytes(b"torn")
    np.testing.assert_array_equal(load_or_compute_rows(path, 4, compute), rows)
    assert computed == 5
    np.testing.assert_array_equal(load_or_compute_rows(path, 4, compute), rows)
    assert computed == 5
