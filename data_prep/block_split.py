"""The split of a video into blocks of time, with gaps between them."""

import numpy as np

from cml.array_types import Bools

ROLE_LETTERS = {"T": "train", "Q": "query", "G": "gallery"}


def deal_roles(
    frames: int,
    *,
    deal: str,  # letters of the blocks in order, T (train), Q (query) or G (gallery); repeated if there are more blocks
    blocks: int,
    gap: int,
) -> list[str | None]:  # the role of each frame; None for a frame that is left out
    """Give each frame of a video a role, block by block."""
    letters = np.array([deal[frame * blocks // frames % len(deal)] for frame in range(frames)])
    query, gallery = letters == "Q", letters == "G"
    gallery &= ~_within(query, gap)
    train = (letters == "T") & ~_within(query | gallery, gap)
    roles = np.select([train, query, gallery], list(ROLE_LETTERS.values()), default="")
    return [str(role) or None for role in roles]


def _within(chosen: Bools, gap: int) -> Bools:
    """Frames that have a chosen one at most ``gap`` frames before or behind: (N,) to (N,)."""
    counts = np.concatenate([[0], np.cumsum(chosen)])
    at = np.arange(len(chosen))
    inside: Bools = counts[np.minimum(at + gap + 1, len(chosen))] > counts[np.maximum(at - gap, 0)]
    return inside
