"""A command that fails before there is anything to go on from leaves nothing behind, folders around it included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from export_runs import draw_images, make_run

from cml.cli import main

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "16", "16", "--dimension", "8"]
SMALL += ["--workers", "0", "--device", "cpu", "--steps", "4"]
Place = Callable[[str], str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the inputs lie, by name."""
    folder = tmp_path_factory.mktemp("inputs")
    assert main(["prepare", "people", "--count", "24", "--size", "16", "--out", str(folder / "people")]) == 0
    make_run(folder / "run")
    draw_images(folder / "torn", 3, name="{}.png")[1].write_bytes(b"torn")
    for path in draw_images(folder / "bad", 3, name="{}.png"):
        path.write_bytes(b"torn")
    (folder / "labels.csv").write_text("file_name,age\n0.png,1\n1.png,2\n2.png,3\n")
    return lambda name: str(folder / name)


CASES: dict[str, list[str]] = {
    "train, a batch too large": ["train", "pose", "--data", "@people", *SMALL, "--sampler", "random(batch_size=999)"],
    "train, weights missing": ["train", "pose", "--data", "@people", *SMALL, "--weights", "none.safetensors"],
    "train, a loss": ["train", "pose", "--data", "@people", *SMALL, "--loss", "nonsense"],
    "train, no data": ["train", "pose", "--data", "@nowhere", *SMALL],
    "compare": ["compare", "pose", "--data", "@people", *SMALL, "--sampler", "random(batch_size=999)"],
    "prepare": ["prepare", "folder", "--images", "@torn", "--labels", "@labels.csv", "--label-columns", "no"],
    "embed": ["embed", "@run", "--images", "@torn"],
    "index": ["index", "@run", "@torn"],
    "index, faiss": ["index", "@run", "@nowhere", "--method", "flat"],
    "all bad": ["embed", "@run", "--images", "@bad", "--skip-bad"],
    "captioning, all bad": ["export", "captioning", "@run", "--images", "@bad", "--skip-bad", "--layout", "hdf5"],
    "distances": ["distances", "@people", "--neighbors", "99999999"],
    "captioning": ["export", "captioning", "@run", "--images", "@torn"],
    "captioning, hdf5": ["export", "captioning", "@run", "--images", "@torn", "--layout", "hdf5"],
    "hub": ["export", "hub", "@people"],
    "onnx": ["export", "onnx", "@people"],
}


@pytest.mark.parametrize("name", CASES)
def test_a_failed_start_leaves_nothing_behind(
    name: str, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [place(word[1:]) if word.startswith("@") else word for word in CASES[name]]
    assert main([*words, "--out", str(tmp_path / "a" / "b" / "out")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: "), said
    assert [str(path) for path in tmp_path.rglob("*")] == []


def test_a_run_that_fails_in_its_first_batch_leaves_nothing_and_one_that_was_there_stays(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    out = tmp_path / "runs" / "mine"
    command = [
        "train",
        "pose",
        "--data",
        place("people"),
        *SMALL,
        "--sampler",
        "random(batch_size=8)",
        "--out",
        str(out),
    ]
    with monkeypatch.context() as patch:
        patch.setattr("cml.training.batches.BatchSource.__getitem__", full)
        assert main(command) == 1
        assert "The memory is full" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
    assert main(command) == 0
    (out / "model.safetensors").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("cml.training.gradient_descent.losses.registry.make", full)
        assert main([*command, "--resume"]) == 1
    assert (out / "checkpoints" / "last.pt").exists()
    assert main([*command, "--resume"]) == 0
