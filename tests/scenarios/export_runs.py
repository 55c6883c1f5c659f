"""A tiny finished run and odd images, for the tests of what is exported."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import cml

CONFIG = cml.TrainConfig(
    backbone="small-cnn",
    weights="none",
    dimension=8,
    image_size=(32, 32),
    crop=0.9,
    steps=2,
    workers=0,
    sampler="random(batch_size=16)",
    device="cpu",
)


_made: dict[int, dict[Path, bytes]] = {}  # files of the runs of this process, by their seed


def make_run(folder: Path, seed: int = 0) -> Path:
    """A run of two steps on 24 arrays, which is trained once a process and written wherever a test wants it."""
    if seed not in _made:
        rng = np.random.default_rng(seed)
        images = rng.integers(0, 256, (24, 36, 36, 3), np.uint8)
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "run"
            cml.fit(images, rng.uniform(0, 1, 24), replace(CONFIG, seed=seed), out=out, quiet=True)
            _made[seed] = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for name, content in _made[seed].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def draw_images(folder: Path, count: int, *, name: str = "{:03}.png", seed: int = 0, size: int = 40) -> list[Path]:
    """Smooth pictures of ``size`` x ``size`` pixels."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
        paths.append(folder / name.format(number))
        coarse.resize((size, size), Image.Resampling.BILINEAR).save(paths[-1])
    return paths


def draw_odd_images(folder: Path) -> dict[str, Path]:
    """One picture in every form that makes readers stumble, named by whole numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    ramp = np.zeros((48, 64, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, 64)[None]
    ramp[..., 1] = np.linspace(0, 255, 48)[:, None]
    picture = Image.fromarray(ramp)
    clear = picture.convert("RGBA")
    clear.putalpha(Image.fromarray(np.tile(np.array([0, 255], np.uint8), (48, 32))))
    exif = picture.getexif()
    exif[0x0112] = 6
    made: dict[str, tuple[str, Image.Image, dict[str, Any]]] = {
        "grey": ("1.png", picture.convert("L"), {}),
        "cmyk": ("2.jpg", picture.convert("CMYK"), {}),
        "deep": ("3.png", Image.fromarray(np.full((48, 64), 40_000, np.uint16)), {}),
        "animated": ("4.gif", picture.convert("P"), {"save_all": True, "append_images": [picture.convert("P")] * 3}),
        "turned": ("5.jpg", picture, {"exif": exif}),
        "pixel": ("6.png", Image.new("RGB", (1, 1), (10, 200, 30)), {}),
        "clear": ("7.png", clear, {}),
        "line": ("8.png", Image.new("RGB", (700, 1), (200, 0, 0)), {}),
        "large": ("9.jpg", picture.resize((2000, 500)), {}),
    }
    paths = {}
    for kind, (name, image, settings) in made.items():
        paths[kind] = folder / name
        image.save(paths[kind], **settings)
    return paths
