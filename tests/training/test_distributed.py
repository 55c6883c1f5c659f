"""Two processes on CPUs against one: gradients, batches, runs, evaluations, and what is left when a process dies."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import two_processes
from safetensors.torch import load_file
from start_two import end_of_two
from timm.layers import norm_act
from torch import Tensor

from cml import losses
from cml.cli import main
from cml.errors import UserError
from cml.launch import Launch
from cml.processes.init_processes import own_device
from cml.processes.ranks import Ranks, share_batch_norm
from cml.training.checkpoint import read_checkpoint
from cml.training.metrics_log import read_metrics
from cml.training.saved_model import MODEL

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
SMALL = [
    *("--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--dimension", "8"),
    *("--workers", "0", "--device", "cpu"),
]


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT), *sys.path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"} | more


class Session(NamedTuple):
    folder: Path
    said: str
    code: int

    def tensors(self, kind: str) -> list[dict[str, Tensor]]:
        return [load_file(self.folder / f"rank{rank}.{kind}") for rank in range(2)]

    def facts(self, kind: str) -> list[Any]:
        return [json.loads((self.folder / f"rank{rank}.json").read_text())[kind] for rank in range(2)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """One start of two processes for all that they compute; at its end rank 1 is killed."""
    folder = tmp_path_factory.mktemp("two")
    two_processes.word_file(folder)
    two_processes.train(folder / "one", snapshot=folder / "one-cut")
    people = folder / "people"
    assert main(["prepare", "people", "--out", str(people), "--count", "60", "--size", "32"]) == 0
    options = [*SMALL, "--sampler", "random(batch_size=15)", "--steps", "2"]
    assert main(["train", "pose", "--data", str(people), "--out", str(folder / "task-run"), *options]) == 0
    assert main(["evaluate", str(folder / "task-run"), "--device", "cpu"]) == 0
    shutil.copy(folder / "task-run" / "evaluation.json", folder / "one-evaluation.json")
    assert main([*two_processes.frozen_command(folder), "--out", str(folder / "frozen-one")]) == 0
    assert main([*two_processes.features_command(folder), "--out", str(folder / "features-one")]) == 0
    done = subprocess.run(
        [*TORCHRUN, two_processes.__file__, "session", str(folder)],
        env=environment(), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    return Session(folder, done.stdout + done.stderr, done.returncode)


def test_gradients_of_every_loss_are_those_of_one_process(session: Session) -> None:
    alone = two_processes.all_gradients(Ranks(), session.folder / "words.txt")
    for found in session.tensors("gradients"):
        assert found.keys() == alone.keys()
        for key, true in alone.items():
            assert float((found[key] - true).norm()) <= 1e-6 * float(true.norm()) + 1e-12, key
    for name in losses.names():  # none of which is 0 by mistake
        for cut in ("whole", "parts"):
            assert float(alone[f"{name}.{cut}.network.0.weight"].norm()) > 1e-4, name
    proxies = {key.split(".")[0] for key in alone if ".loss." in key}
    assert {"proxy-anchor", "proxy-nca", "proxy-gml", "soft-triple", "language-guidance"} <= proxies


def test_gradients_and_memories_are_the_same_bits_on_both_ranks(session: Session) -> None:
    first, second = session.tensors("gradients")
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_feature_store_of_two_processes_has_the_bytes_of_one(session: Session) -> None:
    one, two = (
        {path.name: path.read_bytes() for path in (session.folder / f"features-{count}").iterdir()}
        for count in ("one", "two")
    )
    assert one == two
    assert {"manifest.json", "items.jsonl", "features-00000.npy"} == one.keys()


def test_what_follows_in_a_batch_normalisation_is_kept() -> None:
    layer = norm_act.BatchNormAct2d(3)  # which ends in a ReLU of its own
    network = torch.nn.Sequential(layer).eval()
    names, images = list(network.state_dict()), torch.randn(4, 3, 5, 5)
    before = network(images)
    share_batch_norm(network, Ranks(0, 2))
    assert network[0] is not layer
    assert list(network.state_dict()) == names
    assert torch.equal(network(images), before)
    assert before.min() == 0


def test_batches_are_split_and_label_distances_computed_once(session: Session) -> None:
    alone, (first, second) = two_processes.batches(Ranks()), session.tensors("batches")
    for step in range(12):
        assert len(first[f"inputs.{step}"]) == 8
        both = torch.cat([first[f"inputs.{step}"], second[f"inputs.{step}"]])
        assert torch.equal(both, alone[f"inputs.{step}"])
        for found in (first, second):
            assert torch.equal(found[f"targets.{step}"], alone[f"targets.{step}"])
    assert (int(alone["blocks"]), int(first["blocks"]), int(second["blocks"])) == (12, 8, 4)  # turns of four steps


def test_evaluation_is_that_of_one_process(session: Session) -> None:
    alone = json.loads(json.dumps(two_processes.evaluation(Ranks())))
    first, second = session.facts("evaluation")
    assert first == second
    assert_alike(first, alone)
    split, whole = (
        json.loads((session.folder / name).read_text()) for name in ("task-run/evaluation.json", "one-evaluation.json")
    )
    assert_alike(split, whole)


def assert_alike(found: Any, true: Any, key: str = "") -> None:  # noqa: ANN401 - JSON
    """Compare results: values to the last bit, and all that sums of effects make of them but for their rounding."""
    if isinstance(true, dict):
        assert found.keys() == true.keys()
        for name in true:
            assert_alike(found[name], true[name], name)
    elif isinstance(true, list):
        assert len(found) == len(true)
        for one, other in zip(found, true, strict=True):
            assert_alike(one, other, key)
    elif isinstance(true, float) and key not in {"mean", "values"}:
        assert found == pytest.approx(true, rel=1e-6, abs=1e-9)
    else:
        assert found == true


def test_what_ranks_agree_on(session: Session) -> None:
    first, second = session.facts("small")
    for found in (first, second):
        assert found["agreed"] == 3.5
        assert found["any"] == [True, False]
        assert found["once"] == [[1.5] * 3] * 2
        assert found["few rows"] == [[0, 1], [2, 3], [4, 5]]
        assert found["refused"] == "Rank 1 has a colour other than rank 0's. Paint it over."
    assert first["drawn"] != second["drawn"]


def weights(run: Path) -> Tensor:
    return torch.cat([one.double().flatten() for one in load_file(run / MODEL).values()])


def difference(run: Path, other: Path) -> float:
    found, true = weights(run), weights(other)
    return float((found - true).norm() / true.norm())


def test_runs_are_those_of_one_process_and_go_on_with_another_number(session: Session) -> None:
    folder = session.folder
    two_processes.train(folder / "two-cut", resume=True)
    for name in ("two", "one-cut", "two-cut", "two-again"):
        assert difference(folder / name, folder / "one") < 1e-4, name  # float32 rounding, grown
        losses_of = [
            [record["loss"] for record in read_metrics(folder / run / "metrics.jsonl")] for run in (name, "one")
        ]
        assert len(losses_of[0]) == two_processes.CONFIG.steps
        assert losses_of[0] == pytest.approx(losses_of[1], rel=1e-4)
    assert torch.equal(weights(folder / "two-again"), weights(folder / "two"))  # with as many processes bit for bit
    assert not torch.equal(weights(folder / "two"), weights(folder / "one"))  # or the test has compared one with itself


def test_a_run_on_features_is_that_of_one_process(session: Session) -> None:
    two, one = session.folder / "frozen-two", session.folder / "frozen-one"
    found, true = ([record["loss"] for record in read_metrics(run / "metrics.jsonl")] for run in (two, one))
    assert len(true) == 12
    assert true[-1] < 0.9 * true[0]  # something was learnt
    assert found == pytest.approx(true, rel=1e-5)
    assert difference(two, one) < 1e-5


def test_torchrun_names_the_rank_that_was_killed(session: Session) -> None:
    assert session.code == 1
    cause = session.said[session.said.index("Root Cause") :]
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", cause), session.said
    state = read_checkpoint(session.folder / "killed")
    assert state is not None
    assert state["step"] == 4


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_without_torchrun_the_others_stop_too_and_say_whose_fault_it_was(how: str, tmp_path: Path) -> None:
    codes, (first_said, second_said) = end_of_two(Path(two_processes.__file__), how, str(tmp_path / "run"))
    assert codes[0] == 1
    if how == "killed":
        assert "error: The processes of the run have lost each other" in first_said
        assert "Continue from the last checkpoint with --resume" in first_said
    else:
        assert second_said.strip() == "error: The image of rank 1 cannot be read."
        assert codes[1] == 2
        assert "error" not in first_said  # one line is enough
    assert "Traceback" not in first_said
    state = read_checkpoint(tmp_path / "run")
    assert state is not None
    assert state["step"] == 4


# A tracker that notes its calls in a file, and hangs at the end; rank 1 then waits for rank 0, or has ended.
_TRACKER = """
import os, time
import cml
from cml.trackers import guarded

guarded.END_LIMIT = 1.0


@cml.trackers.register("noting")
class Noting:
    def begin(self, run):
        self._note("begin")

    def log(self, step, numbers):
        self._note(f"{step} {max(numbers, key=len)}")

    def log_image(self, name, path):
        self._note(name)

    def end(self):
        self._note("end")
        time.sleep(600)

    def _note(self, call):
        with open("calls.txt", "a") as file:
            file.write(f"{os.environ['RANK']} {call}\\n")
"""


def test_torchrun_trains_a_task_as_one_process_does(session: Session, tmp_path: Path) -> None:
    (tmp_path / "noting.py").write_text(_TRACKER)
    options = ["--data", str(session.folder / "people"), *SMALL, "--steps", "6", "--evaluate-every", "3"]
    command = ["cml", "train", "pose", *options, "--sampler", "random(batch_size=15)", "--optimizer", "sgd"]
    tracked = ["--plugin", str(tmp_path / "noting.py"), "--tracker", "noting"]
    done = subprocess.run(
        [*TORCHRUN, "-m", *command, *tracked, "--out", str(tmp_path / "two")], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("6 steps, last loss") == 1
    assert done.stderr.count(" 0/6 [") == 1  # one progress bar
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    points = ["3 validation", "6 images_per_second", "6 validation"]
    assert calls == ["0 begin", *(f"0 {point}" for point in points), "0 loss curve", "0 end"]
    assert done.stderr.count("The tracker noting may lack the end of this run") == 1
    assert main([*command[1:], "--out", str(tmp_path / "one")]) == 0
    found, true = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("two", "one"))
    assert [sorted(record) for record in found] == [sorted(record) for record in true]
    for one, other in zip(found, true, strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    assert (tmp_path / "two" / "loss.png").exists()


def test_an_interrupted_torchrun_leaves_a_checkpoint_and_the_run_goes_on(session: Session) -> None:
    folder = session.folder
    metrics, command = folder / "cut" / "metrics.jsonl", two_processes.interruptible_command(folder)
    process = subprocess.Popen(
        [*TORCHRUN, two_processes.__file__, "interrupted", str(folder)],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert [(folder / f"code-{rank}").read_text() for rank in (0, 1)] == ["130", "130"]
    state = read_checkpoint(folder / "cut")
    assert state is not None
    assert 10 <= state["step"] < 20  # not one that was due
    assert said.count(f"stopped; the checkpoint of step {state['step']} of 24 is written") == 1
    assert [record["step"] for record in read_metrics(metrics)] == list(range(1, state["step"] + 1))
    assert main([*command, "--out", str(folder / "cut"), "--resume"]) == 0
    assert main([*command, "--out", str(folder / "whole")]) == 0
    assert difference(folder / "cut", folder / "whole") < 1e-5
    both = [[one["loss"] for one in read_metrics(folder / run / "metrics.jsonl")] for run in ("cut", "whole")]
    assert len(both[0]) == 24
    assert both[0] == pytest.approx(both[1], rel=2e-3)  # the batches of every step are the same
    assert len({round(loss, 2) for loss in both[1]}) > 12  # which other batches would not pass for


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list a process's threads")
@pytest.mark.parametrize("fails", [False, True])
def test_a_process_that_leaves_ends_gloo_before_python_ends(fails: bool, tmp_path: Path) -> None:
    # gloo's threads let go of tensors, for which they need Python: one that comes late aborts the process as well
    script = f"""if True:
        import os, torch
        from pathlib import Path
        from cml.processes.init_processes import init_processes

        def threads():
            return " ".join(sorted((one / "comm").read_text().strip() for one in Path("/proc/self/task").iterdir()))

        try:
            with init_processes("cpu") as ranks:
                layer = torch.nn.Linear(3, 1)
                optimizer = torch.optim.AdamW(layer.parameters())  # imports much of torch.distributed
                layer(torch.ones(2, 3)).sum().backward()
                optimizer.step()
                ranks.barrier()
                within = threads()
                if {fails} and ranks.rank == 1:
                    raise RuntimeError("mine")
        except RuntimeError:
            pass
        Path({str(tmp_path)!r}, os.environ["RANK"]).write_text(within + "," + threads())
        """
    (tmp_path / "script.py").write_text(script)
    _, said = end_of_two(tmp_path / "script.py")
    for rank in range(1 if fails else 0, 2):  # rank 0 has lost rank 1 then, and ends
        within, after = (tmp_path / str(rank)).read_text().split(",")
        assert "gloo" in within, said
        assert "gloo" not in after


def test_what_cannot_be_split_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main(["compare", "pose"]) == 2
    assert (
        capsys.readouterr().err
        == "error: cml compare runs in one process; torchrun is for train, evaluate, features.\n"
    )
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["compare", "pose"]) == 2
    assert capsys.readouterr().err == ""  # the first of the machine has said it
    monkeypatch.setenv("WORLD_SIZE", "two")
    assert main(["compare", "pose"]) == 2
    line = "error: The variable WORLD_SIZE should be a whole number, as torchrun sets it: 'two'.\n"
    assert capsys.readouterr().err == line
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="Each of several processes takes its own device"):
        own_device("cuda:1", Launch(0, 2))
    assert own_device("auto" if not torch.cuda.is_available() else "cpu", Launch(0, 2)) == torch.device("cpu")


@pytest.mark.parametrize(("total", "size"), [(13, 2), (3, 4), (8, 4), (0, 2)])
def test_shares_are_in_order_and_differ_by_one_at_most(total: int, size: int) -> None:
    shares = [range(total)[Ranks(rank, size).share(total)] for rank in range(size)]
    assert [one for share in shares for one in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert max(map(len, shares)) == Ranks(0, size).largest_share(total)
