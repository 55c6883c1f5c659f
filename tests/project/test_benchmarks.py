"""Every script of tests/benchmarks runs to its end at a tiny size: nothing else would notice one that fails."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "benchmarks"
sys.path.insert(0, str(ROOT / "docs"))

from making.records import numbers  # noqa: E402

from cml.training import tune_heads, tune_splits  # noqa: E402

pytestmark = pytest.mark.slow

BENCHMARKS = {path.stem: path for path in FOLDER.glob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8")}
TINY = {
    "accelerator": "--backbones small-cnn --precisions bfloat16 --size 32 --batch 4 --steps 1 --warm 1 --device cpu "
    "--no-compile --minutes 0.001 --recipe-size 64 --recipe-batch 4",
    "self_supervision": "--seeds 1 --steps 2 --rows untrained log-ratio",
    "feature_duplicates": "--sets lspet --backbone small-cnn --side 32 --copies 2",
    "feature_store": "--rows 3000 --size 4 --steps 2 --batch 20",
    "caption_stop_words": "--images 20 --parts 1 --queries 4 --seeds 0 --lists english function",
    "equal_labels": "--sets clusters-4 --losses log-ratio cosent --seeds 1 --steps 2 --items 80",
    "tables": "--tables diabetes captions --methods columns ridge --seeds 1 --rows 60",
    "vectors": "--rows 300 --size 6 --queries 30 --steps 2 --batch 20 --mapped",
    "audit": "--sets diabetes --items 60 --seeds 1",
    "proposals": "--sets diabetes --items 90 --seeds 1 --first 20 --more 5 --rounds 1 --steps 2",
    "average": "--backbones small-cnn --rounds 1 --images 4 --size 32",
    "backbones": "--backbones test_vit test_resnet --size 32 --items 4 --batch 2 --rounds 1",
    "bench_trials": "--set digits --method cosent --version 2026.1-quick --trials 2",
    "bench_heads": "--items 80 --heads 2 --steps 2 --batch 20 --backbone small-cnn --weights none --runs 1",
    "caption_blocks": "--items 60 --batch 10 --rounds 1",
    "calibration": "--sets digits --items 60 --splits 1 --steps 2 --backbone small-cnn --version 2026.1-quick",
    "captions": "--images 200 --rounds 1 --thread-rounds 1 --loops 1",
    "captions_neighbors": "--images 60",
    "service": "--requests 8 --clients 2 --size 32 --rounds 1",
    "sparse_distances": "--items 300 --triples 5000 --k 3 --queries 20",
    "sentences": "--images 30 --pairs 400 --seeds 0",
    "check": "--items 250",
    "class_losses": "--items 128 --rounds 1",
    "data_path": "--busiest",
    "defaults": "--sets curve cancer --losses log-ratio cosent --seeds 1 --steps 2 --items 80",
    "cosent_scale": "--sets curve --scales 2 --multiples 1 --seeds 1 --steps 2 --items 80",
    "dense_triplet": "--items 8 16 --repeat 1",
    "distance_budget": "--items 60 --sets captions function tracks --budgets 20% --no-descent",
    "distance_jobs": "--sizes 120 150 --kinds neighbors",
    "evaluation": "--queries 5 --gallery 120 --dimension 4 --repeats 1",
    "explorer": "--items 40 --seconds 0.3",
    "export": "--images 2 --scale 0.2 --layouts directory --att-sizes 7 --rounds 1",
    "geometric": "--items 6 --loop-pairs 3 --rounds 1",
    "gradient_cache": "--backbone small-cnn --items 8 --micro-batch 4",
    "hard_mining": "--sets curve --seeds 1 --steps 2 --items 80",
    "heap": "--backbones small-cnn --rounds 1 --passes 1",
    "interval_coverage": "--queries 8 --seeds 2 --methods 2 --repetitions 20 --best-repetitions 2 --bca 2",
    "index": "--items 400 --queries 10 --single 2",
    "judgements": "--items 60 --triplets 200 --seeds 1 --flips 0.1 --fractions 0.3 --backbone small-cnn",
    "keypoints": "--rows 5 --columns 20 --rounds 1",
    "large_dataset": "OUT 400 pose",
    "layout": "--maps 10 20 --pairs 5 --rounds 1",
    "loader": "--images 160 --workers 1 --batches 1 --rounds 1",
    "log_ratio": "--items 8 16 --repeat 1",
    "long_run": "--minutes 0.05 --every 0.2 --people 120",
    "losses": "--items 16 --repeat 1",
    "mat_files": "--masks 2",
    "metadata": "--items 60 --rounds 1",
    "neighbors": "--count 60",
    "one_image": "--photos 3 --large 1 --networks 1 --rounds 1",
    "prepare": "--photos 3 --threads 1",
    "rank_correlation": "--queries 4 --scipy-queries 2 --items 60 --repeat 1",
    "scale": "--rounds 1 --smaller 15",
    "search": "--items 300 --queries 5 --rounds 1",
    "starts": "--sets diabetes --items 100 --seeds 1 --rates 1e-3 --steps 3",
    "threads": "--steps 1",
    "tune": "--sets diabetes --items 60 --seeds 1 --dimension 8 --shuffle --fits OUT",
    "tune_time": "--items 80 --features 12",
    "views": "--sets digits --rows augmentation views=2 --seeds 1 --steps 2 --version 2026.1-quick",
    "fit_example": "--rounds 1 --steps 1 --calls 2",
    "training_step": "--steps 2 --people 160 --files 1 --rounds 1",
}
REAL = {
    "one_image": "coco_mini",
    "captions": "coco_captions",
    "captions_neighbors": "coco_captions",
    "caption_stop_words": "coco_captions",
    "sentences": "coco_captions",
    "distance_budget": "coco_captions",
    "feature_duplicates": "lspet400",
}
REAL |= {"distance_jobs": "mpii_poses", "neighbors": "mpii_poses"}


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("default")  # as from a shell
@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_benchmark_runs(
    name: str,
    real_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name in REAL:
        monkeypatch.setenv("CML_DATA", str(real_data(REAL[name]).parent))
    monkeypatch.setattr(tune_heads, "STOPS", (5, 10))  # no option of tune makes it small
    monkeypatch.setattr(tune_splits, "MOST_SPLITS", 4)
    monkeypatch.syspath_prepend(str(FOLDER))  # some take something from another
    arguments = TINY[name].replace("OUT", str(tmp_path / "out")).split()
    figures = tmp_path / "figures.json" if "add_json_option" in BENCHMARKS[name].read_text(encoding="utf-8") else None
    if figures is not None:
        arguments += ["--json", str(figures)]
    if name == "long_run":  # it interrupts its own process
        command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
        told = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert told.returncode in (0, 1), told.stderr  # 1: memory that has grown, as it does in the first seconds
        assert "given back" in told.stdout, told.stderr
    else:
        importlib.import_module(name).main(arguments)
        said = capsys.readouterr().out
        assert said or any((tmp_path / "out").iterdir())
    if figures is not None:
        assert list(numbers(json.loads(figures.read_text(encoding="utf-8"))))


def test_every_benchmark_has_a_tiny_size_and_says_what_it_is_for() -> None:
    assert set(BENCHMARKS) == set(TINY)
    assert all(path.read_text("utf-8").startswith('"""') for path in FOLDER.glob("*.py"))


def test_figures_are_written_unrounded_and_are_finite_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    write_figures = importlib.import_module("figures_file").write_figures
    path = tmp_path / "figures.json"
    write_figures(path, {"ratio": np.float32(0.1), "counts": np.arange(2), "sides": {7: (1 / 3, True)}})
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "ratio": float(np.float32(0.1)),
        "counts": [0, 1],
        "sides": {"7": [1 / 3, True]},
    }
    with pytest.raises(TypeError, match="A figure must be a number, not 'fast'"):
        write_figures(path, {"speed": "fast"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_figures(path, {"ratio": [float("nan")]})
    write_figures(None, {"speed": "fast"})
