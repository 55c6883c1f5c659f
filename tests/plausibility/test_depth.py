"""Images of 16 bits that use fewer: what the file says, what an option says, and what cml check says."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.array_types import UInt16
from cml.cli import main
from cml.data.images import read_image, read_pixels
from cml.errors import DataError, UserError

RAMP = np.linspace(0, 1, 32 * 32).reshape(32, 32)


def ramp(greatest: int, seed: int = 0) -> UInt16:
    """Values from 0 to the greatest, in an order of their own for each seed."""
    order = np.random.default_rng(seed).permutation(4)
    blocks = np.split((RAMP * greatest).astype(np.uint16), 4)
    return np.concatenate([blocks[place] for place in order])


def tiff(values: UInt16, tag: int, value: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(values).save(content, "TIFF", tiffinfo={tag: value})
    return content.getvalue()


def packed_tiff(values: UInt16) -> bytes:
    """A TIFF file with 12 bits for each value, two values in three bytes."""
    pairs = values.reshape(-1, 2).astype(np.uint32)
    packed = pairs[:, 0] << 12 | pairs[:, 1]
    data = np.stack([packed >> 16, packed >> 8, packed], axis=1).astype(np.uint8).tobytes()
    height, width = values.shape
    tags = [(256, width), (257, height), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, height)]
    tags.append((279, len(data)))
    head = struct.pack("<2sHI", b"II", 42, 8 + len(data)) + data + struct.pack("<H", len(tags))
    return head + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags) + bytes(4)


@pytest.mark.parametrize("kind", ["10 bits by the tag", "12 bits by the tag", "12 packed bits", "grey map of 10 bits"])
def test_what_a_file_says_of_its_depth_is_used(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ramp.tif"
    if kind == "12 packed bits":
        path.write_bytes(packed_tiff((RAMP * 4095).astype(np.uint16)))
    elif kind.startswith("grey map"):
        path = tmp_path / "ramp.pgm"
        path.write_bytes(b"P5 32 32 1023\n" + (RAMP * 1023).astype(">u2").tobytes())
    else:
        greatest = 1023 if kind.startswith("10") else 4095
        path.write_bytes(tiff((RAMP * greatest).astype(np.uint16), 281, greatest))
    assert np.abs(read_image(path)[..., 0] - RAMP * 255).max() <= 1.5
    assert np.abs(read_pixels(path, 1, (32, 32))[..., 0] - RAMP * 255).max() <= 1.5


def test_the_greatest_value_of_one_picture_is_no_depth(tmp_path: Path) -> None:
    path = tmp_path / "dark.tif"
    path.write_bytes(tiff((RAMP * 30000).astype(np.uint16), 281, 30000))
    assert read_image(path).max() == round(30000 / 257)


def test_values_above_the_white_that_a_file_states_are_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tif"
    path.write_bytes(tiff((RAMP * 5000).astype(np.uint16), 281, 1023))
    with pytest.raises(DataError, match=r"wrong.tif should hold values up to 1023, but holds 5000"):
        read_image(path)


def png(values: UInt16, bits: int) -> bytes:
    """A PNG file that states its significant bits."""
    content = io.BytesIO()
    Image.fromarray(values).save(content, "PNG")
    head, rest = content.getvalue()[:33], content.getvalue()[33:]  # after the first chunk
    chunk = b"sBIT" + bytes([bits])
    return head + struct.pack(">I", 1) + chunk + struct.pack(">I", zlib.crc32(chunk)) + rest


@pytest.mark.parametrize("bits", [8, 10, 12, 14])
@pytest.mark.parametrize("place", ["lower bits", "shifted", "repeated", "scaled"])
def test_significant_bits_of_a_png_file_are_used_wherever_the_values_are(tmp_path: Path, bits: int, place: str) -> None:
    greatest = (1 << bits) - 1
    path = tmp_path / "noise.png"
    for brightest in (greatest, greatest // 20):
        values = np.random.default_rng(bits).integers(0, brightest + 1, (32, 32)).astype(np.uint16)
        stored = {
            "lower bits": values,
            "shifted": values << (16 - bits),
            "repeated": values << (16 - bits) | values >> max(0, 2 * bits - 16),
            "scaled": (values * (65535 / greatest)).round().astype(np.uint16),
        }[place]
        path.write_bytes(png(stored, bits))
        wanted = stored / (greatest if place == "lower bits" else 65535) * 255
        assert np.abs(read_image(path)[..., 0] - wanted).max() <= 0.6
        assert np.abs(read_image(path.read_bytes())[..., 0] - wanted).max() <= 0.6
        assert np.abs(read_pixels(path, 1, (32, 32))[..., 0] - wanted).max() <= 0.6


@pytest.mark.parametrize("bits", [0, 16, 17, 255])
def test_senseless_significant_bits_are_left_aside(tmp_path: Path, bits: int) -> None:
    (tmp_path / "ramp.png").write_bytes(png((RAMP * 1023).astype(np.uint16), bits))
    assert read_image(tmp_path / "ramp.png").max() == round(1023 / 257)


def test_files_that_state_their_bits_raise_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, greatest in {"bright": 1023, "night": 60}.items():
        prepare = write_images(tmp_path / name, greatest + 80)
        for path in (tmp_path / name / "images").iterdir():
            path.write_bytes(png(ramp(greatest - 2 * int(path.stem), int(path.stem)), 10))
        assert main(["prepare", *prepare]) == 0
        assert check(tmp_path / name, capsys, "--skip", "same-images", "near-duplicates", "repeated-labels") == []


MODES = {
    "1": Image.fromarray(RAMP > 0.5),
    "L": Image.fromarray((RAMP * 255).astype(np.uint8)),
    "LA": Image.fromarray((RAMP * 255).astype(np.uint8)).convert("LA"),
    "P": Image.fromarray((RAMP * 255).astype(np.uint8)).convert("RGB").quantize(64),
    "I;16": Image.fromarray((RAMP * 65535).astype(np.uint16)),
    "CMYK": Image.fromarray((RAMP * 255).astype(np.uint8)).convert("CMYK"),
    "I": Image.fromarray((RAMP * 65535).astype(np.int32)),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_picture_comes_out_as_it_looks(tmp_path: Path, mode: str) -> None:
    path = tmp_path / f"picture.{'tif' if mode in ('CMYK', 'I') else 'png'}"
    MODES[mode].save(path)
    wanted = (RAMP > 0.5) * 255.0 if mode == "1" else RAMP * 255
    assert np.abs(read_image(path)[..., 0] - wanted).max() <= (6 if mode == "P" else 1.5)


def test_floats_are_refused_with_the_mend(tmp_path: Path) -> None:
    Image.fromarray(RAMP.astype(np.float32)).save(tmp_path / "float.tif")
    with pytest.raises(DataError, match=r"values from 0 to 1.*white is unknown; save it with 8 bits"):
        read_image(tmp_path / "float.tif")


def write_images(folder: Path, greatest: int, suffix: str = "png", count: int = 12) -> list[str]:
    images = folder / "images"
    images.mkdir(parents=True)
    lines = ["file_name,value"]
    for number in range(count):
        Image.fromarray(ramp(greatest - 7 * number, number)).save(images / f"{number:02d}.{suffix}")
        lines.append(f"{number:02d}.{suffix},{number}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return ["folder", "--images", str(images), "--labels", str(folder / "labels.csv"), "--out", str(folder / "set")]


def check(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["check", str(folder / "set"), "--json", *more]) == 0
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


@pytest.mark.parametrize(("greatest", "bits"), [(1023, 10), (4095, 12), (250, 8)])
def test_images_that_use_few_bits_are_named_and_mended(
    tmp_path: Path, greatest: int, bits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare = write_images(tmp_path, greatest)
    assert main(["prepare", *prepare]) == 0
    (finding,) = check(tmp_path, capsys)
    assert (finding["rule"], finding["count"], finding["total"]) == ("depth", 12, 12)
    assert f"--bits {bits}" in finding["mend"]
    assert check(tmp_path, capsys, "--skip", "depth", "same-images", "near-duplicates") == []
    prepare[-1] = str(tmp_path / "mended" / "set")
    assert main(["prepare", *prepare, "--bits", str(bits)]) == 0
    assert check(tmp_path / "mended", capsys) == []
    mended = sorted((tmp_path / "mended").rglob("00.png"))[0]
    wanted = ramp(greatest) / ((1 << bits) - 1) * 255
    assert np.abs(read_image(mended)[..., 0] - wanted).max() <= 1


def test_several_bands_of_few_bits_are_mended_in_tiff_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tifffile = pytest.importorskip("tifffile")
    prepare = write_images(tmp_path, 1023, "tif")
    for path in (tmp_path / "images").iterdir():
        bands = np.dstack([ramp(1023 - 7 * int(path.stem), int(path.stem)), ramp(900, 3), ramp(1000, 5)])
        tifffile.imwrite(path, bands, photometric="rgb")
    assert main(["prepare", *prepare]) == 0
    assert [finding["rule"] for finding in check(tmp_path, capsys)] == ["depth"]
    prepare[-1] = str(tmp_path / "mended" / "set")
    assert main(["prepare", *prepare, "--bits", "10"]) == 0
    assert check(tmp_path / "mended", capsys) == []
    mended = sorted((tmp_path / "mended").rglob("00.tif"))[0]
    assert np.abs(read_image(mended)[..., 1] - ramp(900, 3) / 1023 * 255).max() <= 1.5


def test_persons_are_cut_from_scaled_photographs(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    lines = []
    for number in range(8):
        Image.fromarray(np.full((60, 60), 1023, np.uint16)).save(images / f"{number}.png")
        joints = [[10, 10], [50, 12], [30, 40 + number]]
        lines.append(json.dumps({"file_name": f"{number}.png", "keypoints": joints}))
    (tmp_path / "people.jsonl").write_text("\n".join(lines))
    options: dict[str, Any] = {"images": images, "labels": tmp_path / "people.jsonl", "kind": "keypoints", "bits": 10}
    dataset = cml.prepare("folder", tmp_path / "set", **options)
    assert read_image(dataset.split("train").paths[0]).min() >= 254


def test_bits_that_an_image_exceeds_are_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", *write_images(tmp_path, 5000), "--bits", "12"]) == 2
    assert "00.png should hold values up to 4095, but holds 5000" in capsys.readouterr().err
    with pytest.raises(UserError, match="bits of images should be from 8 to 16"):
        cml.prepare("folder", tmp_path / "x", images=tmp_path, labels=tmp_path / "labels.csv", bits=24)


def test_images_of_8_bits_are_kept_as_they_are(tmp_path: Path) -> None:
    prepare = write_images(tmp_path, 1023)
    Image.fromarray((RAMP * 255).astype(np.uint8)).save(tmp_path / "images" / "03.png")
    assert main(["prepare", *prepare, "--bits", "10"]) == 0
    kept = next((tmp_path / "set").rglob("03.png"))
    assert kept.read_bytes() == (tmp_path / "images" / "03.png").read_bytes()


def test_depth_photographs_and_dark_pictures_raise_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare = write_images(tmp_path / "millimetres", 9000)
    assert main(["prepare", *prepare]) == 0
    assert check(tmp_path / "millimetres", capsys) == []
    prepare = write_images(tmp_path / "one is bright", 1023)
    Image.fromarray(ramp(65000, 50)).save(tmp_path / "one is bright" / "images" / "05.png")
    assert main(["prepare", *prepare]) == 0
    assert check(tmp_path / "one is bright", capsys, "--skip", "same-images", "near-duplicates") == []
    prepare = write_images(tmp_path / "night", 1023)
    for path in (tmp_path / "night" / "images").iterdir():
        Image.fromarray((RAMP * 14).astype(np.uint8)).rotate(9 * int(path.stem)).save(path)
    assert main(["prepare", *prepare]) == 0
    assert check(tmp_path / "night", capsys) == []


@pytest.mark.parametrize("size", [None, 16])
def test_the_hub_s_images_of_few_bits_are_scaled_too(tmp_path: Path, size: int | None) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    contents = []
    for number in range(12):
        content = io.BytesIO()
        Image.fromarray(ramp(4095 - 7 * number, number)).save(content, "PNG")
        contents.append({"bytes": content.getvalue(), "path": None})
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("float32")})
    rows = {"image": contents, "label": [float(number) for number in range(12)]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "data" / "train.parquet")
    options: dict[str, Any] = {"dataset": str(tmp_path / "data"), "bits": 12, "image_size": size}
    dataset = cml.prepare("hf", tmp_path / "set", **options)
    pictures = [read_image(path) for path in dataset.split("train").paths]
    assert all(picture.max() > 230 for picture in pictures)
    assert pictures[0].shape[0] == (size or 32)
