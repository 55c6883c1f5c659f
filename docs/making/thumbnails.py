"""Thumbnails of the tutorials: the picture of each notebook that fits best, or drawn samples of its data."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import zlib
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image, ImageOps

from cml.array_types import UInt8
from cml.data_prep.synthetic.heads.heads import draw_heads
from cml.data_prep.synthetic.people.people import draw_people
from cml.data_prep.synthetic.rooms.rooms import draw_rooms
from cml.data_prep.synthetic.scenes.scenes import draw_scenes

INDEX = Path(__file__).resolve().parents[1] / "tutorials" / "index.md"
FOLDER = "_thumbnails"  # of the site
SIZE = (192, 108)  # pixels
SHAPE = SIZE[0] / SIZE[1]
ACROSS, DOWN = 3, 2  # drawn samples
SAMPLES = {
    "captioning": lambda count: draw_scenes(count).images,
    "captions": lambda count: draw_scenes(count).images,
    "poses": lambda count: draw_people(count).images,
    "rooms": lambda count: draw_rooms(count).images,
    "rotations": lambda count: draw_heads(count)[0],
}


def names() -> list[str]:
    """List the tutorials that the index shows with a thumbnail."""
    return re.findall(rf"{FOLDER}/(\w+)\.webp", INDEX.read_text(encoding="utf-8"))


def write(notebooks: Path, site: Path) -> None:
    """Write the thumbnail of each tutorial.

    Args:
        notebooks: Folder of the executed notebooks.
        site: Folder of the site.
    """
    (site / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in names():
        executed = next(iter(sorted(notebooks.rglob(f"tutorials/{name}.ipynb"))), None)
        picture = None if executed is None else best_picture(executed)
        if picture is None:
            picture = draw_samples(name) if name in SAMPLES else draw_distances(name)
        fitted = ImageOps.pad(picture.convert("RGBA"), SIZE, color=(0, 0, 0, 0))
        fitted.save(site / FOLDER / f"{name}.webp", "WEBP", quality=80, method=4)


def best_picture(notebook: Path) -> Image.Image | None:
    """Return the picture among the outputs of a notebook whose shape is closest to that of a thumbnail, if any."""
    pictures = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            for kind in ("image/png", "image/jpeg"):
                if kind in shown:
                    pictures.append(Image.open(io.BytesIO(base64.b64decode("".join(shown[kind])))))
    return min(pictures, key=lambda picture: abs(math.log(picture.width / picture.height / SHAPE)), default=None)


def draw_samples(name: str) -> Image.Image:
    """Draw some items of the drawn data that a tutorial is about."""
    images: UInt8 = np.asarray(SAMPLES[name](ACROSS * DOWN))
    rows = [np.concatenate(list(images[start : start + ACROSS]), axis=1) for start in range(0, len(images), ACROSS)]
    return Image.fromarray(np.concatenate(rows))


def draw_distances(name: str) -> Image.Image:
    """Draw the distances of a few random labels, for a tutorial that shows no picture."""
    labels = np.sort(np.random.default_rng(zlib.crc32(name.encode())).uniform(size=(9, 1)), axis=0)
    distances = np.abs(labels - labels.T)
    colours = (255 * colormaps["viridis"](distances / distances.max())[..., :3]).astype(np.uint8)
    return Image.fromarray(colours).resize(SIZE, Image.Resampling.NEAREST)
