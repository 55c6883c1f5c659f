from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cml.cli import main
from cml.data.augmentation import Jitter, center_box, jitter_boxes, mirror_images
from cml.data.encode_image import encode
from cml.data.images import Images, native_size, read_image, stored_size
from cml.errors import DataError, UserError


def gradient(height: int, width: int) -> np.ndarray:
    """Red grows to the right, green downwards."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.linspace(0, 255, width)[None, :]
    image[..., 1] = np.linspace(0, 255, height)[:, None]
    return image


def test_modes_become_rgb_and_exif_is_turned_upright(tmp_path: Path) -> None:
    picture = Image.fromarray(gradient(20, 30))
    for name, image in {
        "grey.png": picture.convert("L"),
        "cmyk.jpg": picture.convert("CMYK"),
        "palette.gif": picture.convert("P"),
        "alpha.png": picture.convert("RGBA"),
        "deep.png": Image.fromarray(np.full((20, 30), 40_000, np.uint16)),
    }.items():
        image.save(tmp_path / name)
        assert read_image(tmp_path / name).shape == (20, 30, 3), name
    exif = picture.getexif()
    exif[0x0112] = 6  # the camera was turned: stored rows are columns
    picture.save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").shape == (30, 20, 3)
    assert native_size(tmp_path / "turned.jpg") == (30, 20)


def test_sixteen_bit_pictures_keep_their_brightness(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 32_768, np.uint16)).save(tmp_path / "deep.png")
    assert abs(int(read_image(tmp_path / "deep.png").mean()) - 128) <= 1


def test_reading_resizes_with_the_whole_picture(tmp_path: Path) -> None:
    Image.fromarray(gradient(200, 300)).save(tmp_path / "a.jpg", quality=95)
    small = read_image(tmp_path / "a.jpg", (20, 30))
    np.testing.assert_allclose(small.astype(int)[..., :2], gradient(20, 30).astype(int)[..., :2], atol=12)


def slowly_resized(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """What ``RESIZING`` says, pixel by pixel."""
    values = pixels.astype(float)
    for axis in (1, 0):
        count, scale = size[axis], pixels.shape[axis] / size[axis]
        made = []
        for i in range(count):
            x = np.arange(pixels.shape[axis])
            weights = np.maximum(0, 1 - np.abs(x + 0.5 - (i + 0.5) * scale) / max(1, scale))
            made.append(np.tensordot(weights / weights.sum(), values, (0, axis)))
        values = np.floor(np.stack(made, axis=axis) + 0.5)
    return values


@pytest.mark.parametrize("size", [(6, 8), (7, 31), (91, 151)])
def test_a_photograph_becomes_the_same_pixels_by_every_door(tmp_path: Path, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (80, 120, 3), np.uint8)).save(tmp_path / "a.jpg", quality=90)
    with Image.open(tmp_path / "a.jpg") as image:
        pixels = np.asarray(image.convert("RGB"))
    doors = [tmp_path / "a.jpg", Image.open(tmp_path / "a.jpg"), Image.fromarray(pixels), pixels]
    first, *others = Images(doors, size).read(np.arange(4))
    for other in (*others, read_image(tmp_path / "a.jpg", size)):
        np.testing.assert_array_equal(other, first)
    np.testing.assert_allclose(first, slowly_resized(pixels, size), atol=1)  # ties may be rounded otherwise
    assert (first == slowly_resized(pixels, size)).mean() > 0.99


def test_sixteen_bits_are_one_image_and_floats_none_by_every_door(tmp_path: Path) -> None:
    deep = Image.fromarray(np.arange(40_000, 40_400, dtype=np.uint16).reshape(20, 20))
    deep.save(tmp_path / "deep.png")
    prepared = Image.open(io.BytesIO(encode(tmp_path / "deep.png", quality=None).content))
    assert prepared.mode == "I;16"
    for other in (prepared, deep):
        read, again = Images([tmp_path / "deep.png", other], (20, 20)).read(np.arange(2))
        np.testing.assert_array_equal(again, read)
    grey = np.linspace(0, 1, 400, dtype=np.float32).reshape(20, 20)
    for values, mode in ((grey, "F"), (grey.astype(np.int32) + 70_000, "I")):
        wrong = Image.fromarray(values)
        wrong.save(tmp_path / "wrong.tif")
        doors: list[Callable[[], object]] = [
            lambda: read_image(tmp_path / "wrong.tif"),
            lambda: encode(tmp_path / "wrong.tif"),
            lambda image=wrong: encode(image),
            lambda image=wrong: Images([image], (20, 20)).load(),
        ]
        for door in doors:
            with pytest.raises(DataError, match=rf"more than 16 bits per channel \(mode {mode}, values from .*8 bits"):
                door()


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError("out of memory error when reading image file"), OSError("broken data stream")]
)
def test_full_memory_is_no_fault_of_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    (tmp_path / "photos").mkdir()
    Image.fromarray(gradient(20, 30)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "labels.csv").write_text("file_name,value\na.png,1\n")

    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    if "broken" in str(error):  # what libjpeg says for want of memory as well
        monkeypatch.setattr("cml.data.open_image._room_for", lambda pixels: False)
    with pytest.raises(MemoryError, match=r"while decoding .*a\.png"):
        read_image(tmp_path / "photos" / "a.png")
    command = ["prepare", "folder", "--images", str(tmp_path / "photos"), "--labels", str(tmp_path / "labels.csv")]
    assert main([*command, "--out", str(tmp_path / "out"), "--skip-bad"]) == 1
    assert "error: The memory is full (while decoding an image)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_broken_image_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.jpg"
    if content is None:  # a real picture cut in the middle
        rng = np.random.default_rng(0)
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), np.uint8)).save(path)
        path.write_bytes(path.read_bytes()[:900])
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.jpg"):
        read_image(path)
    with pytest.raises(DataError, match=r"broken\.jpg"):
        Images([path], (8, 8)).load()


def test_missing_and_huge_images_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"gone\.png is missing\. Check its path\."):
        read_image(tmp_path / "gone.png")
    Image.fromarray(gradient(20, 30)).save(tmp_path / "huge.png")
    with pytest.raises(DataError, match=r"hgue\.png is missing\. Check its path\. Did you mean 'huge\.png'\?"):
        read_image(tmp_path / "hgue.png")
    with pytest.raises(DataError, match=r"Check its path\. There is no folder .*nowhere\."):
        read_image(tmp_path / "nowhere/huge.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(DataError, match=r"text\.png cannot be read: .* Replace it, or leave it out\."):
        read_image(tmp_path / "text.png")
    monkeypatch.setattr("cml.data.open_image.MAX_PIXELS", 599)
    with pytest.raises(DataError, match=r"30 x 20 pixels; the limit is 599"):
        read_image(tmp_path / "huge.png")


def test_images_from_memory_files_and_subsets_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 255, (6, 16, 20, 3), np.uint8)
    paths = []
    for index, image in enumerate(array):
        paths.append(tmp_path / f"{index}.png")
        Image.fromarray(image).save(paths[-1])
    items = np.array([4, 1, 1, 5])
    loaded = Images(paths, (16, 20))
    loaded.load()
    for images in (Images(array, (16, 20)), Images(paths, (16, 20)), Images(paths, (16, 20), cache_bytes=0), loaded):
        np.testing.assert_array_equal(images.read(items), array[items])
        np.testing.assert_array_equal(images.subset(slice(1, None)).read(items - 1), array[items])
    assert Images(array, (8, 8)).read(items).shape == (4, 8, 8, 3)
    with pytest.raises(UserError, match="uint8"):
        Images(array.astype(np.float32), (16, 20))


def test_without_jitter_the_box_is_the_centre() -> None:
    images = gradient(40, 40)[None].repeat(2, axis=0)
    box = jitter_boxes(images, (20, 20), Jitter(crop=0.5), np.random.default_rng(0))
    assert box.dtype == torch.uint8
    np.testing.assert_array_equal(box[0].permute(1, 2, 0), images[0, 10:30, 10:30])
    assert stored_size((20, 20), 0.5) == (40, 40)


def test_jitter_of_no_size_equals_the_centre_box() -> None:
    images = gradient(40, 40)[None].repeat(3, axis=0)
    still = jitter_boxes(images, (20, 20), Jitter(0.5, 1e-9, 1e-9), np.random.default_rng(0))
    assert (still.int() - center_box(images, (20, 20)).int()).abs().max() <= 1


def test_jitter_moves_by_no_more_than_said_and_each_image_alone() -> None:
    images = gradient(100, 100)[None].repeat(200, axis=0)
    box = jitter_boxes(images, (50, 50), Jitter(0.5, 0.0, 0.1), np.random.default_rng(0)).float()
    moved = (box[:, 0].mean(dim=(1, 2)) - center_box(images, (50, 50))[:, 0].float().mean(dim=(1, 2))) / 2.55
    assert moved.abs().max() <= 10.2  # per cent of the image's side
    assert moved.abs().max() >= 8
    assert len(moved.unique()) > 60


@pytest.mark.parametrize("jitter", [Jitter(0.5, 0.1, 0.1, 0.2), Jitter(0.5, brightness=0.2), Jitter(0.5, shift=0.1)])
def test_a_list_in_portions_and_a_part_of_it_are_the_whole_list(
    jitter: Jitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(1).integers(0, 256, (9, 12, 12, 3), np.uint8)
    whole = jitter_boxes(images, (6, 6), jitter, np.random.default_rng(0))
    assert len(whole) == 9
    assert not torch.equal(whole, center_box(images, (6, 6)))
    monkeypatch.setattr("cml.data.augmentation._AT_ONCE", 4 * 2 * images[0].size)  # two images
    assert torch.equal(jitter_boxes(images, (6, 6), jitter, np.random.default_rng(0)), whole)
    part = jitter_boxes(images[3:8], (6, 6), jitter, np.random.default_rng(0), part=slice(3, 8), total=9)
    assert torch.equal(part, whole[3:8])


def test_mirroring_only_the_chosen_ones() -> None:
    boxes = center_box(gradient(8, 8)[None].repeat(3, axis=0), (8, 8))
    turned = mirror_images(boxes, np.array([True, False, True]))
    assert torch.equal(turned[0], boxes[0].flip(2))
    assert torch.equal(turned[1], boxes[1])
