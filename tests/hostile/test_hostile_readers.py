"""Every reader of labels meets damage, links, depth, width, empty values, odd letters and endless cells."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cml.data_prep import readers
from cml.data_prep.readers import read_labels
from cml.errors import DataError, UserError

COUNT = 8
MEGABYTE = 1 << 20
ODD = [
    *("", " ", "\x00", "\u202egpj.a", "nan", "inf", "1e999", "-", "null", "9" * 400, "\ufffd", "\u0661"),
    *("../x", "/etc/passwd", "C:\\x", "=1+1", "\x1b[2J", "x" * MEGABYTE),
]


def coco() -> bytes:
    images = [{"id": n, "file_name": f"{n}.png", "width": 32, "height": 24} for n in range(COUNT)]
    entries = [
        {"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 8, 9], "keypoints": [1, 2, 2, 5, 6, 2]}
        for n in range(COUNT)
    ]
    kinds = [{"id": 1, "name": "cat", "keypoints": ["nose", "tail"]}]
    return json.dumps({"images": images, "annotations": entries, "categories": kinds}).encode()


def cells(rows: list[list[object]], mark: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=mark).writerows(rows)
    return text.getvalue().encode()


def workbook() -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in [["file_name", "value"], *([f"{n}.png", n] for n in range(COUNT))]:
        book.active.append(row)
    book.save(file)
    return file.getvalue()


def parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    sink = io.BytesIO()
    files.write_table(pa.table({"file_name": [f"{n}.png" for n in range(COUNT)], "value": list(range(COUNT))}), sink)
    return sink.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, value=np.arange(COUNT), file_name=np.array([f"{n}.png" for n in range(COUNT)]))
    return file.getvalue()


def deeplabcut() -> bytes:
    head = [["scorer", "A", "A"], ["bodyparts", "nose", "nose"], ["coords", "x", "y"]]
    return cells([*head, *([f"{n}.png", n, n + 1] for n in range(COUNT))])


def joints() -> bytes:
    names = [f"{joint}_{part}" for joint in ("nose", "tail", "ear") for part in "xy"]
    return cells([["file_name", *names], *([f"{n}.png", *range(6)] for n in range(COUNT))])


def comparisons() -> bytes:
    return cells([["left", "right", "winner"], *([f"{n}.png", f"{n + 1}.png", "left"] for n in range(COUNT))])


def ucr() -> bytes:
    return ("@data\n" + "\n".join(f"{','.join(map(str, range(9)))}:{n}" for n in range(COUNT))).encode()


def rows() -> bytes:
    return cells([["file_name", "value"], *([f"{n}.png", n] for n in range(COUNT))])


def yolo() -> bytes:
    return b"0 0.5 0.5 0.2 0.2 0.4 0.4 2 0.6 0.6 1\n" * 3


FILES: dict[str, tuple[str, str, Callable[[], bytes]]] = {  # the name of the file, the kind, and a sound one
    "arrays": ("a.npz", "numbers", npz),
    "coco": ("a.json", "keypoints", coco),
    "comparisons": ("a.csv", "numbers", comparisons),
    "deeplabcut": ("a.csv", "keypoints", deeplabcut),
    "joints": ("a.csv", "keypoints", joints),
    "parquet": ("a.parquet", "numbers", parquet),
    "rows": ("a.csv", "numbers", rows),
    "ucr": ("a.ts", "numbers", ucr),
    "xlsx": ("a.xlsx", "numbers", workbook),
    "yolo": ("0.txt", "keypoints", yolo),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        Image.new("L", (32, 24)).save(folder / f"{number}.png")
    return folder


def read(name: str, content: bytes, photos: Path, folder: Path) -> int:
    """The number of sound rows; an error has to be one line of the project's own."""
    file, kind, _ = FILES[name]
    (folder / file).write_bytes(content)
    return read_path(name, folder / file, kind, photos)


def read_path(name: str, path: Path, kind: str, photos: Path) -> int:
    sound = 0
    faults: list[Exception] = []
    try:
        for _, row in read_labels(path.parent if name == "yolo" else path, kind, format=name, images=photos):
            faults += [row] if isinstance(row, DataError) else []
            sound += not isinstance(row, DataError)
    except (DataError, UserError) as error:
        faults.append(error)
    for fault in faults:
        assert len(str(fault)) < 4000, str(fault)[:200]
    return sound


def test_every_reader_is_tried() -> None:
    assert set(FILES) == {*readers.names(), readers.PLAIN}


@pytest.mark.parametrize("name", FILES)
def test_sound_files_have_all_rows(name: str, photos: Path, tmp_path: Path) -> None:
    assert read(name, FILES[name][2](), photos, tmp_path) >= 3


@pytest.mark.parametrize("name", FILES)
def test_damage_is_an_error_of_one_line(name: str, photos: Path, tmp_path: Path) -> None:
    sound, rng = FILES[name][2](), random.Random(name)
    for turn in range(40):
        content = bytearray(sound)
        if turn % 4 == 0:
            del content[rng.randrange(len(content)) :]
        elif turn % 4 == 1:
            for _ in range(rng.randrange(1, 9)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        elif turn % 4 == 2:
            start = rng.randrange(len(content))
            content[start:start] = content[start : start + rng.randrange(200)]
        else:
            content[rng.randrange(len(content))] = rng.choice(b'\0,"\n[]{}:\t')
        read(name, bytes(content), photos, tmp_path)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("arrays", "parquet", "xlsx")])
def test_odd_texts_are_read_or_refused(name: str, photos: Path, tmp_path: Path) -> None:
    sound = FILES[name][2]().decode()
    for odd in ODD:
        for old in ("0.png", "left", "nose", "0.5", "5"):
            text = sound.replace(old, json.dumps(odd)[1:-1] if name == "coco" else odd, 2)
            read(name, text.encode(errors="replace"), photos, tmp_path)


@pytest.mark.parametrize("name", ["arrays", "parquet", "xlsx"])
def test_odd_cells_of_binary_tables_are_read(name: str, photos: Path, tmp_path: Path) -> None:
    odd = [text.replace("\x00", "") for text in ODD[:-1]]
    if name == "arrays":
        file = io.BytesIO()
        np.savez(file, value=np.array(odd), file_name=np.array(odd))
        content = file.getvalue()
    elif name == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet as files

        sink = io.BytesIO()
        files.write_table(pa.table({"file_name": odd, "value": [None, [], *[[1.0]] * (len(odd) - 2)]}), sink)
        content = sink.getvalue()
    else:
        openpyxl = pytest.importorskip("openpyxl")
        book, sink = openpyxl.Workbook(), io.BytesIO()
        for row in [["file_name", "value"], *([text.replace("\x1b", ""), None] for text in odd)]:
            book.active.append(row)
        book.save(sink)
        content = sink.getvalue()
    read(name, content, photos, tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_links_pipes_and_devices_are_no_files(name: str, photos: Path, tmp_path: Path) -> None:
    file, kind, _ = FILES[name]
    path = tmp_path / file
    for make in (lambda: path.symlink_to("/dev/zero"), lambda: path.symlink_to(path.name), lambda: os.mkfifo(path)):
        make()
        assert read_path(name, path, kind, photos) == 0
        path.unlink()


@pytest.mark.timeout(30)
def test_depth_and_width(photos: Path, tmp_path: Path) -> None:
    deep = b'{"images": ' + b"[" * 100_000 + b"]" * 100_000 + b', "annotations": []}'
    assert read("coco", deep, photos, tmp_path) == 0
    wide = {
        "images": [{"id": 1, "file_name": "0.png"}],
        "annotations": [{"id": 1, "image_id": 1, "bbox": [1] * 200_000}],
    }
    assert read("coco", json.dumps(wide).encode(), photos, tmp_path) == 0
    names = [f"j{n}_{part}" for n in range(20_000) for part in "xy"]
    assert read("joints", cells([["file_name", *names], ["0.png", *([1] * len(names))]]), photos, tmp_path) == 1
    assert read("deeplabcut", cells([["scorer", *(["A"] * 40_000)]] * 3), photos, tmp_path) == 0
    assert read("ucr", (",".join(["1"] * 200_000) + ":1\n").encode(), photos, tmp_path) == 1
