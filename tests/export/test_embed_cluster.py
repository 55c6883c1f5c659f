"""Embedding by the workers of a Dask cluster: the files of one machine, also where a worker is killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from cluster_stand_in import Workers, two_workers
from export_runs import draw_images, make_run

import cml
from cml.cli import main
from cml.storage.resumable_output import ResumableOutput

pytestmark = pytest.mark.slow

# Each worker notes that it embedded; slowly, so that one can be killed on the way.
LOG = """
import os, time
from cml.searching import embedded_batches

part = embedded_batches._embed_part

def noted(*arguments):
    with open("embedded", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.1)
    return part(*arguments)

noted.__module__, noted.__qualname__ = part.__module__, part.__qualname__
embedded_batches._embed_part = noted
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "noting.py").write_text(LOG)
    with two_workers(folder, "noting") as started:
        yield started


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def embed(run: Path, images: Path, out: Path, *more: object) -> int:
    words = [
        "embed",
        run,
        "--images",
        images,
        "--out",
        out,
        "--batch-size",
        "2",
        "--device",
        "cpu",
        "--skip-bad",
        *more,
    ]
    return main([str(word) for word in words])


def test_the_files_are_those_of_one_machine(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    photos = draw_images(tmp_path / "photos", 330)
    photos[40].write_bytes(b"no image")
    assert embed(run, tmp_path / "photos", tmp_path / "here") == 0
    record, done = ResumableOutput.record, []

    def recorded(self: ResumableOutput, entry: Mapping[str, object]) -> None:
        record(self, entry)
        done.append(entry)
        if len(done) == 2:
            workers.workers[0].kill()

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(ResumableOutput, "record", recorded)
        assert embed(run, tmp_path / "photos", tmp_path / "there", "--scheduler", workers.address) == 0
    assert f"{photos[40]} cannot be read" in capsys.readouterr().err
    assert content(tmp_path / "here") == content(tmp_path / "there")
    assert len(done) >= 11  # 330 images in parts of 32
    embedded = (workers.folder / "embedded").read_text().splitlines()
    assert {str(process.pid) for process in workers.workers} == set(embedded)
    workers.workers[0] = workers.start_worker()


def test_vectors_go_to_the_workers_and_other_runs_do_not(
    workers: Workers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = cml.prepare("diabetes", tmp_path / "set")
    run = cml.train("value", dataset, tmp_path / "run", steps=2, sampler="random(batch_size=64)", quiet=True)
    there = "--scheduler", workers.address
    assert embed(run.folder, dataset.folder, tmp_path / "here") == 0
    assert embed(run.folder, dataset.folder, tmp_path / "there", *there) == 0
    assert content(tmp_path / "here") == content(tmp_path / "there")
    rows = np.load(tmp_path / "there" / "embeddings.npy")
    assert rows.shape == (442, 128)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cml.doors.stored_items.model_fingerprint", lambda model: "another")
        assert embed(run.folder, dataset.folder, tmp_path / "x", *there) == 2
    assert "A worker of the cluster has another model in" in capsys.readouterr().err
