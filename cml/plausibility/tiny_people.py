"""Tiny people: crops of a few pixels of a photograph, which are enlarged to the size of all crops."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cml.plausibility.crops import read_crops
from cml.plausibility.finding import Finding

_SMALLEST = 24  # pixels of the photograph that are the side of a crop; a stored one has 288


def find_tiny_people(
    items: Sequence[str],
    # the N further columns of metadata.jsonl, of which "crop" holds left, top and side, in pixels
    columns: Sequence[Mapping[str, Any]],
) -> Iterator[Finding]:
    """Find people whose crop has a side of less than 24 pixels in the photograph."""
    crops = read_crops(columns)
    sides = [] if crops is None else crops[:, 2].tolist()
    tiny = [f"{item}: {side:g}" for item, side in zip(items, sides, strict=False) if side < _SMALLEST]
    if tiny:
        yield Finding(
            "tiny-people",
            f"the crops of {len(tiny)} of {len(items)} people have a side of less than {_SMALLEST} pixels",
            "Leave out people of a few pixels, or check whether their joints are in pixels.",
            len(tiny),
            len(items),
            tiny[:8],
        )
