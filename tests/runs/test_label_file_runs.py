"""Labels that are files: a run is trained on them, their distances are approximated, and the explorer has them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cml.cli import main

ITEMS = 44


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset whose labels are tracks of unequal length, and a run on it."""
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(0)
    for name in ("images", "steps"):
        (folder / name).mkdir()
    for number in range(ITEMS):
        shade = 5 * number
        track = np.linspace(0, number, int(rng.integers(4, 8)))[:, None] * [1.0, -1.0] + rng.normal(0, 0.1, 2)
        Image.fromarray(rng.integers(shade, shade + 9, (32, 32, 3), dtype=np.uint8)).save(
            folder / "images" / f"{number:02}.png"
        )
        np.save(folder / "steps" / f"{number:02}.npy", track)
    source = ["--images", str(folder / "images"), "--kind", "sequence", "--label-files", str(folder / "steps")]
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
