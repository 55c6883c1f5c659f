"""Several copies of each item in a batch, each with random augmentation of its own.

Reference: Khosla et al.: Supervised Contrastive Learning, NeurIPS 2020; Zha et al.: Rank-N-Contrast, NeurIPS 2023.
"""

import numpy as np

from cml.array_types import Float32, Int64
from cml.data.inputs import Inputs
from cml.errors import UserError
from cml.training.config import TrainConfig


def check_views(config: TrainConfig, inputs: Inputs, *, augments: bool, draws: bool) -> None:
    """Check that the copies of an item differ."""
    jitter = config.scale_jitter, config.shift_jitter, config.brightness_jitter
    differ = any(jitter) or config.random_crop != "none" or config.flip == "image"
    if config.views > 1 and not (augments or draws or inputs.reads_anew or differ):
        raise UserError(
            f"All {config.views} views of an item would be equal: give augment=..., set brightness_jitter, "
            f"scale_jitter or shift_jitter, or leave out views={config.views}."
        )


def repeat_items(
    items: int,  # B, the items of the batch
    anchors: int,
    views: int,  # V, the copies of each item
) -> Int64:  # (V B,) positions in the batch, V A of them those of the anchors
    """List which item each copy of a batch is of: all copies of the anchors, which come first, then of the others.

    Example:
        >>> repeat_items(3, 2, 2).tolist()
        [0, 1, 0, 1, 2, 2]
    """
    return np.concatenate([np.tile(np.arange(anchors), views), np.tile(np.arange(anchors, items), views)])


def repeat_label_distances(
    label_distances: Float32,  # (A, B + S) of a batch's items, and of S further ones that have no copies
    positions: Int64,  # (V B,) of ``repeat_items``
    anchors: int,
) -> Float32:  # (V A, V B + S)
    """Make the label distances of all copies from those of the items; 0 between copies of an item."""
    items = int(positions.max()) + 1
    further = np.arange(items, label_distances.shape[1])
    block: Float32 = label_distances[np.ix_(positions[:anchors], np.concatenate([positions, further]))]
    block[:, : len(positions)][positions[:anchors, None] == positions] = 0
    return block
