"""Labels that are files, through every command: trained, evaluated, audited, calibrated, approximated and explored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main

ITEMS = 64  # of which more than 30 are held out, which a calibration asks for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset whose labels are tracks of unequal length, and a run on it."""
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(0)
    for name in ("images", "steps"):
        (folder / name).mkdir()
    for number in range(ITEMS):
        shade = 3 * number
        track = np.linspace(0, number, int(rng.integers(4, 8)))[:, None] * [1.0, -1.0] + rng.normal(0, 0.1, 2)
        Image.fromarray(rng.integers(shade, shade + 9, (32, 32, 3), dtype=np.uint8)).save(
            folder / "images" / f"{number:02}.png"
        )
        np.save(folder / "steps" / f"{number:02}.npy", track)
    source = ["--images", str(folder / "images"), "--kind", "sequence", "--label-files", str(folder / "steps")]
    source += ["--test-fraction", "0.5"]
    assert main(["prepare", "folder", *source, "--query-fraction", "1", "--out", str(folder / "data")]) == 0
    options = [
        "--backbone",
        "small-cnn",
        "--weights",
        "none",
        "--steps",
        "3",
        "--sampler",
        "random(batch_size=12)",
        "--device",
        "cpu",
    ]
    assert main(["train", "value", "--data", str(folder / "data"), "--out", str(folder / "run"), *options]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("short_audit")
@pytest.mark.filterwarnings("ignore:The calibration has 32 items:UserWarning")
def test_a_run_is_evaluated_audited_and_calibrated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(folder / "run"), "--device", "cpu"]) == 0
    assert "oracle" in capsys.readouterr().out
    run = cml.open_run(folder / "run", device="cpu")
    dataset = cml.open_dataset(folder / "data")
    tracks = [np.load(folder / "steps" / f"{Path(item).stem}.npy") for item in dataset.split("query").item_ids]
    given = run.model.evaluate(dataset.split("query").paths, tracks).rows
    rows = run.evaluate().rows
    for name in ("embedding", "oracle"):
        shared = rows[name].keys() & given[name].keys()
        assert shared
        for metric in shared:
            assert rows[name][metric].mean == pytest.approx(given[name][metric].mean, rel=1e-4), metric
    assert main(["audit", str(folder / "run"), "--device", "cpu"]) == 0
    assert " steps: " in capsys.readouterr().out
    assert main(["calibrate", str(folder / "run"), "--device", "cpu"]) == 0


def test_its_distances_are_listed_and_approximated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [str(folder / "data"), "--role", "all"]
    assert main(["distances", *data, "--neighbors", "5", "--out", str(folder / "lists")]) == 0
    assert main(["distances", *data, "--neighbors", "5", "--budget", "100%", "--out", str(folder / "asked")]) == 0
    ids, wanted = (np.load(folder / name / "distances.npy") for name in ("asked", "lists"))
    np.testing.assert_allclose(np.sort(ids, axis=1), np.sort(wanted, axis=1), rtol=1e-6)
    assert "100" in capsys.readouterr().out


def test_the_explorer_holds_its_sequences(folder: Path) -> None:
    assert main(["explore", str(folder / "run"), "--maps", "pca", "--beside", "oracle", "--device", "cpu"]) == 0
    page = (folder / "run" / "explorer.html").read_text()
    meta = json.loads(page.split('id="meta">')[1].split("</script>")[0])
    assert meta["sequences"] == {"width": 2, "band": 0, "open_ends": 0, "is_sum": True, "period": 0}
    assert meta["arrays"]["step_ends"][2] == ITEMS


def test_its_labels_are_a_part_of_others(folder: Path) -> None:
    split = cml.open_dataset(folder / "data").split("train")
    labels = [{"way": label, "age": float(number)} for number, label in enumerate(split.labels)]
    both = cml.distances.get("combined", parts={"way": "dtw(band=4)", "age": "euclidean"})
    sampler = "random(batch_size=12)"
    settings: dict[str, Any] = {
        "backbone": "small-cnn",
        "weights": "none",
        "steps": 2,
        "sampler": sampler,
        "device": "cpu",
        "quiet": True,
    }
    model = cml.fit(split.paths, labels, label_distance=both, **settings)
    assert {"embedding", "oracle"} < model.evaluate(split.paths, labels).rows.keys()
    labels[3] = {"way": ["1 2", "3"], "age": 1.0}
    with pytest.raises(cml.UserError, match=r"Label 3 part 'way' should be a sequence of numbers"):
        cml.fit(split.paths, labels, label_distance=both, **settings)
