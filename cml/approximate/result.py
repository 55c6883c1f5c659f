"""What an approximation gives: neighbour lists, all known distances, an embedding and its model."""

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from cml.approximate.recall import RecallEstimate
from cml.array_types import Float32, Int64
from cml.distances import LabelDistance, Neighbors, SparseDistances, as_label_distance
from cml.distances.nearest import check_k
from cml.distances.precomputed import Precomputed
from cml.doors.load import load
from cml.doors.model import Model
from cml.errors import DataError, UserError
from cml.retrieval.search import nearest_others
from cml.storage.checksums import find_damaged, is_signed
from cml.storage.json_file import check_format, read_json
from cml.storage.regular_file import map_array
from cml.storage.saved_options import record

MANIFEST, KNOWN, EMBEDDINGS, MODEL = "approximation.json", "known.npz", "embeddings.npy", "model"
IDS, DISTANCES, ITEMS = "ids.npy", "distances.npy", "items.json"
_BLOCK = 1024  # items that are ranked together
PARTS = (IDS, DISTANCES, KNOWN, EMBEDDINGS, MODEL, ITEMS)


@dataclass(frozen=True)
class Spent:
    """What an approximation took, and what it reached.

    Attributes:
        items: N.
        k: Neighbours in a list.
        calls: Calls of the label distance.
        pairs: All pairs of items.
        recall: The share of the true nearest k that the lists hold; None if it cannot be estimated.

    Example:
        >>> print(Spent(items=1000, k=10, calls=4995, pairs=499500, recall=None).lines()[0])
        4,995 calls of the label distance, 1.000% of all 499,500 pairs
    """

    items: int
    k: int
    calls: int
    pairs: int
    recall: RecallEstimate | None

    def lines(self) -> list[str]:
        """Say what was asked for, and how complete the lists are."""
        share = self.calls / self.pairs
        lines = [f"{self.calls:,} calls of the label distance, {share:.3%} of all {self.pairs:,} pairs"]
        if self.recall is None:
            return [*lines, f"recall@{self.k} of the lists: unknown, the budget is too small for an estimate"]
        if not self.recall.items:
            return [*lines, f"recall@{self.k} of the lists: 1, all pairs were asked for"]
        value, low, high = (f"{part:.3f}" for part in (self.recall.value, self.recall.low, self.recall.high))
        basis = f"95 %: {low} to {high}, from {self.recall.items} items"
        return [*lines, f"recall@{self.k} of the lists: estimated at {value} ({basis})"]


@dataclass(frozen=True, eq=False)
class Approximation:
    """Neighbour lists and an embedding from few calls of a slow label distance. Made by ``cml.distances.approximate``.

    Attributes:
        neighbors: The nearest k of each item among the pairs that were asked for, by the true label distance.
        known: All distances that were asked for.
        embeddings: (N, F) embeddings of the items, which follow the label distance.
        spent: What it took, and an estimate of the recall of the lists.
        unit: The unit of the label distance.
        folder: Where all of it lies; None if that was temporary.
        model: The model that embeds further items by their vectors.

    Example:
        >>> kept = Approximation.open("runs/distances")  # doctest: +SKIP
        >>> print(kept.spent.lines()[0])  # doctest: +SKIP
        4,995 calls of the label distance, 1.000% of all 499,500 pairs
    """

    neighbors: Neighbors
    known: SparseDistances
    embeddings: Float32
    spent: Spent
    unit: str
    folder: Path | None
    model: Model

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open the folder of a finished approximation.

        Args:
            folder: The folder.

        Returns:
            The approximation.

        Raises:
            DataError: It is none, or damaged.
        """
        folder = Path(folder)
        manifest = read_json(folder / MANIFEST, "the record of an approximation")
        if isinstance(manifest, dict) and "spent" in manifest:
            check_format(manifest, folder / MANIFEST, f"Delete {folder} and run 'cml distances --budget' again.")
            damaged = find_damaged(folder, manifest) if is_signed(manifest) else folder / MANIFEST
            if damaged is not None:
                mend = f"Restore it from a copy, or delete {folder} and make it again."
                raise DataError(f"{damaged} is damaged: its checksum is wrong. {mend}")
        try:
            spent = record(manifest["spent"], Spent, str(folder / MANIFEST), "what an approximation took")
            ids, distances, embeddings = (map_array(folder / name) for name in (IDS, DISTANCES, EMBEDDINGS))
            known = SparseDistances.read(folder / KNOWN)
            Precomputed(str(folder))  # whose rules the lists keep
            fits = embeddings.ndim == 2 and embeddings.dtype == np.float32 and np.isfinite(embeddings).all()
            pairs = spent.items * (spent.items - 1) // 2
            fits &= len(embeddings) == known.items == spent.items and ids.shape == (spent.items, spent.k)
            if not fits or not spent.calls > 0 or spent.pairs != pairs or pairs < 1:
                raise ValueError("its embeddings, lists, known distances and numbers of them do not fit each other")
            return cls(
                Neighbors(np.array(ids), np.array(distances)),
                known,
                np.array(embeddings),
                spent,
                str(manifest["unit"]),
                folder,
                load(folder / MODEL, device="cpu"),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{folder} is no finished approximation ({error}); make it again.") from None

    @functools.cached_property
    def label_distance(self) -> LabelDistance:
        """The known distances as a label distance, whose labels are the numbers of the items.

        ``cml.fit(inputs, range(N), label_distance=approximation.label_distance)`` trains on them.
        """
        return as_label_distance(self.known, unit=self.unit)

    @property
    def recall(self) -> float:
        """The estimated share of the true nearest k that the lists hold.

        Raises:
            UserError: It cannot be estimated.
        """
        if self.spent.recall is None:
            raise UserError("The recall cannot be estimated: the budget is too small.")
        return self.spent.recall.value

    def candidates(self, count: int) -> Int64:
        """Rank items by what is known, and by the embedding where nothing is: for a list longer than ``neighbors``.

        Args:
            count: K, 1 to N - 1.

        Returns:
            (N, K) item numbers: first the neighbours of each item by the true label distance, then the nearest of the
            embedding that it was not compared with, then the other items that it was compared with.

        Raises:
            UserError: K is out of range.
        """
        items = len(self.embeddings)
        check_k(count, items)
        starts = np.zeros(items + 1, np.int64)  # of the known distances of each item
        starts[1 + self.known.rows] = np.diff(self.known.starts)
        starts = np.cumsum(starts)
        depth = min(items - 1, count + int(np.diff(starts).max()))
        ranked = np.empty((items, count), np.int64)
        for first in range(0, items, _BLOCK):
            block = np.arange(first, min(first + _BLOCK, items))
            _, nearest = nearest_others(self.embeddings, block, depth)
            for item, row in zip(block.tolist(), nearest, strict=True):
                listed = self.neighbors.ids[item]
                listed = listed[listed >= 0]
                is_known = np.isin(row, self.known.columns[starts[item] : starts[item + 1]])
                others = row[is_known & ~np.isin(row, listed)]
                ranked[item] = np.concatenate([listed, row[~is_known], others])[:count]
        return ranked

    def to_dict(self) -> dict[str, Any]:
        """Return what it took, as JSON can hold it."""
        return asdict(self.spent)

    def __repr__(self) -> str:
        share = self.spent.calls / self.spent.pairs
        recall = "unknown recall" if self.spent.recall is None else f"recall@{self.spent.k} of {self.recall:.3f}"
        return f"Approximation({self.spent.items:,} items, {share:.2%} of all pairs, {recall})"
