"""Folders of another format are refused by name, in one line that says what to run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.distances.jobs.run import write_matrix
from cml.distances.jobs.verify import verify
from cml.errors import DataError
from cml.feature_store.store import FeatureStore
from cml.storage.json_file import FORMAT

ROWS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
OPTIONS: dict[str, Any] = {"steps": 1, "sampler": "random(batch_size=20)", "quiet": True}


def dataset(folder: Path) -> tuple[Path, Callable[[], object]]:
    cml.prepare("diabetes", folder)
    return folder / "dataset.json", lambda: cml.open_dataset(folder)


def run(folder: Path) -> tuple[Path, Callable[[], object]]:
    cml.fit(ROWS, ROWS[:, 0], out=folder, **OPTIONS)
    return folder / "config.json", lambda: cml.load(folder)


def calibration(folder: Path) -> tuple[Path, Callable[[], object]]:
    model = cml.fit(ROWS, ROWS[:, 0], **OPTIONS)
    model.calibrate(ROWS + 1, ROWS[:, 1])
    model.save(folder)
    return folder / "calibration.json", lambda: cml.load(folder).calibration


def store(folder: Path) -> tuple[Path, Callable[[], object]]:
    images = np.zeros((2, 16, 16, 3), np.uint8)
    cml.features(images, out=folder, backbone="small-cnn", weights="none", image_size=(16, 16), quiet=True)
    return folder / "manifest.json", lambda: FeatureStore.open(folder)


def job(folder: Path) -> tuple[Path, Callable[[], object]]:
    distance = cml.distances.get("euclidean")
    labels = distance.encode(ROWS[:, 0].tolist())
    write_matrix(distance, labels, folder)
    return folder / "job.json", lambda: verify(distance, labels, folder)


MAKERS = {
    dataset: "Prepare it again|prepare it again with 'cml prepare'",
    run: "Train it again with 'cml train'",
    calibration: "Calibrate the model again: cml calibrate RUN",
    store: "Delete .* and compute the features again",
    job: "Delete .* and compute the distances again with 'cml distances'",
}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_another_format_is_refused_by_name(make: Callable[[Path], Any], tmp_path: Path) -> None:
    file, read = make(tmp_path / "made")
    content = json.loads(file.read_text("utf-8"))
    assert content["format"] == FORMAT
    read()
    for there, found in ((FORMAT + 1, f"the format {FORMAT + 1}"), ("1", "the format '1'"), (True, "the format True")):
        file.write_text(json.dumps({**content, "format": there}), "utf-8")
        with pytest.raises(DataError, match=f"{file}:? has {found}, but .* reads format {FORMAT}.*{MAKERS[make]}"):
            read()
    del content["format"]
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(DataError, match=f"{file}:? has no format, but .* reads format {FORMAT}.*{MAKERS[make]}"):
        read()
