"""A lower bound of the captions' distance, for a quick look. Not for: results (captions)."""

from dataclasses import dataclass
from typing import ClassVar

from cml.distances.captions.distance import Captions


@dataclass(frozen=True)
class CaptionsRwmd(Captions):
    """An approximation of ``captions`` from below, 10 to 20 times as fast: for a quick look, not for results.

    Every word moves to its nearest word of the other caption, whatever room there is (the relaxed Word Mover's
    Distance, the larger of both directions). On captions of COCO photographs the sum is 5 % (stop words left out) to
    12 % (kept) below the exact one. Settings and labels are those of ``Captions``.
    """

    name: ClassVar[str] = "captions-rwmd"
    unit: ClassVar[str] = "summed RWMD"
    _relaxed: ClassVar[bool] = True
