"""What Python users give as images and labels, recognised by its attributes, so that no library is imported for it.

Paths, bytes of image files, uint8 arrays and tensors in either channel order, Pillow images, a torch ``Dataset`` of
(image, label), a Hugging Face ``Dataset`` or a data frame with column names.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.array_types import Int64, UInt8
from cml.data.bands import bands_last
from cml.data.columns import Numbers
from cml.data.dataset_items import DatasetItems, Lazy, column_names, has_columns, is_dataset, labelled_items
from cml.data.tensor_array import tensor_array
from cml.errors import UserError, did_you_mean

OneImage = Path | bytes | Image.Image | UInt8
ImageSource = Sequence[OneImage] | UInt8  # N images, or one array (N, H, W, 3)


def images_and_labels(
    images: Any,  # noqa: ANN401 - the kinds that the file's head lists
    # a label for each image; None for a data set that holds them
    labels: Any,  # noqa: ANN401 - a sequence of any labels
    *,
    image: str | None = None,
    label: str | None = None,  # its column of labels, if ``labels`` is None
    channels: int = 3,
) -> tuple[ImageSource, Sequence[Any]]:
    """Recognise N images of any kind listed above, and their labels."""
    if has_columns(images) and not is_dataset(images):
        column = _column(images, image, "image")
        labels = _column(images, label, "label") if labels is None else labels
        source: ImageSource = Lazy(column, range(len(column)), partial(one_image, channels=channels))
    elif is_dataset(images) or labels is None:
        items, labels = labelled_items(images, labels, () if image is None else (image,), label)
        source = lazy_images(items, channels)
    else:
        source = image_source(images, channels)
    plain = label_list(labels)
    if len(source) != len(plain):
        raise UserError(f"There must be one label per image. Got {len(source)} images and {len(plain)} labels instead.")
    return source, plain


def label_list(labels: Any) -> Sequence[Any]:  # noqa: ANN401 - a sequence of any labels
    """Convert labels to plain Python values, which those of an array of numbers become as they are used."""
    if isinstance(labels, str) or not hasattr(labels, "__len__"):
        raise UserError(f"'labels' must be a sequence with a label for each input. Got {labels!r:.80} instead.")
    array = as_array(labels)
    if array is not None and array.ndim in (1, 2) and array.dtype.kind in "fiub":
        return Numbers(array.copy())
    plain = list(as_list(labels) if array is None else array.tolist())
    return [value.tolist() if hasattr(value, "tolist") else value for value in plain]


def image_source(
    # images of any kind listed above
    images: Any,  # noqa: ANN401 - the kinds that the file's head lists
    channels: int = 3,
) -> ImageSource:
    """Recognise N images without labels."""
    if isinstance(images, Lazy):  # recognised before
        return images
    if isinstance(images, str | Path):
        raise UserError(f"'images' must be a list of paths or an array. Got the single path {images} instead.")
    if isinstance(images, Image.Image | bytes):
        raise UserError("'images' must be a list of images or an array. Got a single image instead.")
    if has_columns(images):
        raise UserError("'images' is a data frame: give its column of images, as in images['file'].")
    if (array := as_array(images)) is not None and (array.ndim != 1 or array.dtype.kind not in "OSU"):
        return _channels_last(array, 4, "An array of images", channels)
    images = as_list(images)  # a frame's column is indexed by labels, not by position
    try:
        count = len(images)
    except TypeError:
        raise UserError(
            f"'images' must be paths, Pillow images, arrays or a data set. Got {type(images).__name__} instead."
        ) from None
    if isinstance(images, list | tuple):
        return [one_image(image, index, channels) for index, image in enumerate(images)]
    return Lazy(images, range(count), partial(one_image, channels=channels))


def one_image(image: Any, index: int, channels: int = 3) -> OneImage:  # noqa: ANN401 - the kinds that the file's head lists
    """Recognise an image."""
    if isinstance(image, str | Path):
        return Path(image)
    if isinstance(image, Image.Image | bytes):
        return image
    if (array := as_array(image)) is None:
        raise UserError(
            f"images[{index}] must be a path, the bytes of an image file, a Pillow image or an array of uint8, "
            "(H, W, 3) or (3, H, W). "
            f"Got {type(image).__name__} instead."
        )
    return _channels_last(array, 3, f"images[{index}]", channels)


def as_array(
    # anything; a tensor may be on any device
    value: Any,  # noqa: ANN401 - anything
) -> np.ndarray[Any, Any] | None:
    """Convert an array or tensor.

    Returns an array; None for anything else.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor, on any device
        return tensor_array(value)
    return None


def _channels_last(images: np.ndarray[Any, Any], axes: int, where: str, channels: int) -> UInt8:
    """Images of ``axes`` axes in either channel order, as channels last; if both orders fit, they are unchanged."""
    if channels != 3:
        return bands_last(images, axes, where, channels)
    if images.dtype != np.uint8:
        raise UserError(
            f"{where} must be uint8, 0 to 255. Got {images.dtype} instead; convert floats from 0 to 1 by "
            "(255 * images).round() to uint8, and leave out a transform such as ToTensor."
        )
    if images.ndim != axes or 3 not in (images.shape[-1], images.shape[-3]):
        shapes = "(H, W, 3) or (3, H, W)" if axes == 3 else "(N, H, W, 3) or (N, 3, H, W)"
        raise UserError(f"{where} must have the shape {shapes}. Got {images.shape} instead.")
    return images if images.shape[-1] == 3 else np.ascontiguousarray(np.moveaxis(images, -3, -1))


def _column(frame: Any, name: str | None, content: str) -> Any:  # noqa: ANN401 - a frame of any library
    """A column as a sequence; that of a Hugging Face data set decodes images on access."""
    names = column_names(frame)
    if name is None:
        raise UserError(
            f"Name the column that holds the {content}s, as in {content}='...'. There are: {', '.join(names)}."
        )
    if name not in names:
        hint = did_you_mean(name, names)
        raise UserError(f"The data has no column {content}={name!r}.{hint} There are: {', '.join(names)}.")
    return as_list(frame[name])


def as_list(column: Any) -> Any:  # noqa: ANN401 - a column of any library
    """Convert a column of any library to a list; one that decodes its images on access is unchanged."""
    names = ("to_list", "tolist", "to_pylist")  # of pandas and polars, NumPy, Arrow
    return next((getattr(column, name)() for name in names if hasattr(column, name)), column)


def lazy_images(items: DatasetItems, channels: int = 3) -> ImageSource:
    """Recognise the images of a data set when they are read, anew at each use."""
    return Lazy(items, range(len(items)), partial(one_image, channels=channels), reads_anew=True)


def number_groups(
    groups: Any,  # noqa: ANN401 - a sequence of any names
    count: int,
) -> Int64:  # (N,) the number of each input's group
    """Number the groups of inputs."""
    return number_both_groups(groups, count, (), 0)[0]


def number_both_groups(
    groups: Any,  # noqa: ANN401 - a sequence of N names
    count: int,  # N
    others: Any,  # noqa: ANN401 - a sequence of M names
    other_count: int,  # M
) -> tuple[Int64, Int64]:  # (N,) and (M,) numbers, one for each name on both sides
    """Number the groups of inputs and of the items that they are searched among."""
    sides = [label_list(side) for side in (groups, others)]
    for names, wanted in zip(sides, (count, other_count), strict=True):
        if len(names) != wanted:
            raise UserError(
                f"'groups' must name a group for each input. Got {len(names)} names and {wanted} inputs instead."
            )
        missing = next((row for row, name in enumerate(names) if name is None or name != name), None)
        if missing is not None:
            raise UserError(
                f"'groups' must name a group for each input. Got {names[missing]} for input {missing} instead: one "
                "whose group is not known is left out, or is a group of its own."
            )
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*sides[0], *sides[1]]))}
    ours, theirs = (np.array([numbers[name] for name in names], np.int64) for names in sides)
    return ours, theirs
