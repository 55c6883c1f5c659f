from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from cluster_stand_in import Workers, two_workers
from tiny_suite import SET, at, plan

from cml import plugins
from cml.comparing.bench import run
from cml.comparing.bench.result import Result, read_result
from cml.errors import UserError
from cml.registry import registries
from cml.storage.work_folder import WorkFolder

pytestmark = pytest.mark.slow
OWN = """
import cml.losses
import torch

@cml.losses.register("own-stress")
class Stress(cml.losses.LabelDistanceLoss):
    def forward(self, embeddings, label_distances):
        return (torch.cdist(embeddings, embeddings) - label_distances[:, : len(embeddings)]).square().mean()
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("cluster")
    source = Path(__file__).with_name("tiny_suite.py").read_text("utf-8")
    (folder / "tiny_suite.py").write_text(f"{source}\ninstall()\n", "utf-8")
    with two_workers(folder, "tiny_suite") as started:
        yield started


def same(a: Result, b: Result) -> bool:
    """Whether two results are the same, but for where they were computed."""
    names = ("settings", "trials", "scores", "query_scores", "failed")
    return all(getattr(a, name) == getattr(b, name) for name in names)


@pytest.mark.parametrize("letter", ["A", "B"])
def test_the_files_are_the_local_ones(workers: Workers, tmp_path: Path, letter: str) -> None:
    out = {where: tmp_path / (where or "here") for where in ("", workers.address)}
    methods = ("rkd-distance", "cosent") if letter == "A" else ("cosent",)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # as a worker has: the order of sums depends on it
        for where, folder in out.items():
            run.run(plan(folder, *methods, letter=letter), where)
    finally:
        torch.set_num_threads(threads)
    for method in methods:
        assert same(*(read_result(at(folder, method, letter)) for folder in out.values()))
    assert not list(tmp_path.rglob("journal.jsonl"))


def test_a_killed_run_keeps_its_trials(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, recorded = WorkFolder.record, []
    lock = threading.Lock()

    def once(self: WorkFolder, entry: Mapping[str, object]) -> None:
        with lock:
            if recorded:
                raise KeyboardInterrupt
            record(self, entry)
            recorded.append(entry)

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", once)
        with pytest.raises(KeyboardInterrupt):
            run.run(plan(tmp_path, "cosent", letter="B"), workers.address)
    again: list[object] = []

    def counted(self: WorkFolder, entry: Mapping[str, object]) -> None:
        again.append(entry)
        record(self, entry)

    monkeypatch.setattr(WorkFolder, "record", counted)
    run.run(plan(tmp_path, "cosent", letter="B"), workers.address)
    assert len(again) == 2
    read_result(at(tmp_path, "cosent", "B"))


def test_a_killed_worker_costs_what_it_had_under_way(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, recorded = WorkFolder.record, []

    def killing(self: WorkFolder, entry: Mapping[str, object]) -> None:
        recorded.append(entry)
        if len(recorded) == 2:
            workers.workers[0].kill()
            workers.workers[0].wait()
        record(self, entry)

    monkeypatch.setattr(WorkFolder, "record", killing)
    run.run(plan(tmp_path, "cosent", "rkd-distance", letter="B"), workers.address)
    assert len(recorded) == 2 * 3  # of trials that were computed twice, one is recorded
    for method in ("cosent", "rkd-distance"):
        read_result(at(tmp_path, method, "B"))
    workers.workers[0] = workers.start_worker()


def test_workers_load_the_plugins_of_a_run(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own_stress.py"
    own.write_text(OWN, "utf-8")
    for registry in registries:  # what is registered here is forgotten at the end
        for name in ("_entries", "_origins", "_unread_group"):
            monkeypatch.setattr(registry, name, copy.copy(getattr(registry, name)))
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(plugins, "_sources", {})
    plugins.load(own)
    run.run(plan(tmp_path / "a", "own-stress"), workers.address)
    assert read_result(at(tmp_path / "a", "own-stress")).plugins[0][0] == "own_stress.py"
    monkeypatch.setattr(plugins, "sources", lambda: (str(tmp_path / "nowhere.py"),))
    with pytest.raises(UserError, match=rf"worker of the cluster cannot compute on {SET}: There is no plugin"):
        run.run(plan(tmp_path / "b", "own-stress"), workers.address)
    monkeypatch.setattr(plugins, "sources", lambda: ())
    monkeypatch.setattr(plugins, "required_plugins", lambda *choices: (("own_stress.py", "0" * 64),))
    with pytest.raises(UserError, match=r"has other code of own_stress\.py"):
        run.run(plan(tmp_path / "c", "own-stress"), workers.address)


def test_no_scheduler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.processes.dask_client.PATIENCE", 1)
    with pytest.raises(UserError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        run.run(plan(tmp_path, "cosent"), "tcp://127.0.0.1:9")
