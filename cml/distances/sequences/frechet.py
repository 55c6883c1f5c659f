"""The discrete Frechet distance, for tracks whose largest deviation counts."""

from dataclasses import dataclass
from typing import ClassVar

from cml.distances.sequences.alignment import Alignment


@dataclass(frozen=True)
class Frechet(Alignment):
    """The least largest distance of steps along an alignment of two sequences (discrete Frechet).

    A label is a sequence of numbers (T,) or of vectors (T, F), or of labels of ``base``; lengths may differ. An
    alignment goes from both first steps to both last ones, and stays or goes on by one step in either sequence. Unlike
    ``dtw``, which sums over the alignment, one step that is far off decides.

    Args:
        base: The distance between steps, such as ``"circular"`` of angles, ``"rotation(form=euler)"`` or
            ``"haversine"``; ``"euclidean"`` of numbers and vectors. Lower bounds are for this one alone.
        band: How many steps an alignment may leave the diagonal (Sakoe and Chiba), at least as many as lengths differ;
            0 for any number. Nearest neighbours are found much faster with a band.
        open_ends: How many steps at the beginning, and at the end, of one of the two sequences an alignment may leave
            out, as many at either end; fewer than the shortest has.

    Source:
        Eiter and Mannila, "Computing discrete Frechet distance", TU Vienna 1994.

    Example:
        >>> distance = Frechet()
        >>> tracks = distance.encode([[0, 1, 2], [0, 0, 1, 2], [0, 1, 4]])
        >>> distance.pairwise(tracks, tracks)[0].tolist()
        [0.0, 0.0, 2.0]
    """

    name: ClassVar[str] = "frechet"
    is_sum: ClassVar[bool] = False

    @property
    def is_metric(self) -> bool:
        """True without a band and with closed ends, if the base's is one."""
        return not self.band and not self.open_ends and self._base.is_metric
