"""What a command says that somebody interrupts: how it goes on, with options that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from export_runs import draw_images

from cml.cli import main

HERE = "the same command continues from there"
SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "16", "16", "--dimension", "8"]
SMALL += ["--workers", "0", "--device", "cpu", "--steps", "2", "--sampler", "random(batch_size=8)"]
PICTURES = ["--count", "24", "--size", "16"]
CASES: dict[str, tuple[list[str], str, str]] = {
    "train": (
        ["train", "pose", "--data", "@people", *SMALL],
        "cml.training.batches.BatchSource.__getitem__",
        "the same command with --resume continues from the last checkpoint",
    ),
    "train, nothing there": (
        ["train", "pose", "--data", "@people", *SMALL],
        "cml.data.prepared.PreparedDataset.open",
        "nothing was trained yet",
    ),
    "compare": (
        ["compare", "pose", "--data", "@people", *SMALL],
        "cml.training.batches.BatchSource.__getitem__",
        f"what is finished is kept; {HERE}",
    ),
    "compare captioning": (
        ["compare", "captioning", "--data", "@people", "--runs", "@run"],
        "cml.data.prepared.PreparedDataset.open",
        f"what is finished is kept; {HERE}",
    ),
    "demo, drawing": (
        ["demo", "--count", "24"],
        "cml.data.prepared_writer.PreparedWriter.encode_item",
        f"kept; {HERE}",
    ),
    "demo, gallery": (
        ["demo", "--count", "24"],
        "cml.comparing.demo.make_small_config",
        f"what is finished is kept; {HERE}",
    ),
    "prepare": (
        ["prepare", "people", *PICTURES],
        "cml.data.prepared_writer.PreparedWriter.encode_item",
        "finished yet",
    ),
    "distances": (
        ["distances", "@people", "--matrix"],
        "cml.approximate.dataset_distances.DatasetDistances.write",
        HERE,
    ),
    "summary": (
        ["distances", "@people", "--summary"],
        "cml.approximate.dataset_distances.DatasetDistances.summary",
        "stopped",
    ),
    "embed": (["embed", "@run", "--images", "@photos"], "cml.doors.load.load", "stopped"),
    "index": (["index", "@run", "@photos"], "cml.doors.index.load", "stopped"),
    "onnx": (["export", "onnx", "@run"], "cml.doors.load.load", "stopped"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    assert main(["prepare", "people", *PICTURES, "--out", str(folder / "people")]) == 0
    draw_images(folder / "photos", 3)
    (folder / "run").mkdir()
    return folder


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_command_says_how_it_goes_on(
    name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    words, where, said = CASES[name]
    words = [str(place / word[1:]) if word.startswith("@") else word for word in words]
    monkeypatch.setattr(where, interrupted)
    assert main([*words, "--out", str(tmp_path / "out")]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(said), last
    assert last.startswith("stopped")
    flags = re.findall(r"--[a-z-]+", last)
    if flags:
        with pytest.raises(SystemExit):
            main([*words[: 1 if words[1].startswith("-") else 2], "--help"])
        shown = capsys.readouterr().out
        assert all(flag in shown for flag in flags)
