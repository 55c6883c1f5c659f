"""Same images: all, or most, images of a dataset look alike, so that they cannot tell labels apart."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cml.plausibility.finding import Finding
from cml.plausibility.thumbnails import Thumbnail

_FEWEST = 4  # images
_SHARE = 0.5  # of all images


def find_same_images(thumbnails: Mapping[Path, Thumbnail]) -> list[Finding]:
    """Find thumbnails that are exactly the same for half of the images or more."""
    if len(thumbnails) < _FEWEST:
        return []
    counts = Counter(thumbnail.tobytes() for thumbnail in thumbnails.values())
    content, count = counts.most_common(1)[0]
    if count < 2 or count < _SHARE * len(thumbnails):
        return []
    alike = [path.name for path, thumbnail in thumbnails.items() if thumbnail.tobytes() == content]
    shade = np.frombuffer(content, np.uint8)
    look = "are of one colour" if np.ptp(shade) == 0 else "look exactly the same"
    mend = "Check that they are the right files: no placeholders, and of no depth that comes out black."
    return [
        Finding("same-images", f"{count} of {len(thumbnails)} images {look}", mend, count, len(thumbnails), alike[:8])
    ]
