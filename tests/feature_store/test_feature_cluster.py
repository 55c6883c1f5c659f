"""Features by workers of a Dask cluster: the bytes of one machine, also where a worker is killed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from cluster_stand_in import Workers, two_workers
from export_runs import draw_images
from torch import nn

import cml
from cml.cli import main
from cml.errors import DataError, UserError
from cml.feature_store import cluster_network
from cml.feature_store.manifest import digest_network
from cml.feature_store.networks import BackboneNetwork, build_model
from cml.feature_store.stored_items import FileItems, ValueItems
from cml.feature_store.write_store import Cluster, write_features
from cml.models.embedding import ModelConfig
from cml.processes import dask_client
from cml.storage.resumable_output import ResumableOutput, work_path

pytestmark = pytest.mark.slow

# Each worker notes that it computed; slowly, so that one can be killed on the way.
LOG = """
import os, time
from cml.feature_store import networks

extract = networks.BackboneNetwork.extract

def noted(self, items):
    with open("computed", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.1)
    return extract(self, items)

networks.BackboneNetwork.extract = noted
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "noting.py").write_text(LOG)
    with two_workers(folder, "noting") as started:
        yield started


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return draw_images(tmp_path_factory.mktemp("photos"), 300, size=20)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def network(chunk: int = 64) -> BackboneNetwork:
    made = BackboneNetwork(build_model(ModelConfig("small-cnn", "none", 2, False, (16, 16)), "cpu"))
    made.chunk = chunk
    return made


def test_the_command_writes_the_bytes_of_one_machine(workers: Workers, photos: list[Path], tmp_path: Path) -> None:
    words = ["features", "--images", photos[0].parent, "--backbone", "efficientnet-lite0", "--image-size", "32", "32"]
    assert main([*map(str, words), "--out", str(tmp_path / "here"), "--device", "cpu"]) == 0
    there = ["--out", tmp_path / "there", "--scheduler", workers.address, "--device", "cpu"]
    assert main([*map(str, words), *map(str, there)]) == 0
    assert content(tmp_path / "here") == content(tmp_path / "there")
    texts = [f"{number} dogs" for number in range(30)]
    for name, scheduler in (("texts", ""), ("texts there", workers.address)):
        cml.features(texts, backbone="sentences/all-minilm-l6-v2", out=tmp_path / name, scheduler=scheduler, quiet=True)
    assert content(tmp_path / "texts") == content(tmp_path / "texts there")


def when_recorded(monkeypatch: pytest.MonkeyPatch, count: int, act: Callable[[], object]) -> None:
    """Do something in this process once it has recorded so many chunks."""
    record, done = ResumableOutput.record, []

    def recorded(self: ResumableOutput, entry: Mapping[str, object]) -> None:
        record(self, entry)
        done.append(entry)
        if len(done) == count:
            act()

    monkeypatch.setattr(ResumableOutput, "record", recorded)


def test_a_killed_worker_costs_only_its_chunks(
    workers: Workers, photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_features(FileItems(photos), network(8), tmp_path / "here", rows_per_shard=70, bar="")
    log = workers.folder / "computed"
    log.unlink(missing_ok=True)
    when_recorded(monkeypatch, 3, workers.workers[0].kill)
    store = write_features(
        FileItems(photos), network(8), tmp_path / "there", rows_per_shard=70, cluster=Cluster(workers.address, "cpu"),
        bar="",
    )  # fmt: skip
    assert content(store.folder) == content(whole.folder)
    computed = log.read_text().splitlines()
    assert {str(process.pid) for process in workers.workers} == set(computed)
    assert 38 <= len(computed) <= 38 + 2 * dask_client.AHEAD  # 300 images in chunks of 8
    workers.workers[0] = workers.start_worker()


def test_what_was_interrupted_on_the_cluster_is_continued_anywhere(
    workers: Workers, photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ValueItems(np.random.default_rng(0).integers(0, 255, (300, 16, 16, 3), np.uint8))
    whole = write_features(values, network(), tmp_path / "here", bar="")

    def stop() -> None:
        raise KeyboardInterrupt

    there = Cluster(workers.address, "cpu")
    for name, cluster in (("cluster", there), ("machine", None)):
        with monkeypatch.context() as patch:
            when_recorded(patch, 2, stop)
            with pytest.raises(KeyboardInterrupt):
                write_features(values, network(), tmp_path / name, cluster=there, bar="")
        assert work_path(tmp_path / name).exists()
        write_features(values, network(), tmp_path / name, cluster=cluster, bar="")
        assert content(tmp_path / name) == content(whole.folder)


def test_what_does_not_fit_is_one_line(
    workers: Workers, photos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.ones((5, 2), np.float32)
    for own in (nn.Linear(2, 2), lambda part: part):
        with pytest.raises(UserError, match=r"A network goes to a cluster by its name, which .*, a part of your own"):
            cml.features(rows, backbone=own, out=tmp_path / "own", scheduler=workers.address, quiet=True)
    there = Cluster(workers.address, "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(cluster_network, "digest_network", lambda made_by: digest_network(made_by)[:-1])
        with pytest.raises(
            UserError, match="A worker of the cluster has other weights or another version of small-cnn"
        ):
            write_features(FileItems(photos[:9]), network(), tmp_path / "a", cluster=there, bar="")
    with monkeypatch.context() as patch:
        patch.setattr(cluster_network, "_take", lambda items, first, last: (items.take(first, last), [7] * 9))
        with pytest.raises(UserError, match="has another size on a worker of the cluster"):
            write_features(FileItems(photos[:9]), network(), tmp_path / "b", cluster=there, bar="")
    with pytest.raises(DataError, match=r"gone\.png"):
        write_features(
            FileItems([*photos[:3], tmp_path / "gone.png"]), network(), tmp_path / "c", cluster=there, bar=""
        )
    monkeypatch.setattr(dask_client, "PATIENCE", 1)
    with pytest.raises(UserError, match="No Dask scheduler answers at 'tcp"):
        write_features(FileItems(photos[:9]), network(), tmp_path / "d", cluster=Cluster("tcp://127.0.0.1:9", ""))


def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("cml.feature_store.cluster_network", "cml.processes.dask_client"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"pip install .*\[cluster\]'"):
        write_features(ValueItems(["a"]), network(), tmp_path / "out", cluster=Cluster("tcp://x:1", "cpu"), bar="")
