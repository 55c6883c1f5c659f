"""Faults of the machine, one at a time: what is said, what is kept, and that the run goes on to the same result.

Random kills are the business of faults.py, of which a short version runs here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faults
import numpy as np
import pytest
import torch
from export_runs import draw_images, make_run
from safetensors.torch import load_file
from torch.utils.data import get_worker_info
from tqdm import tqdm

import cml
from cml.cli import main
from cml.comparing.rows import kept_evaluation
from cml.data.images import Images
from cml.doors.trained_run import TrainedRun
from cml.errors import DataError, MachineError, UserError
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import PARTIAL, atomic_file, atomic_folder
from cml.storage.work_folder import exclusive_lock
from cml.training import callbacks, checkpoint, data_workers, metrics_log, run_folder
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig

pytestmark = pytest.mark.slow

SMALL = [
    "--backbone",
    "small-cnn",
    "--weights",
    "none",
    "--image-size",
    "16",
    "16",
    "--dimension",
    "8",
    "--workers",
    "0",
]
STEPS = ["--sampler", "random(batch_size=8)", "--steps", "8", "--checkpoint-every", "3", "--device", "cpu"]
CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="random(batch_size=8)",
    steps=40,
    checkpoint_every=4,
    workers=1,
    device="cpu",
)
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)
LABELS = np.linspace(0, 1, 24)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "people"
    assert main(["prepare", "people", "--count", "24", "--size", "16", "--out", str(folder)]) == 0
    return folder


def train(people: Path, out: Path, *further: str) -> int:
    return main(["train", "pose", "--data", str(people), "--out", str(out), *SMALL, *STEPS, *further])


@pytest.fixture(scope="module")
def whole(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(people, out) == 0
    return out


def same(a: Path, b: Path) -> bool:
    first, second = (load_file(run / "model.safetensors") for run in (a, b))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The error that was printed: one line, the last one, and no traceback."""
    said = capsys.readouterr().err
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, said
    assert said.splitlines()[-1] == lines[0]
    return lines[0]


# ---- killed at random moments


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, faults.Case]:
    """The commands to kill, and what they need: made once."""
    return faults.cases(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("name", ["prepare", "distances", "train", "embed", "export", "export hub"])
def test_killed_at_random_and_resumed_is_the_unkilled_result(
    name: str, cases: dict[str, faults.Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    case = cases[name]
    count = faults.torment(name, case, tmp_path, kills=1 + (name == "train"), rng=random.Random(name), fresh_share=0)
    assert count.kills == 1 + (name == "train")
    assert count.lost == []
    assert count.left == 0


def test_a_command_killed_while_it_draws_its_bar_holds_up_no_other(tmp_path: Path) -> None:
    command = ["prepare", "people", "--count", "24", "--size", "16", "--out", str(tmp_path / "people")]
    tqdm.get_lock()  # of this process, which a fork of it would share
    log = tmp_path / "log"
    killed = faults.forked(command, log, faults.hold_the_lock_of_bars)
    assert killed(lambda: log.exists() and "held" in log.read_text()) == -signal.SIGKILL
    assert faults.forked(command, log)() == 0
    assert (tmp_path / "people" / "dataset.json").exists()


def test_two_processes_that_are_refused_say_so_in_one_line(people: Path, tmp_path: Path) -> None:
    # rank 0 holds the store of the two: the other one has to hear why it ends before it does
    out, log = tmp_path / "run", tmp_path / "log"
    command = ["train", "pose", "--data", str(people), "--out", str(out), *SMALL, *STEPS]
    with exclusive_lock(out / "lock", "the run"):
        assert faults.forked(command, log, processes=2)() in (1, 2)
    assert faults.errors_of(log, 2) == []
    assert f"error: Another process is working on the run {out}" in log.read_text()


def test_a_command_that_hangs_is_ended_and_shows_where(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # long enough for a fork to reach the lock on a busy machine
    assert faults.forked(["--version"], log, faults.hold_the_lock_of_bars, limit=5.0)() == 1
    assert "in hold_the_lock_of_bars" in log.read_text()


# ---- temporaries and locks


def test_temporaries_of_killed_processes_are_taken_away_and_those_of_others_are_not(tmp_path: Path) -> None:
    dead = tmp_path / f".a.json{PARTIAL}x.json"
    dead.write_text("half")
    (tmp_path / f".set{PARTIAL}x").mkdir()
    (tmp_path / f".set{PARTIAL}x" / "file").write_text("half")
    with atomic_file(tmp_path / "a.json") as alive:
        assert not dead.exists()
        with atomic_file(tmp_path / "a.json") as second:
            second.write_text("second")
        assert alive.exists()
        alive.write_text("first")
    with atomic_folder(tmp_path / "set") as folder:
        (folder / "file").write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "set"]
    assert (tmp_path / "a.json").read_text() == "first"


def test_a_folder_that_is_never_written_again_keeps_no_temporaries(tmp_path: Path) -> None:
    dead = tmp_path / f".set{PARTIAL}x"
    with atomic_folder(tmp_path / "set") as folder:
        (folder / "file").write_text("whole")
        dead.mkdir()  # of a process that began later and was killed
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    dead.mkdir()
    with pytest.raises(UserError, match="already exists and is not an empty folder"):
        atomic_folder(tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with pytest.raises(UserError, match="already exists"):
        atomic_folder(tmp_path / "set" / "file")


FORK = """
import os, signal, sys
from pathlib import Path
from cml.storage.work_folder import exclusive_lock
heard, told = os.pipe()
with exclusive_lock(Path(sys.argv[1]), "this"):
    child = os.fork()
    if child == 0:
        os.write(told, b".")
        signal.pause()
    assert os.read(heard, 1) == b"."
    try:
        with exclusive_lock(Path(sys.argv[1]), "this"):
            pass
    except Exception as error:
        print(error)
try:
    with exclusive_lock(Path(sys.argv[1]), "this"):
        print("free")
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_forked_process_does_not_keep_a_lock(tmp_path: Path) -> None:
    command = [faults.sys.executable, "-c", FORK, str(tmp_path / "lock")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert said[0].startswith("Another process is working on this")
    assert said[1:] == ["free"]


def test_a_second_process_on_a_run_folder_is_refused(
    people: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    with exclusive_lock(out / run_folder.LOCK, "it"):
        assert train(people, out, "--resume") == 2
        assert one_line(capsys).startswith(f"error: Another process is working on the run {out}")
    assert train(people, out, "--resume") == 0


def test_a_folder_of_something_else_gets_no_lock(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("text")
    assert train(people, tmp_path) == 2
    assert "is not an empty folder" in one_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_training_with_a_checkpoint_and_resume_goes_on(
    people: Path,
    whole: Path,
    tmp_path: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    before = {one: signal.getsignal(one) for one in callbacks.SIGNALS}
    make = BatchSource.__getitem__

    def signalled(self: BatchSource, step: int) -> Any:  # noqa: ANN401
        if step == 4:  # the first batch is made twice
            os.kill(os.getpid(), number)
        return make(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(BatchSource, "__getitem__", signalled)
        assert train(people, out) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == (
        "stopped; the checkpoint of step 5 of 8 is written; the same command with --resume continues from there"
    )
    assert {one: signal.getsignal(one) for one in before} == before
    state = checkpoint.read_checkpoint(out)
    assert state is not None
    assert state["step"] == 5
    assert [record["step"] for record in metrics_log.read_metrics(out / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert train(people, out, "--resume") == 0
    assert same(out, whole)
    assert (out / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_the_second_signal_stops_at_once(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echoed, reached = [], []

    def signalled(self: EmbeddingModel, images: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the same, passed on by torchrun
        monkeypatch.setattr(callbacks, "ECHO", 0.0)
        echoed.append(True)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
        reached.append(True)
        return images

    monkeypatch.setattr(EmbeddingModel, "forward", signalled)
    assert train(people, tmp_path / "run") == 130
    assert "continues from the last checkpoint" in capsys.readouterr().err.splitlines()[-1]
    assert echoed
    assert not reached
    assert not (tmp_path / "run" / checkpoint.CHECKPOINT).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_embed_in_one_line_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, photos = make_run(tmp_path / "run"), tmp_path / "photos"
    draw_images(photos, 40)
    command = ["embed", str(run), "--images", str(photos), "--batch-size", "2", "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    embed, calls = EmbeddingModel.embed, []

    def signalled(self: EmbeddingModel, *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
        calls.append(1)
        if len(calls) == 18:  # 16 batches are recorded
            os.kill(os.getpid(), number)
        return embed(self, *arguments, **settings)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingModel, "embed", signalled)
        assert main([*command, str(tmp_path / "cut")]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "stopped; the same command continues from its last record"
    assert main([*command, str(tmp_path / "cut")]) == 0
    for name in ("embeddings.npy", "items.jsonl", "manifest.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# ---- data workers


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something done in each data worker before it reads images."""
    read = Images.read

    def patch(fault: Callable[[], object]) -> None:
        def faulty(self: Images, items: Any) -> Any:  # noqa: ANN401
            if get_worker_info() is not None:
                fault()
            return read(self, items)

        monkeypatch.setattr(Images, "read", faulty)

    return patch


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def at_log(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in the training process each time it writes metrics."""
    add = metrics_log.MetricsLog.add

    def added(self: metrics_log.MetricsLog, records: Any) -> None:  # noqa: ANN401
        add(self, records)
        act()

    monkeypatch.setattr(metrics_log.MetricsLog, "add", added)


def test_workers_leave_signals_to_the_training_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    signalled = []

    def tell() -> None:
        for worker in multiprocessing.active_children():
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGINT)
            os.kill(worker.pid, signal.SIGTERM)
            os.kill(worker.pid, signal.SIGHUP)
            signalled.append(worker.pid)

    at_log(monkeypatch, tell)
    model = cml.fit(IMAGES, LABELS, CONFIG, out=tmp_path / "run", quiet=True)
    assert len(signalled) > 2
    alone = cml.fit(IMAGES, LABELS, replace(CONFIG, workers=0), quiet=True)
    assert all(
        torch.equal(value, alone.network.state_dict()[name]) for name, value in model.network.state_dict().items()
    )


def test_a_killed_worker_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at_log(monkeypatch, lambda: [worker.kill() for worker in multiprocessing.active_children()])
    with pytest.raises(
        MachineError, match=r"^A data worker \(process \d+\) was (killed by the signal Killed|gone), .*\.$"
    ):
        cml.fit(IMAGES, LABELS, CONFIG, out=tmp_path / "run", quiet=True)


@pytest.mark.parametrize("dead", [True, False])
def test_a_worker_killed_while_it_hands_a_batch_over_is_one_line(dead: bool) -> None:
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0 if dead else 60,))

    @data_workers.shutdown_workers()
    def cut_off() -> None:
        worker.start()
        data_workers._running().append(SimpleNamespace(_workers=[worker], _shutdown_workers=lambda: None))
        raise ConnectionResetError("reset by peer")

    message = r"^A data worker \(process \d+\) was gone, .*\.$" if dead else "reset by peer"
    with pytest.raises(MachineError if dead else ConnectionResetError, match=message):
        cut_off()
    assert not worker.is_alive()


def test_a_worker_killed_while_a_file_is_written_is_one_line() -> None:
    @data_workers.shutdown_workers()
    def interrupted() -> None:
        try:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
        except RuntimeError:
            raise ValueError("half a file") from None

    with pytest.raises(MachineError, match=r"^A data worker \(process 7\) was killed"):
        interrupted()


def test_a_hanging_worker_is_one_line(
    monkeypatch: pytest.MonkeyPatch, in_workers: Callable[[Callable[[], object]], None]
) -> None:
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    in_workers(lambda: time.sleep(1000))
    with pytest.raises(
        MachineError, match=r"^The data workers hang: no batch came for 1 seconds\. .*--worker-timeout.*\.$"
    ):
        cml.fit(IMAGES, LABELS, replace(CONFIG, worker_timeout=1), quiet=True)


def test_a_stopped_worker_is_a_hanging_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a batch is announced already, and is waited for in the worker's own hands."""
    patience = replace(CONFIG, worker_timeout=1, steps=4000)
    at_log(
        monkeypatch,
        lambda: [os.kill(worker.pid, signal.SIGSTOP) for worker in multiprocessing.active_children() if worker.pid],
    )
    with pytest.raises(MachineError, match=r"^The data workers hang: no batch came for 1 seconds\."):
        cml.fit(IMAGES, LABELS, patience, quiet=True)


def test_a_signal_while_stopped_workers_are_ended_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))

    def interrupted() -> None:
        raise KeyboardInterrupt

    @data_workers.shutdown_workers()
    def cut_off() -> None:
        worker.start()
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        data_workers._running().append(SimpleNamespace(_workers=[worker], _shutdown_workers=interrupted))

    with pytest.raises(KeyboardInterrupt):
        cut_off()
    assert not worker.is_alive()


@pytest.mark.parametrize("what", ["numpy", "torch"])
def test_a_worker_out_of_memory_is_one_line(what: str, in_workers: Callable[[Callable[[], object]], None]) -> None:
    def allocate() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))  # a forked process has the addresses of its parent
        _ = np.empty(1 << 40, np.uint8) if what == "numpy" else torch.empty(1 << 40, dtype=torch.uint8)

    in_workers(allocate)
    with pytest.raises(MachineError, match=r"^The memory was full when the batch of step 0 was made\. .*\.$"):
        cml.fit(IMAGES, LABELS, CONFIG, quiet=True)


def test_what_is_wrong_with_an_image_comes_as_it_is(in_workers: Callable[[Callable[[], object]], None]) -> None:
    def fault() -> None:
        raise DataError("The image a.png cannot be read.")

    in_workers(fault)
    with pytest.raises(DataError, match=r"^The image a\.png cannot be read\.$"):
        cml.fit(IMAGES, LABELS, CONFIG, quiet=True)


def test_what_workers_share_with_the_training_process_is_left_alone_by_garbage_collection(
    in_workers: Callable[[Callable[[], object]], None],
) -> None:
    def fault() -> None:
        raise DataError(f"{gc.get_freeze_count()}")

    in_workers(fault)
    with pytest.raises(DataError) as told:
        cml.fit(IMAGES, LABELS, CONFIG, quiet=True)
    assert int(str(told.value)) > 100_000  # torch alone has more
    assert gc.get_freeze_count() == 0


def test_workers_give_free_memory_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault() -> None:
        if get_worker_info() is not None:
            raise DataError("given back")

    monkeypatch.setattr(data_workers, "give_back_freed_memory", fault)
    with pytest.raises(DataError, match="given back"):
        cml.fit(IMAGES, LABELS, CONFIG, quiet=True)
    monkeypatch.setattr(data_workers, "GIVE_BACK_EVERY", CONFIG.steps + 1)
    cml.fit(IMAGES, LABELS, CONFIG, quiet=True)


def test_workers_die_with_the_training_process(tmp_path: Path) -> None:
    script = """
import multiprocessing, sys, time
import test_faults
from cml.training import metrics_log
def stop(*_):
    print(*[worker.pid for worker in multiprocessing.active_children()], flush=True)
    time.sleep(60)
metrics_log.MetricsLog.add = stop
test_faults.cml.fit(test_faults.IMAGES, test_faults.LABELS, test_faults.CONFIG, quiet=True)
"""
    process = subprocess.Popen(
        [faults.sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *faults.sys.path])},
    )
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 1
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 20
    while any(running(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived the training process"
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_memory_full_in_the_training_process_is_one_line(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forward(self: EmbeddingModel, images: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 55)

    monkeypatch.setattr(EmbeddingModel, "forward", forward)
    assert train(people, tmp_path / "run") == 1
    assert one_line(capsys).startswith("error: The memory is full (")


# ---- the disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts a small disk, or mounts it again with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if subprocess.run(words, capture_output=True, check=False, timeout=60).returncode != 0:
            pytest.skip("this user may not mount a disk of its own")
        return place

    yield mount
    subprocess.run(["umount", str(place)], capture_output=True, check=False, timeout=60)


def commands(people: Path, run: Path, photos: Path, out: Path) -> dict[str, list[str]]:
    return {
        "prepare": ["prepare", "people", "--count", "24", "--size", "64", "--out", str(out / "a")],
        "distances": ["distances", str(people), "--matrix", "--out", str(out / "b")],
        "train": ["train", "pose", "--data", str(people), "--out", str(out / "c"), *SMALL, *STEPS],
        "embed": ["embed", str(run), "--images", str(photos), "--out", str(out / "d")],
        "captioning": ["export", "captioning", str(run), "--images", str(photos), "--out", str(out / "e")],
        "hub": ["export", "hub", str(run), "--out", str(out / "f")],
    }


@pytest.mark.parametrize("name", ["prepare", "distances", "train", "embed", "captioning", "hub"])
def test_a_full_disk_and_one_that_cannot_be_written(
    name: str,
    people: Path,
    whole: Path,
    tmp_path: Path,
    disk: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw_images(tmp_path / "photos", 8, name="{}.png")
    out = disk("size=40k")
    with (out / "filler").open("wb") as filler, contextlib.suppress(OSError):
        for _ in range(6 if name == "train" else 10):  # room for a config, but not for a checkpoint
            filler.write(bytes(4096))
            filler.flush()
    command = commands(people, whole, tmp_path / "photos", out)[name]
    capsys.readouterr()
    assert main(command) in (1, 2)
    said = one_line(capsys)
    assert str(out) in said
    assert any(words in said for words in ("disk is full", "has no room", "free. Choose", "left. Take")), said
    disk("remount,ro")
    assert main(command) in (1, 2)
    said = one_line(capsys)
    assert str(out) in said
    assert "Read-only file system" in said
    disk("remount,rw,size=200m")
    begun = (Path(command[command.index("--out") + 1]) / "config.json").exists()
    assert main([*command, "--resume"] if name == "train" and begun else command) == 0
    if name == "train":
        assert same(out / "c", whole)
    assert not [path for path in out.rglob("*") if ".partial" in path.name]


# ---- files that changed behind our back


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("name", ["checkpoints/last.pt", "model.safetensors"])
def test_a_damaged_run_is_named(
    people: Path,
    whole: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    damage(out / name)
    code = train(people, out, "--resume") if name.endswith(".pt") else main(["evaluate", str(out)])
    assert code == 2
    said = one_line(capsys)
    assert str(out / name) in said
    assert "is damaged" in said
    if name.endswith(".safetensors"):
        assert train(people, out, "--resume") == 0
        assert same(out, whole)


@pytest.mark.parametrize("name", ["dataset.json", "train/metadata.jsonl", "test/metadata.jsonl"])
def test_a_damaged_dataset_is_named(
    people: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "people"
    shutil.copytree(people, data)
    cut(data / name)
    assert train(data, tmp_path / "run") == 2
    assert str(data / name) in one_line(capsys)
    shutil.copy(people / name, data / name)
    lines = (data / name).read_text().splitlines(keepends=True)
    if name.endswith(".jsonl"):  # whole lines are missing: the counts tell
        (data / name).write_text("".join(lines[:-1]))
        assert train(data, tmp_path / "run") == 2
        assert f"{data / 'dataset.json'}: counts" in one_line(capsys)


@pytest.mark.parametrize("name", ["embeddings.npy", "items.jsonl"])
def test_damaged_embeddings_are_named(
    whole: Path, people: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["embed", str(whole), "--images", str(people), "--tsv", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    cut(tmp_path / "out" / name)
    capsys.readouterr()
    assert main(command) == 2
    assert str(tmp_path / "out" / name) in one_line(capsys)


def test_a_cut_matrix_is_made_again(people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["distances", str(people), "--matrix", "--out", str(tmp_path / "job")]
    assert main(command) == 0
    matrix = tmp_path / "job" / "matrix.npy"
    content = matrix.read_bytes()
    cut(matrix)
    capsys.readouterr()
    assert main([*command, "--verify"]) == 2
    assert "is not finished" in one_line(capsys)
    assert main(command) == 0
    assert matrix.read_bytes() == content
    flip(matrix)
    capsys.readouterr()
    assert main([*command, "--verify"]) == 2  # 16 items: all of them are compared
    assert str(matrix) in one_line(capsys)


# ---- the clock


def test_the_clock_may_jump(people: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    monkeypatch.setattr(time, "time_ns", lambda: next(hours) * 10**9)
    assert train(people, tmp_path / "run") == 0
    assert same(tmp_path / "run", whole)
    assert main(["embed", str(whole), "--images", str(people), "--out", str(tmp_path / "embeddings")]) == 0


def test_an_evaluation_from_before_the_clock_jumped_is_kept(
    people: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cml.retrieval.results import Evaluation

    out = tmp_path / "run"
    shutil.copytree(whole, out)
    monkeypatch.setattr(TrainedRun, "frozen", {})  # the pictures are too small for it
    assert main(["evaluate", str(out)]) == 0
    like = Evaluation.from_json(json.loads((out / "evaluation.json").read_text()))
    os.utime(out / "evaluation.json", (1, 1))  # written after the model, by a clock that had been set back
    assert kept_evaluation(out, like) is not None
    (out / "model.safetensors").unlink()
    shutil.rmtree(out / "checkpoints")
    assert train(people, out, "--seed", "1") == 0
    assert kept_evaluation(out, like) is None  # of another model, whatever its time
