"""Photographs that were shrunk when they were prepared: their files count as what the model was trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.errors import DataError

SHORT: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (24, 24), "steps": 1, "quiet": True}
COUNT, SMALL = 60, 10  # the first photographs are small enough to be kept as they are


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs with their labels beside it."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = ["file_name,value"]
    (folder / "images").mkdir()
    for number in range(COUNT):
        side = 24 if number < SMALL else 48
        pixels = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"images/{number}.png")
        lines.append(f"{number}.png,{rng.uniform(20, 80):.2f}")
    (folder / "ages.csv").write_text("\n".join(lines))
    return folder


def prepare(photos: Path, out: Path, **options: Any) -> PreparedDataset:  # noqa: ANN401
    return cml.prepare(
        "folder", out, images=photos / "images", labels=photos / "ages.csv", kind="numbers", image_size=32, **options
    )


def test_originals_are_known_to_index_and_search(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = prepare(photos, tmp_path / "set")
    trained = set(dataset.split("train").item_ids)
    shrunk = {name for name in trained if int(name.removesuffix(".png")) >= SMALL}
    assert len(dataset.originals) == len(shrunk) < len(trained)
    run = tmp_path / "run"
    cml.train("value", dataset, run, sampler="random(batch_size=16)", device="cpu", **SHORT)
    index = cml.index(run, photos / "images", tmp_path / "index", quiet=True, device="cpu")
    with Image.open(photos / "images/0.png") as image:
        hits = index.search([image.convert("RGB")], COUNT)[0]
    assert {hit.item_id for hit in hits if hit.is_trained} == trained
    capsys.readouterr()
    for number in range(COUNT):  # of one that was trained on, and of one that was not
        assert main(["search", str(tmp_path / "index"), str(photos / f"images/{number}.png"), "--k", "1"]) == 0
        assert (f"{number}.png, training item" in capsys.readouterr().out) == (f"{number}.png" in trained)
        if number >= SMALL and f"{number}.png" not in trained:
            break
    model = cml.load(run, device="cpu")
    known = model.find_training_items([photos / f"images/{number}.png" for number in range(COUNT)])
    assert known.sum() == len(trained)


def test_they_are_the_same_however_it_was_prepared(photos: Path, tmp_path: Path) -> None:
    alone, others = prepare(photos, tmp_path / "alone"), prepare(photos, tmp_path / "others")
    assert (alone.folder / "originals.npy").read_bytes() == (others.folder / "originals.npy").read_bytes()
    whole = cml.prepare(
        "folder",
        tmp_path / "whole",
        images=photos / "images",
        labels=photos / "ages.csv",
        kind="numbers",
        image_size=64,
    )
    assert not len(whole.originals)
    assert not (tmp_path / "whole/originals.npy").exists()


@pytest.mark.parametrize("content", [b"", b"x" * 99, "a bit"])
def test_a_damaged_file_is_one_line(content: bytes | str, photos: Path, tmp_path: Path) -> None:
    path = prepare(photos, tmp_path / "set").folder / "originals.npy"
    sound = path.read_bytes()
    path.write_bytes(content if isinstance(content, bytes) else sound[:-20] + bytes([sound[-20] ^ 1]) + sound[-19:])
    with pytest.raises(DataError, match=r"originals\.npy is damaged.*Prepare the dataset again, or delete the file"):
        cml.open_dataset(tmp_path / "set")
    path.unlink()
    assert not len(cml.open_dataset(tmp_path / "set").originals)
