"""What an approximation gives: neighbour lists, all known distances, an embedding and its model."""

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.distances import LabelDistance, Neighbors, SparseDistances, as_label_distance
from cml.errors import DataError, UserError
from cml.runs.approximation.recall import RecallEstimate
from cml.runs.model import Model, load
from cml.storage.json_file import read_json
from cml.storage.npy import map_array

Float32 = NDArray[np.float32]
MANIFEST, KNOWN, EMBEDDINGS, MODEL = "approximation.json", "known.npz", "embeddings.npy", "model"
IDS, DISTANCES, ITEMS = "ids.npy", "distances.npy", "items.json"
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
            return [*lines, f"recall@{self.k} of the lists: unknown, for too few random pairs belong into them"]
        if not self.recall.neighbors:
            return [*lines, f"recall@{self.k} of the lists: 1, all pairs were asked for"]
        value, low, high = (f"{part:.3f}" for part in (self.recall.value, self.recall.low, self.recall.high))
        basis = f"95 %: {low} to {high}, from {self.recall.neighbors} random neighbours"
        return [*lines, f"recall@{self.k} of the lists: cautiously estimated at {value} ({basis})"]


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
        try:
            spent = dict(manifest["spent"])
            recall = spent.pop("recall")
            estimate = None if recall is None else RecallEstimate(**recall)
            ids, distances, embeddings = (map_array(folder / name) for name in (IDS, DISTANCES, EMBEDDINGS))
            return cls(
                Neighbors(np.array(ids), np.array(distances)),
                SparseDistances.read(folder / KNOWN),
                np.array(embeddings),
                Spent(**spent, recall=estimate),
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
            raise UserError("The recall cannot be estimated: too few random pairs belong into the lists.")
        return self.spent.recall.value

    def to_dict(self) -> dict[str, Any]:
        """Return what it took, as JSON can hold it."""
        return asdict(self.spent)

    def __repr__(self) -> str:
        share = self.spent.calls / self.spent.pairs
        recall = "unknown recall" if self.spent.recall is None else f"recall@{self.spent.k} of {self.recall:.3f}"
        return f"Approximation({self.spent.items:,} items, {share:.2%} of all pairs, {recall})"
