"""Dynamic time warping, for motions, tracks and measurements of unequal speed."""

from dataclasses import dataclass
from typing import ClassVar

from cml.distances.sequences.alignment import Alignment


@dataclass(frozen=True)
class Dtw(Alignment):
    """The root of the least sum of squared distances of steps along an alignment of two sequences.

    A label is a sequence of numbers (T,) or of vectors (T, F), or of labels of ``base``; lengths may differ. An
    alignment goes from both first steps to both last ones, and stays or goes on by one step in either sequence. Values
    are those of dtaidistance and tslearn. Soft-DTW, which is smooth in the steps, is not here: no loss needs gradients
    of labels, and it is neither 0 for equal sequences nor above 0 for others.

    Args:
        base: The distance between steps, such as ``"circular"`` of angles, ``"rotation(form=euler)"`` or
            ``"haversine"``; ``"euclidean"`` of numbers and vectors. Lower bounds are for this one alone.
        band: How many steps an alignment may leave the diagonal (Sakoe and Chiba), at least as many as lengths differ;
            0 for any number. Nearest neighbours are found much faster with a band.
        open_ends: How many steps at the beginning, and at the end, of one of the two sequences an alignment may leave
            out, as many at either end; fewer than the shortest has. It is the psi relaxation of dtaidistance.

    Source:
        Sakoe and Chiba, "Dynamic programming algorithm optimization for spoken word recognition", IEEE TASSP 1978.
        Open ends: Silva, Batista and Keogh, "Prefix and suffix invariant dynamic time warping", ICDM 2016.

    Example:
        >>> distance = Dtw()
        >>> tracks = distance.encode([[0, 1, 2], [0, 0, 1, 2], [0, 1, 4]])
        >>> distance.pairwise(tracks, tracks)[0].tolist()
        [0.0, 0.0, 2.0]
        >>> headings = Dtw("circular")
        >>> turns = headings.encode([[350, 355, 0], [350, 0, 5]])
        >>> headings.pairwise(turns[:1], turns).astype(float).round(3).tolist()
        [[0.0, 7.071]]
    """

    name: ClassVar[str] = "dtw"
    is_sum: ClassVar[bool] = True
