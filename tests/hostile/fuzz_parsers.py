"""The parsers that fuzz.py feeds and test_fuzz_findings.py replays: each with small valid first inputs, made here.

An input of several files is one text of them with ``CUT`` between. Not for: running libFuzzer (fuzz.py).
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import io
import json
import random
import struct
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

from cml.errors import DataError, UserError

CUT = b"\n-----\n"
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, 1e308, -1e308, 1e999, float("nan"), 2**31, 2**63, 2**64, 10**400),
    *("", " ", "..", "/", "a/../b", "x" * 300, "\x00", "\ud800", "‮", "1", "train", "query", [], {}, [[]], [[[[]]]]),
)


@dataclass(frozen=True)
class Parser:
    """One parser.

    Attributes:
        seeds: Makes the first inputs.
        run: Parses an input; gets an empty folder that stays between calls.
        words: What libFuzzer may put in.
        is_json: Inputs are JSON texts or lines, changed as trees.
    """

    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes, Path], object]
    words: Sequence[bytes] = ()
    is_json: bool = False


def changed_json(data: bytes, longest: int, seed: int) -> bytes:
    """A mutator for JSON texts: changes one value in one text or line, or now and then bytes."""
    rng = random.Random(seed)
    parts = data.split(CUT)
    if rng.random() < 0.7:
        at = rng.randrange(len(parts))
        lines = [parts[at]] if rng.random() < 0.3 else parts[at].split(b"\n")
        line = rng.randrange(len(lines))
        with contextlib.suppress(ValueError, RecursionError):
            lines[line] = json.dumps(_changed(json.loads(lines[line]), rng)).encode()
            parts[at] = b"\n".join(lines)
            if len(changed := CUT.join(parts)) <= longest:
                return changed
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((0, 1, 1, 4, 40)))
    other = rng.randrange(len(data) + 1)
    put = rng.choice((b"", rng.randbytes(rng.choice((1, 1, 4))), data[other : other + 40], rng.choice(_JSON_WORDS)))
    return (data[:start] + put + data[end:])[:longest]


def _changed(tree: Any, rng: random.Random) -> Any:  # noqa: ANN401 - any JSON
    if not isinstance(tree, list | dict) or not tree or rng.random() < 0.2:
        return rng.choice([rng.choice(_ODD), [tree], [tree, tree], {"a": tree}, str(tree), tree])
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key = rng.choice(keys)
    action = rng.random()
    if action < 0.1:
        del tree[key]
    elif action < 0.2 and isinstance(tree, list):
        tree.insert(key, tree[key])
    elif action < 0.2 and isinstance(tree, dict):
        tree[rng.choice([*keys, "x", ""])] = tree.pop(key)
    else:
        tree[key] = _changed(tree[key], rng)
    return tree


# ---- prepared datasets

_INFO = dict.fromkeys(("name", "task", "label_unit", "frame", "source", "licence"), "x") | {
    "format": 1,
    "label_column": "value",
    "counts": {"train": 2, "query": 1, "gallery": 1},
    "details": {"ids": {"1": "wall"}, "ignore_id": 0, "joints": ["a"]},
    "made_with": {},
}


def _lines(*entries: object) -> bytes:
    return "\n".join(map(json.dumps, entries)).encode()


def _dataset(label: object, column: str = "value", **more: object) -> bytes:
    def line(number: int, role: str) -> dict[str, object]:
        item = f"{role} {number}"
        return {"file_name": f"images/{number}.png", "item_id": item, "role": role, column: label, **more}

    return CUT.join(
        [
            json.dumps({**_INFO, "label_column": column}).encode(),
            _lines(line(1, "train"), line(2, "train")),
            _lines(line(1, "query"), line(2, "gallery")),
        ]
    )


def _metadata_seeds() -> list[bytes]:
    return [
        _dataset(1.5),
        _dataset([1, 2.5]),
        _dataset([[1, 2, 1], [0, 0, 0]], "keypoints"),
        _dataset(["a dog", "ein Hund \u2028"], "captions"),
        _dataset("masks/1.png", "layout_file_name"),
        _dataset("poodle", "class", other=[1]),
    ]


def _metadata(data: bytes, folder: Path) -> None:
    from cml.data.check_dataset import check_dataset
    from cml.data.prepared import PreparedDataset

    for name in ("train", "test"):
        if not (folder / name).exists():
            for below in ("images", "masks"):
                (folder / name / below).mkdir(parents=True)
            for path in ("images/1.png", "images/2.png", "masks/1.png"):
                Image.new("L", (2, 2), 1).save(folder / name / path)
    parts = [*data.split(CUT), b"", b""]
    for name, part in zip(("dataset.json", "train/metadata.jsonl", "test/metadata.jsonl"), parts, strict=False):
        (folder / name).write_bytes(part)
    if len(data) % 8 == 0:  # it decodes every image
        check_dataset(folder)
    dataset = PreparedDataset.open(folder)
    assert all(str(path.resolve()).startswith(str(folder.resolve())) for path in dataset.split("train").paths)


# ---- choices


def _choice(data: bytes, folder: Path) -> None:
    from cml import distances, losses
    from cml.registry import Choice

    text = data.decode("utf-8", "replace")
    parsed = Choice.parse(text)
    assert Choice.parse(str(parsed)) == parsed or _has_nan(parsed.settings), (text, str(parsed))
    if parsed.name not in ("captions", "precomputed", "language-guidance"):  # they open files of any name
        for registry in (distances.registry, losses.registry):
            with contextlib.suppress(UserError):
                registry.make(parsed)


def _has_nan(value: object) -> bool:
    return "nan" in repr(value)


def _choice_seeds() -> list[bytes]:
    return [
        b"log-ratio",
        b"log-ratio(weights=rank, floor_quantile=0.05)",
        b"binary(loss=multi-similarity(beta=40), k=5)",
        b'keypoints(normalization=torso, flags=[1, 2.5, (3,)], name="a-b")',
        b"euclidean(scale=-1e-3)",
        b"combined(parts={'a': 'euclidean', 'b': 'jaccard'}, weights={'a': 1, 'b': 2})",
        b"pml(loss=CircleLoss(m=0.4))",
    ]


# ---- word vectors


def _vectors(data: bytes, folder: Path) -> None:
    from cml.word_vectors.open import open_word_vectors

    path = folder / "v.npy"
    file, _, words = data.partition(CUT)
    path.write_bytes(file)
    path.with_suffix(".txt").write_bytes(words)
    vectors = open_word_vectors(str(path))
    found = vectors.find(["the", "a", "", "\ud800", "ein wort"])
    vectors.rows(np.array(sorted(found.values()), np.int64))


def _vector_seeds() -> list[bytes]:
    array = io.BytesIO()
    np.save(array, np.eye(2, 3, dtype=np.float32))
    binary = b"2 3\n" + b"".join(word + b" " + struct.pack("<3f", 1, 2, 3) + b"\n" for word in (b"the", b"a"))
    return [
        b"the 1 2.5 -3e-2\na 0 1 2\nein 1 2 3\n",
        b"2 3\nthe 1 2 3\na 4 5 6\n",
        binary,
        array.getvalue() + CUT + b"the\na\n",
    ]


# ---- arrays


def _array(data: bytes, folder: Path) -> None:
    from cml.distances.precomputed import Precomputed

    first, cut, second = data.partition(CUT)
    (folder / "lists").mkdir(exist_ok=True)
    (folder / "lists" / "ids.npy").write_bytes(first)
    (folder / "lists" / "distances.npy").write_bytes(second)
    if data.startswith(b"PK"):
        (folder / "lists" / "triples.npz").write_bytes(data)
        distance = Precomputed(str(folder / "lists" / "triples.npz"))
        distance.known_pairs(distance.encode([0, 1]))
    else:
        distance = Precomputed(str(folder / "lists" if cut else folder / "lists" / "ids.npy"))
    rows = distance.encode([0, 1, 0])
    distance.pairwise(rows, rows)
    distance.fingerprint()


def _saved(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _array_seeds() -> list[bytes]:
    ids, distances = np.array([[1, -1], [0, 1]], np.int32), np.array([[0.5, 2], [1, 3]], np.float32)
    return [
        _saved(np.array([[0, 2.5], [2.5, 0]], np.float32)),
        _saved(np.asfortranarray(np.array([[0, 2.5], [2.5, 0]]))),
        _saved(ids) + CUT + _saved(distances),
        *(_triples(save) for save in (np.savez, np.savez_compressed)),
    ]


def _triples(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, i=[0, 1, 4], j=[1, 2, 4], distance=[0.5, 2, 0], items=9, symmetric=1)
    return file.getvalue()


# ---- .mat files


def _mat(data: bytes, folder: Path) -> None:
    from cml.data_prep.sources import cars, lspet, lsun_layout, mpii

    path = folder / "layout.mat"
    path.write_bytes(data)
    (folder / "training.mat").write_bytes(data)
    for read in (
        lambda: collections.deque(mpii.read_people(path)),
        lambda: cars.read_annotations(path),
        lambda: lspet.read_joints(path),
        lambda: lsun_layout.read_layout(path),
        lambda: lsun_layout.read_index(folder / "training.mat"),
    ):
        with contextlib.suppress(DataError):
            read()


def _mat_seeds() -> list[bytes]:
    from scipy.io import savemat

    point = {"x": 3.0, "y": 4.0, "id": 2, "is_visible": "1"}
    rect = {"scale": 1.5, "objpos": {"x": 10.0, "y": 12.0}, "annopoints": {"point": [point, {**point, "id": 3}]}}
    annolist = [{"image": {"name": "a.jpg"}, "annorect": rect, "vididx": 1}] * 2
    rooms = np.zeros((1, 2), [(name, object) for name in ("image", "scene", "type", "point", "resolution")])
    for place in range(2):
        rooms[0, place] = (f"im{place}", "bedroom", 4.0, np.ones((2, 2)), np.ones((1, 2)))
    cars = np.zeros((1, 2), [("relative_im_path", object), ("class", object), ("test", object)])
    for place in range(2):
        cars[0, place] = (f"car_ims/{place}.jpg", 1.0 + place, 0.0)
    names = np.array(["AM General", "Audi"], object)
    seeds = []
    for content in (
        {"RELEASE": {"annolist": annolist, "img_train": [1, 0]}},
        {"annotations": cars, "class_names": names},
        {"joints": np.ones((14, 3, 2))},
        {"layout": np.ones((4, 4), np.uint8)},
        {"training": rooms},
    ):
        for packed in (False, True):
            file = io.BytesIO()
            savemat(file, content, do_compression=packed)
            seeds.append(file.getvalue())
    return seeds


# ---- annotations in JSON


def _annotations(data: bytes, folder: Path) -> None:
    from cml.data_prep.sources import coco_captions, coco_keypoints, mpii, zind_layouts

    path = folder / "a.json"
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        for person in coco_keypoints.read_coco(path)[1]:
            with contextlib.suppress(DataError):
                coco_keypoints.read_joints(person, "a")
                coco_keypoints.person_square(person, 0.25, "a")
    with contextlib.suppress(DataError):
        for photo in coco_captions.read_captions(path, folder, 2017).values():
            str(photo)
    with contextlib.suppress(DataError):
        coco_captions.read_karpathy(path)
    with contextlib.suppress(DataError):
        collections.deque(mpii.read_people(path))
    with contextlib.suppress(DataError):
        zind_layouts.ZindLayouts(folder)._roles(path)


def _annotation_seeds() -> list[bytes]:
    from cml.data_prep.sources.coco_keypoints import COCO_JOINTS

    person = {
        **{"id": 1, "image_id": 7, "category_id": 1, "iscrowd": 0, "area": 900.5, "bbox": [1, 2, 30, 40.5]},
        **{"keypoints": [1, 2, 2] * 17, "num_keypoints": 17},
    }
    photo = {"id": 7, "file_name": "000000000007.jpg", "height": 48, "width": 64}
    category = {"id": 1, "name": "person", "keypoints": list(COCO_JOINTS)}
    mpii = {"image": "a.jpg", "center": [3, 4], "scale": 1.5, "joints": [[1, 2]] * 16, "joints_vis": [1] * 16}
    return [
        json.dumps(value).encode()
        for value in (
            {"images": [photo], "annotations": [person], "categories": [category]},
            {"images": [photo], "annotations": [{"id": 1, "image_id": 7, "caption": "a dog"}], "info": {}},
            {"images": [{"cocoid": 7, "split": "restval", "filename": "a.jpg", "sentences": []}]},
            [mpii, mpii],
            {"rooms": {"a": {"panos": ["p"]}, "b": {"panos": ["q"]}}, "suggested_split": {"test_rooms": ["b"]}},
        )
    ]


# ---- indexes and embeddings


def _index(data: bytes, folder: Path) -> None:
    from cml.searching.index import Index
    from cml.searching.index_file import FILE

    (folder / FILE).write_bytes(data)
    index = Index.open(folder)
    for hits in index.search(np.zeros((1, index.dimension), np.float32), min(2, max(1, len(index)))):
        for hit in hits:
            assert str(folder) not in str(hit.path)


def _index_seeds() -> list[bytes]:
    import tempfile

    from cml.searching.index import Index
    from cml.searching.index_file import FILE

    with tempfile.TemporaryDirectory() as place:
        index = Index.create(Path(place) / "index", dimension=3, digest="m")
        index.add(np.eye(3, dtype=np.float32), ["a", "b", "c"], [1, "x", [2.5]], columns=[{"site": 3}] * 3)
        index.remove(["b"])
        return [(index.folder / FILE).read_bytes()]


# ---- run folders


def _run(data: bytes, folder: Path) -> None:
    import torch

    from cml import distances
    from cml.retrieval.results import Evaluation
    from cml.storage.json_file import read_json
    from cml.training import metrics_log, saved_model
    from cml.training.saved_model import RunConfig

    names = ("config.json", "metrics.jsonl", "evaluation.json", "model.safetensors")
    for name, part in zip(names, [*data.split(CUT), b"", b"", b""], strict=False):
        (folder / name).write_bytes(part)
    with contextlib.suppress(DataError):
        metrics_log.read_metrics(folder / "metrics.jsonl")
    with contextlib.suppress(DataError):
        Evaluation.from_json(read_json(folder / "evaluation.json", "it")).table()
    config = RunConfig.load(folder)
    config.save(folder)
    distances.registry.make(config.label_distance.replace("precomputed", "").replace("captions", ""))
    saved_model.load_model(folder, config.model, torch.device("cpu"))


def _run_seeds() -> list[bytes]:
    import torch
    import torchvision  # noqa: F401 - its import takes seconds, for which an input would be blamed
    from safetensors.torch import save

    from cml.models.embedding import EmbeddingModel, ModelConfig
    from cml.training.config import TrainConfig

    model = ModelConfig("small-cnn", "none", 2, True, (16, 16))
    config = {
        **{"task": "value", "dataset": "d", "dataset_fingerprint": "f", "label_distance": "euclidean"},
        **{"train": asdict(TrainConfig()), "model": asdict(model)},
    }
    metrics = _lines({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}) + b"\n"
    metric = {"mean": 1.5, "low": 1, "high": None, "undefined": 0}
    evaluation = {
        **{"unit": "px", "reported_unit": "", "gain": "inverse", "queries": 3, "gallery": 4, "hit_neighbors": 1},
        "rows": {"embedding": {"label_distance@1": metric, "ndcg@10": {**metric, "per_query": [1, None]}}},
    }
    weights = save({"head.weight": torch.zeros(2, 256), "head.bias": torch.zeros(2)})
    assert EmbeddingModel
    return [CUT.join([json.dumps(config).encode(), metrics, json.dumps(evaluation).encode(), weights])]


# ---- images and archives


def _image(data: bytes, folder: Path) -> None:
    from cml.data import open_image
    from cml.data.encode_image import encode
    from cml.data.images import native_size, read_image
    from cml.data.masks import MaskFault, read_mask

    path = folder / "a.jpg"
    path.write_bytes(data)
    with mock.patch.object(open_image, "MAX_PIXELS", 1 << 20):  # what is slow is a fault, not a large photograph
        for read in (native_size, lambda path: read_image(path, (8, 8)), encode):
            with contextlib.suppress(DataError):
                read(path)
        with contextlib.suppress(MaskFault):
            read_mask(path)


def _image_seeds() -> list[bytes]:
    seeds = []
    for kind, mode in (
        *(("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"), ("PNG", "1")),
        *(("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"), ("WEBP", "RGB"), ("PPM", "RGB"), ("JPEG2000", "RGB")),
    ):
        file = io.BytesIO()
        image = Image.new(mode, (9, 7))
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(file, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "TIFF", "WEBP") else {}))
        seeds.append(file.getvalue())
    return seeds


def _archive(data: bytes, folder: Path) -> None:
    from cml.data_prep.sources import donkeycar

    path = folder / "tub.tar.gz"
    path.write_bytes(data)
    with donkeycar._open_tub(path) as tub:
        frames, _ = donkeycar._frames(path, tub)
        for frame in frames:
            tub.images[frame.image]()


def _archive_seeds() -> list[bytes]:
    frame = _lines({"_index": 0, "cam/image_array": "0_.jpg", "user/angle": 0.5})
    seeds = []
    for mode, form in (
        ("w", tarfile.PAX_FORMAT),
        ("w", tarfile.GNU_FORMAT),
        ("w:gz", tarfile.USTAR_FORMAT),
        ("w:bz2", 1),
    ):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode, format=form) as archive:  # type: ignore[call-overload]
            for name, content in (
                *((f"tub/{'d' * 120}/x", b"x"), ("tub/catalog_0.catalog", frame), ("tub/images/0_.jpg", b"\xff")),
                ("tub/manifest.json", b'[]\n{"deleted_indexes": [3]}'),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                if form == tarfile.PAX_FORMAT:
                    member.pax_headers = {"comment": "ä"}
                if len(name) < 100 or form != tarfile.USTAR_FORMAT:
                    archive.addfile(member, io.BytesIO(content))
        seeds.append(file.getvalue())
    return seeds


# ---- a user's table


def _table(data: bytes, folder: Path) -> None:
    from cml.data_prep.label_kinds import KINDS
    from cml.data_prep.sources.folder import Folder

    if not (folder / "a.png").exists():
        Image.new("L", (2, 2)).save(folder / "a.png")
    for name in ("labels.csv", "labels.jsonl"):
        (folder / name).write_bytes(data)
        for kind in KINDS:
            steps = folder if kind == "sequence" else None
            with contextlib.suppress(DataError):
                collections.deque(Folder(folder, folder / name, kind, label_files=steps)._read())


def _table_seeds() -> list[bytes]:
    return [
        b"file_name,value\na.png,31\nb.png,7.5\n",
        b'file_name,value,split\r\n"a.png",1e3,train\r\n',
        _lines({"file_name": "a.png", "value": 2}, {"file_name": "b.png", "value": [1, 2]}),
        _lines({"file_name": "a.png", "caption": ["a dog", ""], "class": 3, "mask": "a.png"}),
        _lines(*({"file_name": "a.png", "keypoints": [[one, 1], [0, 1, 0], [1, 0, 1], [1, 1]]} for one in (0.5, 0))),
        b"file_name;angle;latitude;longitude;x;y;z;w\na.png;359.5;48.1;11.6;0;0;0.6;0.8\n",
        b"file_name,class,x0,y0,x1,y1\na.png,door,0,0,1,2\na.png,window,0.5,0,2,1\n",
        _lines({"file_name": "a.png", "latitude": -90, "longitude": 180, "x": 1, "y": 0, "z": 0, "w": 0, "angle": -3}),
    ]


# ---- rows of a dataset of the Hugging Face hub


def _hf(data: bytes, folder: Path) -> None:
    from cml.data_prep.hf_folder import Rows
    from cml.data_prep.sources.hf import HuggingFace, _Kind

    rows: list[dict[str, Any]] = []
    for line in data.split(b"\n"):
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            row = {"image": {"bytes": None, "path": "a.png"}, "label": None} | json.loads(line)
            json.dumps(row, ensure_ascii=False).encode()  # texts of a table are UTF-8, and images a record or nothing
            if isinstance(row["image"], dict | None):
                rows.append(row)
    table = Rows(("image", "label"), ("image",), lambda columns: iter(rows), {"label": ["oak", "elm"]})
    kinds: tuple[_Kind, ...] = ("numbers", "captions", "classes")
    for kind in kinds:
        source = HuggingFace(str(folder), kind=kind)
        for item in source._items("train", table, kind, "", None, folder):
            if not isinstance(item, DataError):
                with contextlib.suppress(DataError, OSError):
                    assert callable(item.image)
                    item.image()


def _hf_seeds() -> list[bytes]:
    return [
        _lines({"image": {"bytes": None, "path": "a.png"}, "label": 3.5}, {"label": [1, 2]}, {"label": "a dog"}),
        _lines({"image": None, "label": 1}, {"image": {"path": "../a.png"}, "label": ["a cat", "two cats"]}),
        _lines({"image": {"path": "zip://a.png::hf://datasets/user/name@0/b.zip"}, "label": True}),
    ]


_JSON_WORDS = (
    b'"file_name"',
    b'"item_id"',
    b"NaN",
    b"Infinity",
    b"1e999",
    b"\\ud800",
    b"[[[[",
    b"{}",
    b"../",
    b"\\u0000",
)

# ---- lists of numbers, places and rotations


def _listed(source: Any, *files: Path) -> Callable[[bytes, Path], None]:  # noqa: ANN401 - a class of a listed source
    """A parser of a source's files, by their places below its folder: every line, and the path that it names."""

    def run(data: bytes, folder: Path) -> None:
        for place, part in zip(files, [*data.split(CUT), b""], strict=False):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(part)
        made = source()(folder)
        lists, root = made._files()
        seen: dict[str, str] = {}
        for one in made._read_lists(lists):
            with contextlib.suppress(DataError):
                if not isinstance(one, DataError):
                    made._item(root, one, seen)

    return run


def _elpv() -> Any:  # noqa: ANN401
    from cml.data_prep.sources.elpv import Elpv

    return Elpv


def _agedb() -> Any:  # noqa: ANN401
    from cml.data_prep.sources.agedb import Agedb

    return Agedb


def _msls() -> Any:  # noqa: ANN401
    from cml.data_prep.sources.msls import Msls

    return Msls


def _biwi() -> Any:  # noqa: ANN401
    from cml.data_prep.sources.biwi import Biwi

    return Biwi


def _cxc(data: bytes, folder: Path) -> None:
    from cml.data_prep.sources.coco_cxc import read_pairs

    (folder / "sis_val.csv").write_bytes(data)
    collections.deque(read_pairs(folder / "sis_val.csv"))


def _land(data: bytes, folder: Path) -> None:
    from cml.data_prep.sources.earth import read_mask

    (folder / "mask.bin").write_bytes(data)
    read_mask(folder / "mask.bin")


_HEADS = (
    b"0.9 0 0.1 \n0 1 0\n-0.1 0 0.9\n\n1 2 900\n" + CUT + b"5e2 0 320\n0 5e2 240\n0 0 1\n\n0 0 0 0\n\n"
    b"1 0 0\n0 1 0\n0 0 1\n\n-24 5.8 -13\n\n640 480\n",
    b"1 0 0 \n0 1 0\n0 0 1\n\n1 2 900\n" + CUT + b"5e2 0 320\n0 5e2 240\n0 0 1\n\n0 0 0 0\n\n"
    b"0 -1 0\n1 0 0\n0 0 1\n\n-24 5.8 -13\n\n640 480\n",
)
_NUMBERS = (b"nan", b"inf", b"-1", b"1e999", b"200", b"1_0", b"\n", b",", b'"', b"\xef\xbb\xbf", b"../", CUT)

PARSERS = {
    "elpv": Parser(
        lambda: [b"images/a.png  0.33  mono\nimages/b.png 1.0 poly\n"], _listed(_elpv, Path("labels.csv")), _NUMBERS
    ),
    "agedb": Parser(
        lambda: [b"age,path,split\n31,AgeDB/a.jpg,train\n8,AgeDB/b.jpg,test\n59,AgeDB/c.jpg,val\n"],
        _listed(_agedb, Path("agedb.csv")),
        _NUMBERS,
    ),
    "msls": Parser(
        lambda: [
            b",key,lon,lat,ca,captured_at,pano\n0,a,12.5,55.6,359.5,2015,False\n1,b,-12,5,0,2015,True\n"
            + CUT
            + b",key,lon,lat,ca,captured_at,pano\n0,a,1,5,9,2015,False\n"
        ],
        _listed(_msls, *(Path(f"train_val/cph/{part}/raw.csv") for part in ("query", "database"))),
        _NUMBERS,
    ),
    "biwi": Parser(lambda: list(_HEADS), _listed(_biwi, Path("01/frame_00001_pose.txt"), Path("01/rgb.cal")), _NUMBERS),
    "cxc": Parser(
        lambda: [
            b"image1,image2,agg_score,sampling_method\nCOCO_val2014_000000032001.jpg,COCO_val2014_000000432818.jpg,0.5,a\n"
        ],
        _cxc,
        (*_NUMBERS, b"COCO_val2014_000000000001.jpg"),
    ),
    "land": Parser(lambda: [gzip.compress(bytes(9_331_200))], _land, (b"\x1f\x8b\x08",)),
    "metadata": Parser(_metadata_seeds, _metadata, _JSON_WORDS, True),
    "choice": Parser(
        _choice_seeds, _choice, (b"log-ratio", b"(", b")", b"=", b"'", b'"', b"none", b"-", b"1e999", b"**")
    ),
    "word-vectors": Parser(_vector_seeds, _vectors, (b"the ", b"\n", b"nan", b"1e999", b"\x93NUMPY", b"PK", CUT)),
    "array": Parser(
        _array_seeds, _array, (b"'descr'", b"'<f4'", b"'|O'", b"'shape'", b"fortran_order", b"PK\x03\x04", CUT)
    ),
    "mat": Parser(_mat_seeds, _mat, (b"\x0e\0\0\0", b"\x0f\0\0\0", b"\x01\0\0\0", b"RELEASE", b"\xff\xff\xff\x7f")),
    "annotations": Parser(_annotation_seeds, _annotations, _JSON_WORDS, True),
    "index": Parser(_index_seeds, _index, _JSON_WORDS, True),
    "run": Parser(_run_seeds, _run, _JSON_WORDS, True),
    "image": Parser(
        _image_seeds, _image, (b"IHDR", b"IDAT", b"zTXt", b"iCCP", b"eXIf", b"Exif\0\0", b"MM\0*", b"II*\0")
    ),
    "archive": Parser(
        _archive_seeds, _archive, (b"ustar", b"path=", b"size=", b"GNU.sparse.map=", b"\x80\xff\xff\xff")
    ),
    "table": Parser(_table_seeds, _table, _JSON_WORDS, True),
    "hf": Parser(_hf_seeds, _hf, (*_JSON_WORDS, b'"image"', b'"label"', b'"path"', b"hf://datasets/"), True),
}
