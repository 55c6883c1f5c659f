"""The discrete Frechet distance, for tracks whose largest deviation counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import Search
from cml.distances.sequences.aligned_sequences import check_steps, pairwise_alignment, search_alignments
from cml.distances.sequences.packed_sequences import pack_sequences


@dataclass(frozen=True)
class Frechet(LabelDistance):
    """The least largest distance of steps along an alignment of two sequences (discrete Frechet).

    A label is a sequence of numbers (T,) or of vectors (T, F); lengths may differ. An alignment goes from both first
    steps to both last ones, and stays or goes on by one step in either sequence. Unlike ``dtw``, which sums over the
    alignment, one step that is far off decides.

    Args:
        band: How many steps an alignment may leave the diagonal (Sakoe and Chiba), at least as many as lengths differ;
            0 for any number. Nearest neighbours are found much faster with a band.

    Source:
        Eiter and Mannila, "Computing discrete Frechet distance", TU Vienna 1994.

    Example:
        >>> distance = Frechet()
        >>> tracks = distance.encode([[0, 1, 2], [0, 0, 1, 2], [0, 1, 4]])
        >>> distance.pairwise(tracks, tracks)[0].tolist()
        [0.0, 0.0, 2.0]
    """

    band: int = 0
    name: ClassVar[str] = "frechet"
    unit: ClassVar[str] = "as the steps"
    is_costly: ClassVar[bool] = True

    @property
    def is_metric(self) -> bool:
        """True without a band."""
        return not self.band

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("band", self.band)

    def encode(self, labels: Sequence[Any]) -> Labels:  # the arrays of ``pack_sequences``
        """Check and pack sequences."""
        return pack_sequences(labels)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        return pairwise_alignment(a, b, self.band, is_sum=False)

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """Prepare a search that looks at lower bounds first."""
        return search_alignments(labels, k, self.band, is_sum=False)
