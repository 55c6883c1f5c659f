"""Every script of tests/benchmarks runs to its end at a tiny size: nothing else would notice one that fails."""

from __future__ import annotations

import importlib
import json
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

from cml.checks import audit  # noqa: E402
from cml.tuning import heads, splits  # noqa: E402

pytestmark = pytest.mark.slow

BENCHMARKS = {path.stem: path for path in FOLDER.glob("*.py") if "\ndef main(" in path.read_text(encoding="utf-8")}
TINY = {
    "accelerator": "--backbones small-cnn --precisions bfloat16 --size 32 --batch 4 --steps 1 --warm 1 --device cpu "
    "--no-compile --minutes 0.001 --recipe-size 64 --recipe-batch 4",
    "equal_labels": "--sets clusters-4 --losses log-ratio cosent --seeds 1 --steps 2 --items 80",
    "ways": "fit-vectors embed --where",
    "vectors": "--rows 300 --size 6 --queries 30 --steps 2 --batch 20 --mapped",
    "audit": "--sets diabetes --items 60 --seeds 1",
    "audit_count": "--sets diabetes --items 60 --draws 1 --drawn 40 --seeds 1",
    "dense_claims": "--sets diabetes --losses log-ratio --rates 0.01 --seeds 1 --steps 2 --batch 16",
    "class_claims": "--sets digits --losses proxy-anchor proxy-nca --seeds 1 --steps 2 --most 20 --convergence 1 2 "
    "--graded-losses log-ratio",
    "captions": "--images 200 --rounds 1 --thread-rounds 1 --loops 1",
    "motions": "--sets arm --frames 40 --seeds 1 --picture OUT.webp",
    "distance_budget": "--items 60 --budget 20%",
    "self_supervision": "--seeds 1 --steps 2 --labels 1 5",
    "sequences": "--items 20 --steps 12",
    "sequence_sets": "--sets GunPoint --seeds 1 --steps 2 --most 40 --folder OUT",
    "service": "--requests 8 --clients 2 --size 32 --rounds 1",
    "evaluation": "--queries 5 --gallery 120 --dimension 4 --repeats 1",
    "graded_scale": "--queries 20 --documents 200 --dimension 8 --judged 5 --steps 2",
    "graded_search": "--queries 40 --documents 80 --steps 2 --seeds 1",
    "graded_search end to end": "--queries 40 --documents 80 --steps 1 --seeds 1 --cuts 2 --end-to-end --batch-size 20",
    "gradient_cache": "--backbone small-cnn --items 8 --micro-batch 4",
    "beside": f"{sys.executable} --jobs embed --rounds 2",
    "heap": "--backbones small-cnn --rounds 1 --passes 1",
    "interval_coverage": "--queries 8 --seeds 2 --methods 2 --repetitions 20 --best-repetitions 2 --bca 2",
    "index": "--items 400 --queries 10",
    "labels": "csv --share 0.0002",
    "large_dataset": "OUT 400 pose",
    "item_intervals": "--repetitions 2 --slow-repetitions 0 --only ^12",
    "matrix_memory": "--items 150",
    "layout": "--maps 10 20 --pairs 5 --rounds 1",
    "log_ratio": "--items 8 16 --repeat 1",
    "losses": "--items 16 --repeat 1",
    "scale": "--rounds 1 --smaller 15",
    "search": "--items 300 --queries 5 --rounds 1",
    "tune": "--sets diabetes --items 60 --seeds 1 --dimension 8 --shuffle --fits OUT",
    "after_fit": "--kinds spectra --steps 4 --seeds 1",
    "texts": "--seeds 1 --steps 2 2 --items 40 40 --others 20 20 --rates 1e-4 --ways LabelDistanceLoss CoSENTLoss",
    "waits": "--parts evaluation distances decoding --gallery 1000 --labels 50 --repeats 1",
    "training_step": "--steps 2 --people 160 --files 1 --rounds 1",
}
REAL = {"captions": "coco_captions", "after_fit": "nir_tablets", "class_claims": "nir_tablets"}


def draw_series(folder: Path) -> None:
    """Write sets as those of sequence_sets lie in a package that is no dependency of the tests."""
    rng = np.random.default_rng(0)
    (folder / "GunPoint").mkdir(parents=True)
    for part in ("TRAIN", "TEST"):
        rows = [
            [f"{value:.4f}" for value in np.sin(np.arange(30) / (3 + n % 2)) + rng.normal(size=30)] for n in range(40)
        ]
        lines = [f"{','.join(row)}:{n % 2 + 1}" for n, row in enumerate(rows)]
        head = "@problemName GunPoint\n@classLabel true 1 2\n@data\n"
        (folder / "GunPoint" / f"GunPoint_{part}.ts").write_text(head + "\n".join(lines), encoding="utf-8")


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("default")  # as from a shell
@pytest.mark.parametrize("title", sorted(TINY))
def test_a_benchmark_runs(
    title: str,  # the script's name, and more where it has several tiny sizes
    real_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = title.partition(" ")[0]
    if name == "sequence_sets":
        draw_series(tmp_path / "out")
    if name in REAL:
        monkeypatch.setenv("CML_DATA", str(real_data(REAL[name]).parent))
    monkeypatch.setattr(heads, "STOPS", (5, 10))  # no option of tune or of an audit makes it small
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)
    monkeypatch.setattr(audit, "_STEPS", 5)
    monkeypatch.syspath_prepend(str(FOLDER))  # some take something from another
    arguments = TINY[title].replace("OUT", str(tmp_path / "out")).split()
    figures = tmp_path / "figures.json" if "add_json_option" in BENCHMARKS[name].read_text(encoding="utf-8") else None
    if figures is not None:
        arguments += ["--json", str(figures)]
    importlib.import_module(name).main(arguments)
    said = capsys.readouterr().out
    assert said or any((tmp_path / "out").iterdir())
    if figures is not None:
        assert list(numbers(json.loads(figures.read_text(encoding="utf-8"))))


def test_every_benchmark_has_a_tiny_size_and_says_what_it_is_for() -> None:
    assert set(BENCHMARKS) == {title.partition(" ")[0] for title in TINY}
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
