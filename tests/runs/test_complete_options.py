"""``cml.fit``, ``cml.train`` and ``cml train`` complete the options of the same data alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml import PairJudgements, TripletJudgements, UserError
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.training.config import TrainConfig
from cml.training.vector_options import vector_options

Prepared = tuple[PreparedDataset, dict[str, Any]]  # and the same data as arguments of cml.fit
COUNT = 30
VECTORS = np.random.default_rng(0).normal(size=(COUNT, 4)).astype(np.float32)
NUMBERS = [float(number) for number in range(COUNT)]
PAIRS = np.array([(one, other, other - one) for one in range(COUNT) for other in range(one + 1, COUNT)])
TRIPLETS = np.array([(anchor, anchor + 1, (anchor + step) % COUNT) for anchor in range(COUNT - 1) for step in (5, 9)])

JUDGED_PAIRS, JUDGED_TRIPLETS = PairJudgements(PAIRS, items=COUNT), TripletJudgements(TRIPLETS, items=COUNT)


def vectors(folder: Path) -> Prepared:
    np.save(folder / "vectors.npy", VECTORS)
    write_rows(folder / "labels.csv", "age", [[number] for number in NUMBERS])
    made = {"source": folder / "labels.csv", "vectors": folder / "vectors.npy", "label_columns": ("age",)}
    return cml.prepare("table", folder / "data", **made), {"inputs": VECTORS, "labels": NUMBERS}


def table(folder: Path) -> Prepared:
    pandas = pytest.importorskip("pandas")
    rows = [[*row, number] for row, number in zip(VECTORS.tolist(), NUMBERS, strict=True)]
    write_rows(folder / "table.csv", "x0,x1,x2,x3,age", rows)
    made = {"source": folder / "table.csv", "features": ("x*",), "label_columns": ("age",)}
    frame = pandas.DataFrame(rows, columns=["x0", "x1", "x2", "x3", "age"])
    return cml.prepare("table", folder / "data", **made), {"inputs": frame, "features": "x*", "label": "age"}


def images(folder: Path) -> Prepared:
    paths = write_images(folder)
    rows = [[path.name, number] for path, number in zip(paths, NUMBERS, strict=True)]
    write_rows(folder / "labels.csv", "file_name,age", rows)
    made = {"images": folder / "images", "labels": folder / "labels.csv", "label_columns": ("age",)}
    return cml.prepare("folder", folder / "data", **made), {"inputs": paths, "labels": NUMBERS}


def pairs(folder: Path) -> Prepared:
    np.save(folder / "vectors.npy", VECTORS)
    write_rows(folder / "pairs.csv", "item,other,distance", PAIRS.tolist())
    made = {"vectors": folder / "vectors.npy", "pairs": folder / "pairs.csv"}
    return cml.prepare("judgements", folder / "data", **made), {"inputs": VECTORS, "labels": JUDGED_PAIRS}


def triplets(folder: Path) -> Prepared:
    np.save(folder / "vectors.npy", VECTORS)
    write_rows(folder / "triplets.csv", "anchor,nearer,farther", TRIPLETS.tolist())
    made = {"vectors": folder / "vectors.npy", "triplets": folder / "triplets.csv"}
    return cml.prepare("judgements", folder / "data", **made), {"inputs": VECTORS, "labels": JUDGED_TRIPLETS}


def judged_images(folder: Path) -> Prepared:
    paths = write_images(folder)
    write_rows(
        folder / "pairs.csv", "item,other,distance", [[f"{a:02g}.png", f"{b:02g}.png", far] for a, b, far in PAIRS]
    )
    made = {"images": folder / "images", "pairs": folder / "pairs.csv"}
    return cml.prepare("judgements", folder / "data", **made), {"inputs": paths, "labels": JUDGED_PAIRS}


def write_images(folder: Path) -> list[Path]:
    (folder / "images").mkdir()
    paths = [folder / "images" / f"{number:02}.png" for number in range(COUNT)]
    for number, path in enumerate(paths):
        Image.new("RGB", (24, 24), (8 * number, 0, 99)).save(path)
    return paths


def write_rows(path: Path, header: str, rows: list[list[Any]]) -> None:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows), ""]))


class Captured(UserError):
    """Carries the options that a run was about to start with."""


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[TrainConfig]:
    """The options of all runs that were about to start; none does."""
    configs: list[TrainConfig] = []

    def start(*arguments: object, **_: object) -> None:
        options = (getattr(value, "config", value) for value in arguments)  # a learner has them
        configs.append(next(value for value in options if isinstance(value, TrainConfig)))
        raise Captured("The run was about to start.")

    monkeypatch.setattr("cml.doors.train.train_task", start)
    monkeypatch.setattr("cml.doors.fit.run_learner", start)
    return configs


CHOSEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tune": {"tune": True},
    "a frozen backbone": {"freeze_backbone": True, "backbone": "small-cnn", "weights": "none"},
    "a network": {"backbone": "small-cnn", "weights": "none"},
    "a perceptron": {"backbone": "mlp(8)"},
    "epochs": {"epochs": 2},
    "steps": {"steps": 1000, "sampler": "random(batch_size=9)"},  # steps as of the recipe
}
OF_IMAGES, OF_VECTORS = ("a frozen backbone", "a network"), ("a perceptron",)


@pytest.mark.parametrize("kind", [vectors, table, images, pairs, triplets, judged_images])
def test_all_ways_to_train_complete_options_alike(
    kind: Callable[[Path], Prepared], starts: list[TrainConfig], tmp_path: Path
) -> None:
    dataset, data = kind(tmp_path)
    data_folder, out = str(dataset.folder), str(tmp_path / "run")
    for name, options in CHOSEN.items():
        if name in (OF_VECTORS if dataset.info.inputs.kind == "images" else OF_IMAGES):
            continue
        starts.clear()
        with pytest.raises(Captured):
            cml.fit(**data, **options, quiet=True)
        with pytest.raises(Captured):
            cml.train("value", dataset, out, **options)
        flags = [word for option in options.items() for word in as_words(*option)]
        assert main(["train", "value", "--data", data_folder, "--out", out, *flags]) == 2
        by_fit, by_train, by_command = [asdict(config) for config in starts]
        assert by_command == by_train, name
        assert by_fit.pop("label_distance") in ("euclidean", "judged-pairs", "judged-triplets")
        assert by_train.pop("label_distance") == "dataset"  # which dataset.json names
        assert by_fit == by_train, name


def as_words(name: str, value: Any) -> list[str]:  # noqa: ANN401
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def test_completed_options_suit_inputs_and_labels(starts: list[TrainConfig], tmp_path: Path) -> None:
    expected: dict[Any, dict[str, Any]] = {
        vectors: vector_options(),
        images: {},
        pairs: {**vector_options(), "loss": "pair-log-ratio", "sampler": "pairs", "head_start": "pca", "steps": 200},
        judged_images: {"loss": "pair-log-ratio", "sampler": "linked"},
    }
    for kind, options in expected.items():
        folder = tmp_path / kind.__name__
        folder.mkdir()
        with pytest.raises(Captured):
            cml.train("value", kind(folder)[0], folder / "run")
        assert starts[-1] == TrainConfig(label_distance="dataset", **options)


def test_a_perceptron_is_trained_on_judged_vectors(tmp_path: Path) -> None:
    """Its batches are of judged items as they are for any network, not lists of pairs for a head alone."""
    dataset, _ = pairs(tmp_path)
    run = cml.train("value", dataset, tmp_path / "run", backbone="mlp(8)", steps=2, quiet=True)
    assert (run.config.train.sampler, run.config.train.head_start) == ("linked", "auto")
