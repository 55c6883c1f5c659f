"""What the ids in a user's own masks mean."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cml.data.masks import MaskFault, read_mask
from cml.errors import UserError


def parse_ids(names: Sequence[str]) -> dict[str, str]:  # names: texts such as "1=wall"
    """Read what the ids of masks mean."""
    ids: dict[str, str] = {}
    for text in names:
        key, _, name = text.partition("=")
        if not (key.isdecimal() and int(key) <= 255) or not name.strip() or str(int(key)) in ids:
            form = "1=wall 2=floor ..., an id from 0 to 255 once each"
            raise UserError(f"mask_names should read {form}. Got {text!r} instead.")
        ids[str(int(key))] = name.strip()
    return ids


def find_ids(
    masks: Iterable[Path], ignore_id: int | None
) -> dict[str, str]:  # ids, as texts, to names: "region 1" and so on
    """Find the ids that occur in masks. A mask that cannot be read is skipped here."""
    with ThreadPoolExecutor() as pool:
        present = set().union(*pool.map(_present, masks)) - {ignore_id}
    return {str(number): f"region {number}" for number in sorted(present)}


def _present(path: Path) -> set[Any]:
    try:
        return set(np.unique(read_mask(path)).tolist())
    except MaskFault:
        return set()
