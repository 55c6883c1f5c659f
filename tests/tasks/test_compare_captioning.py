"""``cml compare captioning`` from end to end: drawn scenes, a run, two representations, captioners, a table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cml.cli import main
from cml.data_prep.synthetic.scenes.source import Scenes
from cml.export.captioning import CaptioningFeatures
from cml.tasks.captioning import comparison
from cml.tasks.captioning.training import CaptionerConfig, TrainedCaptioner, train_captioner

pytest.importorskip("pycocoevalcap.bleu.bleu")

ROWS = ["Img XE", "Cap XE", "Img RL", "Cap RL"]
SCORED = ["BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D"]  # METEOR and SPICE run in Java


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the captioners that are trained."""
    seeds: list[int] = []

    def noted(*arguments: Any, seed: int, **more: Any) -> TrainedCaptioner:  # noqa: ANN401
        seeds.append(seed)
        return train_captioner(*arguments, seed=seed, **more)

    monkeypatch.setattr(comparison, "train_captioner", noted)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return seeds


@pytest.mark.slow
def test_four_rows_and_nothing_is_trained_twice(
    tmp_path: Path, trained: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    data, run, out = (str(tmp_path / name) for name in ("scenes", "run", "out"))
    Scenes(count=24, size=64).prepare(Path(data))
    small = ["--image-size", "64", "64", "--crop", "1", "--freeze-backbone", "--steps", "2", "--warmup", "0"]
    learn = ["train", "caption", "--data", data, "--out", run, "--sampler", "random(batch_size=8)", *small]
    assert main([*learn, "--device", "cpu", "--workers", "0"]) == 0
    budget = ["--hidden", "16", "--min-count", "1", "--batch-size", "8", "--xe-steps", "3", "--rl-steps", "2"]
    again = ["compare", "captioning", "--data", data, "--runs", run, "--out", out, "--beams", "2", "--device", "cpu"]
    capsys.readouterr()
    assert main([*again, *budget, "--seeds", "2"]) == 0
    shown, told = capsys.readouterr()
    assert "warning: " in told
    assert "trained with --freeze-backbone" in told  # nothing to compare: Cap is Img
    assert trained == [0, 0, 1, 1]  # Img and Cap
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line.startswith("|")
    ]
    assert lines[0] == ["captioner", *SCORED]
    assert [line[0] for line in lines[2:]] == [*ROWS, "Cap - Img XE", "Cap - Img RL"]
    assert lines[6][1:] == ["+0.0"] * len(SCORED)  # of features that are the same
    assert (tmp_path / "out/table.md").read_text().strip() in shown

    found = json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    for row in ROWS:
        method, name = row.split()[1], row.split()[0].lower()
        kept = [json.loads((tmp_path / f"out/{name}-seed-{seed}.json").read_text()) for seed in (0, 1)]
        assert found[row]["BLEU-1"][0] == pytest.approx(sum(one["scores"][method]["BLEU-1"] for one in kept) / 2)
        assert all(len(one["captions"][method]) == 8 for one in kept)  # queries and gallery
    features = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/features").rglob("*.npz")}
    assert len(features) == 48

    assert main([*again, *budget, "--seeds", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert trained == [0, 0, 1, 1]
    assert {path: path.stat().st_mtime_ns for path in features} == features
    capsys.readouterr()
    assert main([*again, *budget, "--seeds", "1", "--xe-steps", "4"]) == 2  # another budget is another comparison
    assert "different settings (xe_steps was 3, now 4). Choose another folder." in capsys.readouterr().err
    assert trained == [0, 0, 1, 1]


def test_scores_are_printed_as_in_papers() -> None:
    row = {"BLEU-4": (0.363, 0.363, 0.363), "CIDEr-D": (1.201, 1.151, 1.251)}  # what the scorers give
    assert comparison.markdown({"Img RL": row}).splitlines() == [
        "| captioner | BLEU-4 | CIDEr-D |",
        "|---|---|---|",
        "| Img RL | 36.3 | 120.1 ± 5.0 |",
    ]


def test_differences_are_taken_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"Img": [0.5, 0.8, 0.6], "Cap": [0.6, 0.9, 0.7]}  # the seeds differ by more than the features

    def kept(_: object, name: str, seed: int, *__: object) -> dict[str, dict[str, float]]:
        return {"XE": {"CIDEr-D": scores[name][seed]}}

    monkeypatch.setattr(comparison, "_scores", kept)
    monkeypatch.setattr(comparison, "_features", lambda *_: {"Img": [Path("i")], "Cap": [Path("c")]})
    Scenes(count=24, size=64).prepare(tmp_path / "scenes")
    out, config, features = tmp_path / "out", CaptionerConfig(), CaptioningFeatures()
    out.mkdir()
    rows = comparison.compare(comparison.CompareCaptioning(tmp_path / "scenes", (Path("run"),), out, config, features))
    assert list(rows) == ["Img XE", "Cap XE", "Cap - Img XE"]
    assert rows["Cap - Img XE"]["CIDEr-D"] == pytest.approx((0.1, 0.1, 0.1))
    mean, low, high = rows["Cap XE"]["CIDEr-D"]
    assert high - low > 0.7
    assert mean == pytest.approx(11 / 15)
    assert "| Cap - Img XE | +10.0" in (out / "table.md").read_text()
