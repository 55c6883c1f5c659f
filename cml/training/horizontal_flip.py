"""The horizontal flip of a batch's images, and of the labels that are mirrored with them, such as poses."""

from typing import Literal

import numpy as np

from cml.array_types import Bools
from cml.distances.labels import Labels


def draw_flips(
    flip: Literal["none", "list", "image"],
    count: int,  # B, the number of images
    rng: np.random.Generator,
) -> Bools:  # (B,) whether each image is mirrored
    """Draw which images of a batch are mirrored, each with probability 1/2."""
    flips = np.zeros(count, bool)
    if flip != "none":
        flips[:] = rng.random(1 if flip == "list" else count) < 0.5
    return flips


def mirror_labels(
    labels: Labels,  # B labels of the images as they are, such as keypoints
    mirrored: Labels,  # B labels of the same images, mirrored, such as keypoints with left and right exchanged
    flips: Bools,  # (B,) whether each image is mirrored
) -> Labels:  # B labels
    """Take the labels of mirrored images where the image is mirrored."""
    arrays = {}
    for name, array in labels.arrays.items():
        is_mirrored = flips.reshape(-1, *[1] * (array.ndim - 1))
        arrays[name] = np.where(is_mirrored, mirrored.arrays[name], array)
    return Labels(arrays)
