"""What ``cml.fit`` and ``model.embed`` take as images and labels, and what they refuse in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from cml.data.image_sources import image_source, images_and_labels
from cml.data.images import Images
from cml.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)  # (N, H, W, 3)
AGES = [1.0, 2.0, 3.5, 4.0, 5.0, 6.0]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    for index, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return [folder / f"{index}.png" for index in range(len(PIXELS))]


def pixels_of(source: Any) -> Any:  # noqa: ANN401
    return Images(source, (5, 4)).read(np.arange(6))


class Pairs(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        self.read.append(index)
        return torch.from_numpy(PIXELS[index].transpose(2, 0, 1).copy()), AGES[index]


def test_every_kind_of_images_is_the_same_pixels(paths: Sequence[Path]) -> None:
    kinds = {
        "array": PIXELS,
        "channels first": PIXELS.transpose(0, 3, 1, 2),
        "tensor": torch.from_numpy(PIXELS),
        "tensor, channels first": torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
        "paths": paths,
        "strings": [str(path) for path in paths],
        "pillow": [Image.fromarray(one) for one in PIXELS],
        "mixed": [paths[0], PIXELS[1], Image.fromarray(PIXELS[2]), *torch.from_numpy(PIXELS[3:]).permute(0, 3, 1, 2)],
    }
    for name, kind in kinds.items():
        images, labels = images_and_labels(kind, np.asarray(AGES))
        assert np.array_equal(pixels_of(images), PIXELS), name
        assert labels == AGES


def test_a_torch_data_set_of_pairs_is_read_lazily() -> None:
    pairs = Pairs()
    images, labels = images_and_labels(pairs, None)
    assert labels == AGES
    pairs.read.clear()
    assert np.array_equal(images[3], PIXELS[3])
    assert pairs.read == [3]
    assert np.array_equal(images[2:5][1], PIXELS[3])
    assert np.array_equal(pixels_of(images), PIXELS)
    assert images_and_labels(pairs, list("abcdef"))[1] == list("abcdef")


def test_columns_of_a_data_frame(paths: Sequence[Path]) -> None:
    frame = pandas.DataFrame({"file": [str(path) for path in paths], "age": AGES, "pose": [[1, 2]] * 6})
    images, labels = images_and_labels(frame, None, image="file", label="age")
    assert np.array_equal(pixels_of(images), PIXELS)
    assert labels == AGES
    assert images_and_labels(frame, None, image="file", label="pose")[1] == [[1, 2]] * 6
    assert images_and_labels(frame, AGES[::-1], image="file")[1] == AGES[::-1]
    with pytest.raises(UserError, match=r"no column label='agee'\. Did you mean 'age'\? There are: file"):
        images_and_labels(frame, None, image="file", label="agee")
    with pytest.raises(
        UserError, match=r"Name the column that holds the images, as in image='\.\.\.'\. There are: file, age"
    ):
        images_and_labels(frame, None, label="age")


def test_columns_of_a_hugging_face_data_set(paths: Sequence[Path]) -> None:
    import datasets

    data = datasets.Dataset.from_dict({"picture": [str(path) for path in paths], "age": AGES})
    data = data.cast_column("picture", datasets.Image())
    images, labels = images_and_labels(data, None, image="picture", label="age")
    assert np.array_equal(pixels_of(images), PIXELS)
    assert labels == AGES


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (PIXELS, AGES[:3], "one label per image. Got 6 images and 3 labels"),
        (PIXELS, None, "'labels' are missing"),
        (PIXELS / 255.0, AGES, r"must be uint8, 0 to 255. Got float64 instead; convert floats from 0 to 1"),
        (PIXELS[..., 0], AGES, r"shape \(N, H, W, 3\) or \(N, 3, H, W\). Got \(6, 5, 4\)"),
        (
            [*PIXELS[:5], PIXELS[0, 0]],
            AGES,
            r"images\[5\] must have the shape \(H, W, 3\) or \(3, H, W\). Got \(4, 3\)",
        ),
        (["a.png", None], [1, 2], r"images\[1\] must be a path, the bytes of an image file, .* Got NoneType"),
        ("a.png", [1], "Got the single path a.png"),
        (Image.fromarray(PIXELS[0]), [1], "Got a single image"),
        (3, [1], "Got int"),
        (PIXELS, "abcdef", "'labels' must be a sequence"),
        (torch.utils.data.TensorDataset(torch.zeros(3, 2)), None, r"must give \(x, label\)"),
    ],
)
def test_refusals(images: Any, labels: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=message):
        images_and_labels(images, labels)


def test_columns_are_read_by_place_not_by_their_index(paths: Sequence[Path]) -> None:
    frame = pandas.DataFrame({"file": [str(path) for path in paths]})
    turned = frame[::-1]
    assert np.array_equal(pixels_of(images_and_labels(turned.file, AGES)[0]), PIXELS[::-1])
    assert image_source(frame.file[4:])[0] == paths[4]
    assert list(image_source(np.asarray(frame.file, str))) == list(paths)
    with pytest.raises(UserError, match=r"give its column of images, as in images\['file'\]"):
        image_source(frame)
