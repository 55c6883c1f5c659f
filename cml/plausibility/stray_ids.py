"""Stray ids: ids of masks that cover next to nothing, as antialiased edges or lossy compression make them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cml.data.image_fault import ImageFault
from cml.data.masks import read_mask
from cml.plausibility.finding import Finding

_LOOKED_AT = 200  # masks, spread over the dataset
_STRAY = 0.005  # share of a mask that an id covers at most, in every mask
_MANY = 8  # stray ids
_IGNORED, _USUAL = 255, 64  # 255 often marks pixels to ignore, where all other ids are small


def find_stray_ids(
    masks: Sequence[Path],  # the files of masks, at least one
    names: Mapping[str, str],
    ignore_id: int | None,  # the id of pixels to ignore; None if there is none
) -> list[Finding]:  # at most two findings
    """Find ids that never cover more than half a per cent of a mask, where there are many, and 255 among small ids."""
    chosen = [masks[place] for place in np.unique(np.linspace(0, len(masks) - 1, _LOOKED_AT).astype(int)).tolist()]
    largest = np.zeros(256)
    for path in chosen:
        try:
            mask = read_mask(path)
        except ImageFault:  # it is reported as a fault of its own
            continue
        largest = np.maximum(largest, np.bincount(mask.reshape(-1), minlength=256) / mask.size)
    if ignore_id is not None:
        largest[ignore_id] = 0
    present = np.flatnonzero(largest)
    stray = np.flatnonzero((largest > 0) & (largest <= _STRAY))
    findings = []
    if len(stray) >= _MANY and len(stray) > len(present) / 2:
        what = f"{len(stray)} of {len(present)} ids never cover more than {_STRAY:.1%} of a mask"
        mend = "If edges were antialiased or compressed, draw the masks anew, with one whole id for each pixel."
        shown = [str(number) for number in stray[:8].tolist()]
        findings.append(Finding("stray-ids", what, mend, len(stray), len(present), shown))
    others = present[present != _IGNORED]
    is_unnamed = names.get(str(_IGNORED), "").startswith("region ") or str(_IGNORED) not in names
    if largest[_IGNORED] and is_unnamed and len(others) and others.max() < _USUAL and not findings:
        what = f"the id 255 is a region, but all {len(others)} others are below {_USUAL}"
        mend = "If it marks pixels to ignore, prepare the masks with --ignore-id 255."
        findings.append(Finding("stray-ids", what, mend, 1, len(present)))
    return findings
