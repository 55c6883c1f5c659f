"""The advice of a verdict: the command that it names is run, and helps; without any signal it names none."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
import cml.doors.learners  # registers the learner that is named "tune"
from cml.checks.advice import advise, render_command
from cml.cli import main
from cml.distances import as_label_distance
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.retrieval.label_regression import LabelSignal, LabelSignals, find_label_signal
from cml.retrieval.verdict import Standing
from cml.training.config import TrainConfig
from cml.tuning import heads

CLEAR, UNCLEAR, BETTER = LabelSignal(0.5, 1 / 300), LabelSignal(-0.1, 0.4), LabelSignal(0.9, 1 / 300)
WORSE = Standing({"frozen": False, "random": False}, is_overfitted=True)
CASES: dict[str, tuple[dict[str, Any], LabelSignals, dict[str, Any] | None]] = {
    "head": ({"freeze_backbone": True}, LabelSignals(CLEAR, UNCLEAR), {"tune": True}),
    "tuned head": ({"freeze_backbone": True, "tune": True}, LabelSignals(CLEAR, UNCLEAR), None),
    "label in the pixels": (
        {"freeze_backbone": True},
        LabelSignals(CLEAR, BETTER),
        {"backbone": "small-cnn", "weights": "none", "freeze_backbone": False},
    ),
    "tuned head, label in the pixels": (
        {"freeze_backbone": True, "tune": True, "tune_losses": ("cosent",)},
        LabelSignals(CLEAR, BETTER),
        {"backbone": "small-cnn", "tune": False, "tune_losses": ("log-ratio", "h-ap")},
    ),
    "tuned network": (
        {"backbone": "small-cnn", "weights": "none", "tune": True, "tune_minutes": 5},
        LabelSignals(CLEAR, UNCLEAR),
        None,
    ),
    "network": ({}, LabelSignals(CLEAR, UNCLEAR), {"freeze_backbone": True, "tune": True}),
    "small network": (
        {"backbone": "small-cnn", "weights": "none"},
        LabelSignals(CLEAR, BETTER),
        {"evaluate_every": 66, "patience": 4},
    ),
    "validated small network": (
        {"backbone": "small-cnn", "weights": "none", "evaluate_every": 20},
        LabelSignals(CLEAR, BETTER),
        None,
    ),
    "small network, label in the features": (
        {"backbone": "small-cnn", "weights": "none"},
        LabelSignals(BETTER, CLEAR),
        {"backbone": "efficientnet-lite0", "weights": "imagenet", "freeze_backbone": True, "tune": True},
    ),
    "vectors": ({"backbone": "none"}, LabelSignals(CLEAR, None), {"tune": True}),
    "mlp": ({"backbone": "mlp(8)"}, LabelSignals(CLEAR, None), {"backbone": "none", "tune": True}),
    "no signal": ({"freeze_backbone": True}, LabelSignals(UNCLEAR, UNCLEAR), None),
}


@pytest.mark.parametrize("case", CASES)
def test_advice_is_not_what_is_so_already(case: str) -> None:
    chosen, signals, options = CASES[case]
    config = TrainConfig(**chosen)
    found = advise(config, 80, WORSE, signals, TrainConfig())
    if options is None:
        assert found.options is None
    else:
        assert found.options is not None
        assert options.items() <= found.options.items()
        assert any(getattr(config, name) != value for name, value in found.options.items())
    nothing = [sentence for sentence in found.sentences if "no sign that the labels can be learned" in sentence]
    assert bool(nothing) == (case == "no signal")
    assert "80 items" in found.sentences[0]


def test_command_names_only_what_differs(tmp_path: Path) -> None:
    recipe = TrainConfig(flip="list")
    config = TrainConfig(freeze_backbone=True, steps=20, dimension=16, image_size=(32, 48))
    places = {"task": "value", "data": tmp_path / "my data", "run": tmp_path / "run"}
    (tmp_path / "run-tuned").mkdir()
    found = shlex.split(render_command(config, recipe, {"tune": True}, **places))  # type: ignore[arg-type]
    wanted = ["cml", "train", "value", "--data", f"{tmp_path}/my data", "--out", f"{tmp_path}/run-tuned-2"]
    assert found[:7] == wanted
    assert found[7:] == ["--dimension", "16", "--image-size", "32", "48", "--freeze-backbone", "--tune"]


def test_signal_is_that_of_a_slow_regression() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    labels = (rows[:, 0] + 0.1 * rng.normal(size=40)).tolist()
    distance = as_label_distance("euclidean").fit(labels)
    found = find_label_signal(rows, distance.encode(labels), distance)
    assert found.is_clear
    assert found.explained > 0.9
    shares = [
        find_label_signal(rng.normal(size=(40, 3)), distance.encode(labels), distance, seed=seed).share
        for seed in range(20)
    ]
    assert min(shares) > 1 / 300
    assert 0.2 < np.mean(shares) < 0.8


def draw_takes(seed: int, *, related: bool) -> tuple[np.ndarray, list[float], np.ndarray]:
    """Features, labels and numbers of 30 takes of 10 frames, which change little within a take."""
    rng = np.random.default_rng(seed)
    takes = np.repeat(np.arange(30), 10)
    rows = rng.normal(size=(30, 12))[takes] + 0.1 * rng.normal(size=(300, 12))
    labels = rows[:, 0] if related else rng.normal(size=30)[takes] + 0.1 * rng.normal(size=300)
    return rows, labels.tolist(), takes


@pytest.mark.slow
def test_what_is_alike_in_groups_alone_is_seldom_a_signal() -> None:
    shares, explained = [], []
    for seed in range(100):
        rows, labels, takes = draw_takes(seed, related=False)
        distance = as_label_distance("euclidean").fit(labels)
        found = find_label_signal(rows, distance.encode(labels), distance, takes, seed=seed)
        explained.append(found.explained)
        shares.append(found.share)
    assert np.mean(explained) < 0.02
    assert np.mean(np.array(shares) <= 0.01) <= 0.04  # 1 % is meant, and 4 of 100 draws are rare then
    assert 0.4 < np.mean(shares) < 0.6


def test_a_signal_of_groups_is_that_of_other_groups() -> None:
    distance = as_label_distance("euclidean")
    for seed in range(2):
        rows, labels, takes = draw_takes(seed, related=False)
        encoded = distance.encode(labels)
        # frames of one take are alike, and so are their labels
        assert find_label_signal(rows, encoded, distance).is_clear
        assert find_label_signal(rows, encoded, distance).explained > 0.2
        found = find_label_signal(rows, encoded, distance, takes)
        assert found.explained < 0.2
        assert not found.is_clear
    for seed in range(2):
        rows, labels, takes = draw_takes(seed, related=True)
        encoded = distance.encode(labels)
        found = find_label_signal(rows, encoded, distance, takes)
        assert found.is_clear
        assert found.explained > 0.8
    assert find_label_signal(rows, encoded, distance, np.zeros(300, int)).share == 1  # of one group nothing can be told


def prepare_vectors(folder: Path, count: int, *, has_signal: bool) -> None:
    """Prepare vectors of 40 columns, of which one tells the label, or none."""
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(count, 40))
    labels = rows[:, 0] if has_signal else rng.normal(size=count)
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{number}" for number in range(40)), "label"])
        writer.writerows([*map(str, row), str(label)] for row, label in zip(rows, labels, strict=True))
    table = ["--source", str(folder / "table.csv"), "--features", "x*", "--label-columns", "label"]
    assert main(["prepare", "table", *table, "--out", str(folder / "data")]) == 0


def read_advice(run: Path) -> tuple[float, str, str]:
    """Evaluate a run: its mean label distance of the first items, its verdict, and the command that this names."""
    found = cml.open_run(run).evaluate()
    metrics = found.rows["embedding"]
    name = next(name for name in metrics if name.startswith("label_distance@"))
    return metrics[name].mean, found.verdict, found.verdict.partition("Next: ")[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A batch takes")
@pytest.mark.parametrize("has_signal", [True, False])
@pytest.mark.parametrize("count", [80, 1000])
def test_the_advised_command_helps_or_nothing_can_be_learned(
    count: int, has_signal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "STOPS", (5, 15))
    prepare_vectors(tmp_path, count, has_signal=has_signal)
    recipe = ["--steps", "60", "--sampler", "random(batch_size=40)"]
    assert main(["train", "value", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *recipe]) == 0
    before, verdict, command = read_advice(tmp_path / "run")
    if not has_signal:
        assert "There is no sign that the labels can be learned from these" in verdict
        assert command == ""
        return
    assert shlex.split(command)[-1] == "--tune"
    assert main(shlex.split(command)[1:]) == 0
    after, verdict, _ = read_advice(tmp_path / "run-tuned")
    assert after < 0.9 * before
    assert "--tune" not in verdict


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A batch takes")
@pytest.mark.parametrize("kind", ["brightness", "ages"])
def test_the_recipe_of_the_readme_on_120_photographs(
    kind: str, real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    files = sorted(real_data("coco_mini").rglob("*.jpg"))[:120]
    (tmp_path / "photos").mkdir()
    photos = []
    for number, path in enumerate(files):
        photos.append(tmp_path / "photos" / f"{number:03}.png")
        with Image.open(path) as image:
            image.convert("RGB").resize((64, 64)).save(photos[-1])
    rng = np.random.default_rng(0)
    if kind == "ages":  # years that the features tell, off by some
        features = EmbeddingModel(ModelConfig("efficientnet-lite0", "imagenet", 1, False, (224, 224))).eval()
        rows = features.extract(photos)
        axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[0]
        labels = 40 + 15 * np.sqrt(len(rows)) * axes[:, 2] + rng.normal(0, 4, len(rows))
    else:
        labels = np.array([np.asarray(Image.open(path).convert("L")).mean() for path in photos])
    lines = ["file_name,label", *(f"{path.name},{label:.2f}" for path, label in zip(photos, labels, strict=True))]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    images = ["--images", str(tmp_path / "photos"), "--labels", str(tmp_path / "labels.csv")]
    assert main(["prepare", "folder", *images, "--label-columns", "label", "--out", str(tmp_path / "data")]) == 0
    recipe = ["--freeze-backbone", "--steps", "300", "--sampler", "random(batch_size=60)"]
    assert main(["train", "value", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), *recipe]) == 0
    before, verdict, command = read_advice(tmp_path / "run")
    if kind == "ages":  # 36 test items do not tell the recipe from the frozen features
        assert "worse than" not in verdict
        assert command.endswith("--tune")
    else:
        assert "--backbone small-cnn" in command
        assert main([*shlex.split(command)[1:], "--steps", "60", "--image-size", "32", "32"]) == 0
        after, verdict, _ = read_advice(tmp_path / "run-small-cnn")
        assert after < 0.7 * before
        assert verdict.startswith("Verdict: better than frozen efficientnet-lite0")


@pytest.mark.slow
@pytest.mark.parametrize("has_signal", [True, False])
def test_a_model_of_vectors_names_the_call_that_helps(has_signal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "STOPS", (5, 15))
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(160, 20))
    labels = rows[:, 0] if has_signal else rng.normal(size=160)
    options: dict[str, Any] = {"steps": 1, "sampler": "random(batch_size=40)", "quiet": True}
    verdict = cml.fit(rows[:100], labels[:100], **options).evaluate(rows[100:], labels[100:]).verdict
    if not has_signal:
        assert "There is no sign that the labels can be learned from these 100 items." in verdict
        assert "Next: " not in verdict
        return
    assert verdict.endswith("Choose the head on held-out items. Next: cml.fit(inputs, labels, tune=True)")
    tuned = cml.fit(rows[:100], labels[:100], tune=True, quiet=True)
    again = tuned.evaluate(rows[100:], labels[100:]).verdict
    assert "better than vectors, standardised, the best of 3 forms (" in again.lower()
    assert "tune=True" not in again
