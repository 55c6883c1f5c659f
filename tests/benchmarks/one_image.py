"""One image, one embedding: how far apart the embeddings of a photograph are that came in by different doors.

Run: python tests/benchmarks/one_image.py [--photos 80] [--large 8] [--rounds 3]

Photographs of COCO (coco_mini in $CML_DATA or ../shared/data) go in as a path, as Pillow's image, as an array and a
tensor, by ``cml embed`` and through the ONNX graph, whose pixels are made as its config says. Some of them are also
enlarged to JPEGs of 8 to 11 megapixels. Printed for each network: the largest distance between the unit vectors of two
doors, and the images whose first neighbour differs. Then what it costs to decode JPEGs whole: the time of reading as a
multiple of reading with a draft at twice the size, the best of rounds. The last line is the largest distance.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image

from cml.array_types import Float32, UInt8
from cml.data.image_list import ImageList
from cml.data.images import Size, read_image
from cml.export.onnx_graph import export_onnx
from cml.export.onnx_preprocessing import describe_preprocessing
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.searching.embed_folder import embed_folder

ROOT = Path(__file__).resolve().parents[2]
NETWORKS: tuple[tuple[str, str, Size], ...] = (
    ("small-cnn", "none", (60, 80)),
    ("efficientnet-lite0", "imagenet", (96, 96)),
    ("efficientnet-lite0", "imagenet", (224, 224)),
)


def enlarged(photo: Path, out: Path, pixels: float) -> Path:
    """A JPEG of ``pixels`` pixels made of a photograph."""
    with Image.open(photo) as image:
        scale = (pixels / (image.width * image.height)) ** 0.5
        size = round(image.width * scale), round(image.height * scale)
        image.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(out, quality=92)
    return out


def as_config_says(path: Path, says: dict[str, dict[str, str]]) -> UInt8:
    """The pixels that somebody without cml makes for the ONNX graph."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")  # upright and without transparency already
        return np.asarray(eval(says["resize"]["pillow"], {"Image": Image, "image": image}))


def by_doors(model: EmbeddingModel, folder: Path, work: Path) -> dict[str, Float32]:
    """Embeddings (N, D) of the images of a folder by each door."""
    listed = ImageList.open(folder)
    paths = listed.paths
    arrays = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    graph = export_onnx(model, work / "model.onnx")
    session = onnxruntime.InferenceSession(graph.path, providers=["CPUExecutionProvider"])
    says = describe_preprocessing(model)["input"]
    return {
        "path": model.embed(paths),
        "Pillow": model.embed([Image.open(path) for path in paths]),
        "array": model.embed(arrays),
        "channels first": model.embed([array.transpose(2, 0, 1) for array in arrays]),
        "tensor": model.embed([torch.from_numpy(array.copy()) for array in arrays]),
        "cml embed": embed_folder(model, listed, work / "embedded", quiet=True).embeddings,
        "ONNX": session.run(None, {"images": np.stack([as_config_says(path, says) for path in paths])})[0],
    }


def apart(doors: dict[str, Float32]) -> tuple[float, str, int]:
    """The largest distance of two unit vectors of one image, its two doors, and the first neighbours that differ."""
    units = {door: rows / np.linalg.norm(rows, axis=1, keepdims=True) for door, rows in doors.items()}
    nearest = {}
    for door, rows in units.items():
        alike = rows @ rows.T
        np.fill_diagonal(alike, -2)
        nearest[door] = alike.argmax(axis=1)
    distances = {
        f"{a} and {b}": float(np.linalg.norm(units[a] - units[b], axis=1).max()) for a in units for b in units if a < b
    }
    farthest = max(distances, key=distances.__getitem__)
    other = max(int((nearest["path"] != rows).sum()) for rows in nearest.values())
    return distances[farthest], farthest, other


def drafted(path: Path, size: Size) -> UInt8:
    """A photograph read with a draft: decoded at a half, a quarter or an eighth, never below twice the size."""
    with Image.open(path) as image:
        image.draft("RGB", (2 * size[1], 2 * size[0]))
        small = image.convert("RGB").resize((size[1], size[0]), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(small)


def seconds(read: Callable[[Path, Size], object], paths: Sequence[Path], size: Size) -> float:
    """Processor time of reading the paths once."""
    began = time.process_time()
    for path in paths:
        read(path, size)
    return time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=80, help="photographs of COCO")
    parser.add_argument("--large", type=int, default=8, help="JPEGs of 8 to 11 megapixels made of them")
    parser.add_argument("--networks", type=int, default=len(NETWORKS), help="how many networks, small ones first")
    parser.add_argument("--rounds", type=int, default=3, help="of timing")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    data = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))
    photos = sorted((data / "coco_mini" / "train2017").glob("*.jpg"))[: options.photos]
    farthest, figures = 0.0, dict[str, dict[str, dict[str, float]]]()
    with tempfile.TemporaryDirectory() as work:
        folders = {kind: Path(work, kind) for kind in ("COCO", "8 to 11 megapixels")}
        for folder in folders.values():
            folder.mkdir()
        for photo in photos:
            (folders["COCO"] / photo.name).write_bytes(photo.read_bytes())
        for photo, pixels in zip(photos, np.linspace(8e6, 11e6, options.large), strict=False):
            enlarged(photo, folders["8 to 11 megapixels"] / photo.name, float(pixels))
        for number, (backbone, weights, size) in enumerate(NETWORKS[: options.networks]):
            torch.manual_seed(0)
            model = EmbeddingModel(ModelConfig(backbone, weights, 128, normalize=True, image_size=size)).eval()
            for kind, folder in folders.items():
                made = Path(work, f"{number} {kind}")
                made.mkdir()
                distance, doors, other = apart(by_doors(model, folder, made))
                farthest = max(farthest, distance)
                name = f"{backbone} {size[0]}x{size[1]}"
                print(f"{name}, {kind}: {distance:.1e} ({doors}); first neighbour differs for {other}")
                paths = list(folder.iterdir())
                both = [[seconds(read, paths, size) for read in (read_image, drafted)] for _ in range(options.rounds)]
                whole, draft = np.min(both, axis=0)
                print(f"  reading takes {whole / draft:.2f} times what it takes with drafts")
                figures.setdefault(kind, {})[name] = {
                    "distance": distance,
                    "other_neighbors": other,
                    "reading_ratio": whole / draft,
                }
    print(f"largest distance: {farthest:.1e}")
    write_figures(options.json, {"photos": len(photos), "distance": farthest, "images": figures})


if __name__ == "__main__":
    main()
