"""The items that a run proposes to label next, with their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cml.items.labelled_items import Embedder
from cml.reporting.visible_text import visible_text
from cml.retrieval.farthest_first import Farthest, choose_farthest
from cml.retrieval.text_table import align_columns
from cml.storage.atomic import write_csv

_COLUMNS = ("rank", "item_id", "distance")


@dataclass(frozen=True, eq=False)
class ProposalList:
    """Items to label next, the first one first."""

    names: Sequence[str]  # their ids: paths below the folder, or ids of the dataset
    # the distance of each, by frozen features, to the nearest item that has a label or stands before it
    distances: Sequence[float]

    def rows(self) -> list[list[str]]:
        """The list as texts: rank, name and distance of each."""
        pairs = zip(self.names, self.distances, strict=True)
        return [[str(rank), name, f"{distance:.4g}"] for rank, (name, distance) in enumerate(pairs, 1)]

    def table(self, count: int) -> str:
        """Write the first items as lines of text."""
        cells = [[visible_text(name, 60), rank, distance] for rank, name, distance in self.rows()[:count]]
        return align_columns([["item", "rank", "distance to the nearest"], *cells])

    def save(self, path: Path | str) -> Path:
        """Write the list as a CSV file."""
        return write_csv(path, _COLUMNS, self.rows())


def propose_items(
    model: Embedder,
    pool: Any,  # noqa: ANN401 - N inputs without labels
    labelled: Any,  # noqa: ANN401 - inputs
    count: int,
) -> Farthest:
    """Choose items of a pool by features that do not depend on the labels."""
    known = model.embed_by_reference(labelled, bar="features")
    return choose_farthest(model.embed_by_reference(pool, bar="features"), known, count)
