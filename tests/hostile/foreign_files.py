"""Sound files in the formats of other programs, and changes to them, for the series of hostile inputs.

Parquet tables, folders and archives of the Hugging Face form, COCO's annotations, MATLAB files, tubs, photographs and
results of the benchmark. Not for: running commands on them (hostile_inputs.py).
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
_COUNT = 24
Bytes = Callable[[bytes, random.Random], bytes]


def make_foreign_files(place: Path) -> None:
    """Write one sound input of each format into a folder."""
    images = [_photo(number) for number in range(_COUNT)]
    (place / "tables").mkdir()
    (place / "tables" / "train-0.parquet").write_bytes(_table(images))
    (place / "tables" / "README.md").write_text(_README[0])
    for name in ("pictures", "pictures_csv", "im"):
        (place / name).mkdir()
        for number, content in enumerate(images):
            (place / name / f"{number:02}.png").write_bytes(content)
    lines = [{"file_name": f"{number:02}.png", "label": number / 3, "words": "a dog"} for number in range(_COUNT)]
    (place / "pictures" / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = "file_name,label,words\n" + "".join(f"{number:02}.png,{number / 3},a dog\n" for number in range(_COUNT))
    (place / "pictures_csv" / "metadata.csv").write_text(table)
    (place / "archives").mkdir()
    samples = {f"a/{n:02}.png": content for n, content in enumerate(images)}
    samples |= {f"a/{n:02}.cls": b"%d" % n for n in range(_COUNT)}
    samples |= {f"a/{n:02}.json": b'{"x": [1]}' for n in range(_COUNT)}
    (place / "archives" / "train.tar").write_bytes(_tar(samples, "w"))
    (place / "tub.tar.gz").write_bytes(_tar(_tub(images), "w:gz"))
    _write_coco(place / "coco")
    _write_lspet(place / "lspet")
    digits = Path("2026.3/digits/A-efficientnet-lite0")
    (place / "results" / digits).mkdir(parents=True)
    shutil.copy(ROOT / "results" / digits / "cosent.json", place / "results" / digits)
    (place / "tables.csv").write_text("file_name,value\n" + "".join(f"{n:02}.png,{n}\n" for n in range(_COUNT)))


def _photo(number: int, side: int = 20, kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def _table(images: Sequence[bytes]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    count = len(images)
    stored = [{"bytes": content, "path": None} for content in images]
    table = pa.table(
        {
            "image": pa.array(stored, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            "label": [number / 3 for number in range(count)],
            "kind": [number % 4 for number in range(count)],
            "words": [["a dog", f"photo {number}"] for number in range(count)],
        }
    )
    file = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(_FEATURES)}), file)
    return file.getvalue()


_FEATURES = {
    "info": {
        "features": {
            "image": {"_type": "Image"},
            "label": {"_type": "Value", "dtype": "float64"},
            "kind": {"_type": "ClassLabel", "names": ["oak", "elm", "ash", "fir"]},
        }
    }
}
_README = (
    "---\nlicense: mit\n---\n# Photographs\n",
    "---\nconfigs:\n- config_name: default\n  data_files: ../canary/c.npy\n---\n",
    "---\nconfigs:\n- config_name: default\n  data_files: http://127.0.0.1:9/x.parquet\n---\n",
    "---\nconfigs:\n- config_name: default\n  data_files: hf://datasets/nobody/nothing/x.parquet\n---\n",
    "---\ndata_files: [[[[\nconfigs: *a\n",
    "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]\nconfigs:\n---\n",
)


def _tar(members: Mapping[str, bytes], mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name in sorted(members):
            member = tarfile.TarInfo(name)
            member.size = len(members[name])
            archive.addfile(member, io.BytesIO(members[name]))
    return file.getvalue()


def _tub(images: Sequence[bytes]) -> dict[str, bytes]:
    frames = []
    files = {"manifest.json": b'[]\n{"deleted_indexes": [3]}'}
    for number in range(60):
        frames.append({"_index": number, "cam/image_array": f"{number}_.jpg", "user/angle": number / 60})
        files[f"images/{number}_.jpg"] = _photo(number, kind="JPEG")
    return files | {"catalog_0.catalog": "\n".join(map(json.dumps, frames)).encode()}


def _write_coco(folder: Path) -> None:
    from cml.data_prep.sources.coco_keypoints import COCO_JOINTS

    photos, people, captions = [], [], []
    (folder / "val2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for number in range(1, 41):
        name = f"{number:012}.jpg"
        (folder / "val2017" / name).write_bytes(_photo(number, 64, "JPEG"))
        photos.append({"id": number, "file_name": name, "height": 64, "width": 64})
        joints = np.random.default_rng(number).integers(5, 60, (17, 2)).tolist()
        person = {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "area": 9000.5, "num_keypoints": 17}
        flat = [value for joint in joints for value in (*joint, 2)]
        people.append(person | {"bbox": [1, 2, 55.5, 58], "keypoints": flat})
        captions.append({"id": number, "image_id": number, "caption": f"a dog and {number} balls"})
    category = {"id": 1, "name": "person", "keypoints": list(COCO_JOINTS)}
    for name, content in (
        ("person_keypoints", {"images": photos, "annotations": people, "categories": [category]}),
        ("captions", {"images": photos, "annotations": captions}),
    ):
        (folder / "annotations" / f"{name}_val2017.json").write_text(json.dumps(content))


def _write_lspet(folder: Path) -> None:
    from scipy.io import savemat

    (folder / "images").mkdir(parents=True)
    for number in range(1, _COUNT + 1):
        (folder / "images" / f"im{number:05}.jpg").write_bytes(_photo(number, 64, "JPEG"))
    joints = np.random.default_rng(0).integers(5, 60, (14, 3, _COUNT)).astype(float)
    joints[:, 2] = 1
    savemat(folder / "joints.mat", {"joints": joints})


# ---- changes


def changed_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few bits flipped; cut short; a block moved, repeated, deleted or put in."""
    data = bytearray(content)
    size = len(data)
    start, end = sorted(_place(size, rng) for _ in range(2))
    kind = rng.choice(("flip", "flip", "cut", "swap", "repeat", "delete", "insert", "number", "zeros"))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 3, 30))):
            if size:
                data[_place(size, rng)] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[start:]
    elif kind == "swap":
        middle = rng.randint(start, end)
        data[start:end] = data[middle:end] + data[start:middle]
    elif kind == "repeat":
        data[end:end] = data[start : min(end, start + (1 << 20))] * rng.choice((1, 2, 8))
    elif kind == "delete":
        del data[start : min(end, start + rng.choice((1, 4, 100)))]
    elif kind == "insert":
        data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))
    elif kind == "number":
        width = rng.choice((1, 2, 4, 8))
        value = rng.choice((0, 1, 127, 128, (1 << 8 * width - 1) - 1, (1 << 8 * width) - 1))
        data[start : start + width] = value.to_bytes(width, rng.choice(("little", "big")))
    else:
        data[start : start + rng.choice((1, 16, 1000))] = bytes(rng.choice((1, 16, 1000)))
    return bytes(data)


def _place(size: int, rng: random.Random) -> int:
    """A place in a file: often near its start or end, where headers and footers are."""
    share = rng.choice((rng.random(), rng.random() ** 5, 1 - rng.random() ** 5))
    return min(max(size - 1, 0), int(size * share))


_ODD_VALUES: tuple[Any, ...] = (
    *([None] * 2, [1, 2], ["x", ""], [float("nan"), 1e308], [[1.0], []], [{"a": 1}, None], [b"\xff", b""]),
    *([True, False], [[["x"]]] * 2, [2**62, -1], ["\u202e", "x" * 5000]),
)


def changed_table(content: bytes, rng: random.Random) -> bytes:
    """A sound Parquet file with a column of another type, other notes of its types, other rows, or none."""
    import pyarrow as pa
    from fuzz_parsers import changed_json
    from pyarrow import parquet

    if rng.random() < 0.5:
        return changed_bytes(content, rng)
    table = parquet.read_table(io.BytesIO(content))
    kind = rng.choice(("column", "column", "notes", "rows", "empty", "rename", "packed"))
    options: dict[str, Any] = {"compression": rng.choice(("none", "snappy", "zstd", "gzip", "brotli"))}
    if kind == "column":
        values = rng.choice(_ODD_VALUES)
        at = rng.randrange(table.num_columns)
        column = pa.array([values[row % len(values)] for row in range(len(table))])
        table = table.set_column(at, table.column_names[at], column)
    elif kind == "notes":
        notes = changed_json(json.dumps(_FEATURES).encode(), 1 << 16, rng.getrandbits(60))
        table = table.replace_schema_metadata({"huggingface": notes})
    elif kind == "rows":
        table = pa.concat_tables(
            [table, pa.table({"image": pa.nulls(100_000, table.schema.field(0).type)})], promote_options="default"
        )
    elif kind == "empty":
        table = table.slice(0, rng.choice((0, 1)))
    elif kind == "rename":
        names = [rng.choice(("image", "label", "", "a.b", "x" * 300, "file_name", "../x")) for _ in table.column_names]
        table = table.rename_columns(names)
    else:
        stored = [{"bytes": bytes(1 << 22), "path": None}] * len(table)
        table = table.set_column(0, "image", pa.array(stored, table.schema.field(0).type))
        options |= {"compression": "zstd", "use_dictionary": rng.random() < 0.5}
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def changed_readme(content: bytes, rng: random.Random) -> bytes:
    """A README that names other files, or is no YAML."""
    return changed_bytes(rng.choice(_README).encode(), rng) if rng.random() < 0.3 else rng.choice(_README).encode()


def changed_zip(content: bytes, rng: random.Random) -> bytes:
    """An archive of arrays of which one is another, is packed from far more zeros, or claims another shape."""
    if rng.random() < 0.4:
        return changed_bytes(content, rng)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            member = old.read(name)
            if name == chosen:
                member = _changed_member(member, rng)
            new.writestr(rng.choice((name, name, "../x")) if name == chosen else name, member)
            if name == chosen and rng.random() < 0.1:
                new.writestr(f"{name}.more", bytes(1 << 24))
    return file.getvalue()


def _changed_member(member: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(("bytes", "shape", "zeros", "empty"))
    if kind == "bytes":
        return changed_bytes(member, rng)
    if kind == "shape":
        header = {"descr": "<u2", "fortran_order": False, "shape": rng.choice(((5, 10**6, 10**6), (-1, 2), (0,), (3,)))}
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, header)
        return file.getvalue() + member[128:]
    return member + bytes(1 << 26) if kind == "zeros" else b""


def changed_text(content: bytes, rng: random.Random) -> bytes:
    """JSON with a key twice, nested without end, or with a number of thousands of digits or none that JSON knows."""
    keys = [match for match in (b'"file_name"', b'"id"', b'"label"', b'"item_id"', b'"name"') if match in content]
    kind = rng.choice(("twice", "deep", "number"))
    if kind == "twice" and keys:
        key = rng.choice(keys)
        return content.replace(key, key + b": 1, " + key, 1)
    if kind == "deep":
        deep = rng.choice(
            (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"[" * 900 + b"]" * 900)
        )
        return content.replace(b"1", deep, 1)
    return content.replace(b"1", rng.choice((b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"1e308", b"1_0")), 1)


CHANGES: dict[str, Bytes] = {
    "any bytes": changed_bytes,
    "parquet": changed_table,
    "readme": changed_readme,
    "zip": changed_zip,
    "text": changed_text,
}


def _both(command: str) -> tuple[str, str]:
    """A command of ``prepare``, and the same that skips bad items."""
    out = f"out/{re.sub(r'[^a-z_]+', '-', command)}"
    return f"prepare {command} --out {out}", f"prepare {command} --out {out}-skipped --skip-bad"


def _hf(folder: str) -> tuple[str, ...]:
    labels = "--label-columns label", "--kind captions --label-columns words"
    return tuple(command for label in labels for command in _both(f"hf:./{folder} {label}"))


_TABLES = (*_hf("tables"), *_both("hf:./tables --kind classes --label-columns kind"))
_COCO = (*_both("coco_keypoints --source coco"), *_both("coco_captions --source coco"))
_IMAGES = (
    *_both("folder --images im --labels tables.csv"),
    "prepare folder --images im --labels tables.csv --out out/small --image-size 16",
    "embed run --images im --out out/e --device cpu",
    "search index im/03.png --run run --html out/p.html",
)
_CHECK = ("bench check results",)
FOREIGN: list[tuple[str, str, str, tuple[str, ...]]] = [  # what is read, what is changed, how, the commands
    *[("tables", "tables/train-0.parquet", "parquet", _TABLES)] * 6,
    ("tables", "tables/README.md", "readme", _TABLES),
    *[("pictures", "pictures/metadata.jsonl", how, _hf("pictures")) for how in ("json", "text")],
    ("pictures_csv", "pictures_csv/metadata.csv", "any bytes", _hf("pictures_csv")),
    *[("archives", "archives/train.tar", "any bytes", _both("hf:./archives --image png --label-columns cls"))] * 2,
    *[("tub.tar.gz", "tub.tar.gz", "any bytes", _both("donkeycar --source tub.tar.gz --gap 0"))] * 2,
    *[("coco", "coco/annotations/*.json", how, _COCO) for how in ("json", "text", "any bytes", "json")],
    ("coco", "coco/val2017/000000000003.jpg", "any bytes", _COCO),
    *[("lspet", "lspet/joints.mat", "any bytes", _both("lspet --source lspet"))] * 3,
    *[("im tables.csv run index photos", "im/03.png", "any bytes", _IMAGES)] * 3,
    *[("results", "results/**/cosent.json", how, _CHECK) for how in ("json", "text")],
]
