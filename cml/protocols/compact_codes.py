"""compact-codes: what a search loses where the gallery is kept in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.distances import LabelDistance
from cml.distances.label_distance import listed_distances
from cml.errors import UserError
from cml.protocols.figures import Figure, ProtocolResult, draw_parts, summarize
from cml.protocols.nearest_lists import NearestLists, number_other_groups
from cml.protocols.protocol import EmbeddedItems, Protocol
from cml.retrieval.metric_result import GIVEN_GALLERY
from cml.settings import check_whole, check_word

_LEVELS = 255  # of an int8 number
_BITS = 8  # of the code of a part, as faiss has it
_FEWEST = 1 << _BITS  # items that a product quantiser learns from

Coded = tuple[
    int, Float32, Float32
]  # bytes of an item; queries (Q, D) and gallery (G, D) as their codes stand for them


@dataclass(frozen=True)
class CompactCodes(Protocol):
    """What a search loses where embeddings are kept in fewer bytes.

    A row a form: ``float32``, as it is; ``float16``; ``int8``, each dimension in 255 levels between its least and its
    largest number in the gallery; ``binary``, the sign of each dimension less its median, compared by Hamming distance
    (Gong et al., Iterative Quantization, CVPR 2011, without the rotation); ``pq``, a product quantiser with one byte
    for ``part`` dimensions (Jégou et al., TPAMI 2011), by faiss. Queries stay as they are, but for ``binary``.

    Figures: ``bytes`` of an item; ``label_distance``, the mean of the first ``k``; ``recall``, the share of the first
    ``k`` of float32 that are found among the first ``k``.

    Attributes:
        forms: The forms that are measured; ``pq`` needs faiss, ``pip install faiss-cpu``.
        k: Length of the lists.
        part: Dimensions of a part of ``pq``, of which the dimension of the embedding is a multiple.
        seed: Random seed of the blocks of the intervals.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> distance = distances.get("euclidean")
        >>> rows = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
        >>> result = CompactCodes(forms=("float32", "int8", "binary")).measure(
        ...     distance, EmbeddedItems(rows, distance.encode(rows[:, 0].tolist()))
        ... )
        >>> [int(row["bytes"].value) for row in result.figures.values()]
        [32, 8, 1]
    """

    forms: tuple[str, ...] = ("float32", "float16", "int8", "binary")
    k: int = 10
    part: int = 8
    name: ClassVar[str] = "compact-codes"

    def __post_init__(self) -> None:
        super().__post_init__()
        for form in self.forms:
            check_word("forms", form, (*_FORMS, "pq"))
        check_whole("k", self.k)
        check_whole("part", self.part)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Search by each form."""
        known = queries if gallery is None else gallery
        if len(known) - (gallery is None) < self.k:
            raise UserError(f"Lists of k={self.k} need as many items to search. Got {len(known)} instead.")
        groups = number_other_groups(queries, gallery)
        exact = NearestLists.find(queries.embeddings, known.embeddings, groups, self.k)
        units = np.unique(groups[0], return_inverse=True)[1]
        parts = draw_parts(int(units.max()) + 1, self.seed)
        rows = {}
        for form in self.forms:
            size, left, right = self._code(form, queries.embeddings, known.embeddings)
            coded = exact if form == "float32" else NearestLists.find(left, right, groups, self.k)
            found = []
            for part in parts:
                kept = part[units]
                items = kept if gallery is None else np.ones(len(known), bool)  # those that are searched
                found.append(self._compare(distance, queries, known, exact.take(items), coded.take(items), kept))
            figures = summarize(found, lowest=0)
            recall = figures["recall"]
            figures["recall"] = replace(recall, high=min(1.0, recall.high))
            rows[form] = {"bytes": Figure(size), **figures}
        note = (
            f"{len(queries)} queries, the first {self.k} of {len(known)} items; label distances in {distance.unit}. 95 "
            f"% intervals over queries{'' if gallery is None else GIVEN_GALLERY}."
        )
        return ProtocolResult(self.name, rows, note)

    def _compare(
        self,
        distance: LabelDistance,
        queries: EmbeddedItems,
        known: EmbeddedItems,
        exact: tuple[Int64, Bools],
        coded: tuple[Int64, Bools],
        kept: Bools,  # (Q,)
    ) -> dict[str, float]:
        """The mean label distance of lists (Q, k) of codes, and the share of the exact lists that they hold."""
        (wanted, _), (positions, is_filled) = exact, coded
        far = listed_distances(distance, queries.labels[kept], known.labels, positions[kept]).astype(np.float64)
        is_known = is_filled[kept] & np.isfinite(far)
        counts = is_known.sum(axis=1)
        means = np.where(is_known, far, 0).sum(axis=1)[counts > 0] / counts[counts > 0]
        is_found = (positions[kept][:, :, None] == wanted[kept][:, None]).any(axis=2) & is_filled[kept]
        return {"label_distance": float(means.mean()) if len(means) else float("nan"), "recall": float(is_found.mean())}

    def _code(self, form: str, left: Float32, right: Float32) -> Coded:
        """What the codes of a form stand for."""
        return self._quantise_parts(left, right) if form == "pq" else _FORMS[form](left, right)

    def _quantise_parts(self, left: Float32, right: Float32) -> Coded:
        """Product codes of the gallery, by the centroids that faiss finds."""
        try:
            import faiss
        except ImportError:
            raise UserError("The form 'pq' needs faiss: pip install faiss-cpu.") from None
        size = right.shape[1]
        if size % self.part or len(right) < _FEWEST:
            raise UserError(
                f"The form 'pq' needs an embedding whose dimension is a multiple of 'part', and {_FEWEST} items to "
                f"learn from. Got {size} dimensions, part={self.part} and {len(right)} items instead."
            )
        quantiser: Any = faiss.ProductQuantizer(size, size // self.part, _BITS)  # its stubs have the calls of C++
        rows = np.ascontiguousarray(right, np.float32)
        quantiser.train(rows)
        return size // self.part, left, quantiser.decode(quantiser.compute_codes(rows))


def _keep(left: Float32, right: Float32) -> Coded:
    return 4 * right.shape[1], left, right


def _halve(left: Float32, right: Float32) -> Coded:
    return 2 * right.shape[1], left, right.astype(np.float16).astype(np.float32)


def _scale_to_int8(left: Float32, right: Float32) -> Coded:
    low, high = right.min(axis=0), right.max(axis=0)
    step = np.where(high > low, (high - low) / _LEVELS, 1).astype(np.float32)
    return right.shape[1], left, low + np.round((right - low) / step) * step


def _take_signs(left: Float32, right: Float32) -> Coded:
    """Signs as 0 and 1, whose squared L2 distance is the Hamming distance."""
    middle = np.median(right, axis=0)
    sides = ((rows > middle).astype(np.float32) for rows in (left, right))
    return -(-right.shape[1] // 8), *sides


_FORMS: dict[str, Callable[[Float32, Float32], Coded]] = {
    "float32": _keep,
    "float16": _halve,
    "int8": _scale_to_int8,
    "binary": _take_signs,
}
