"""The list of an audit: audit.csv of a run folder, the label most likely to be wrong first."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cml.checks.audit import NEIGHBORS, Audit, audit_labels
from cml.errors import DataError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder, Presentation
from cml.reporting.visible_text import visible_text
from cml.retrieval.text_table import align_columns, frame
from cml.storage.atomic import from_cell, write_csv
from cml.storage.regular_file import open_regular

if TYPE_CHECKING:
    import pandas

AUDIT = "audit.csv"
SCORE = "audit score"
_COLUMNS = ("rank", "item_id", "role", "label", "score", "label_distance_to_neighbors", "neighbors", "neighbor_labels")
_NEIGHBORS = 3  # that the list names
_SHOWN = 10  # items in an interpreter


@dataclass(frozen=True, eq=False)
class AuditList:
    """An audit with the names of its items."""

    audit: Audit
    names: Sequence[str]  # the N names or ids of the items
    labels: Sequence[str]  # the N labels in words
    roles: Sequence[str]  # the N roles; "" where there are none

    def __repr__(self) -> str:
        return "\n".join([*self.audit.lines(), self.table(_SHOWN)])

    @property
    def suspects(self) -> list[str]:
        """The names of the items, the label most likely to be wrong first: what to look at, or to label again, next."""
        return [self.names[item] for item in self.audit.order.tolist()]

    def rows(self, count: int | None = None) -> list[list[str]]:
        """List the first items."""
        audit, rows = self.audit, []
        for rank, item in enumerate(audit.order[:count].tolist(), 1):
            near = audit.neighbors[item, :_NEIGHBORS].tolist()
            rows.append(
                [
                    str(rank),
                    self.names[item],
                    self.roles[item],
                    self.labels[item],
                    f"{audit.scores[item]:.4f}",
                    f"{audit.neighbor_distances[item]:.4g}",
                    "; ".join(self.names[other] for other in near),
                    "; ".join(self.labels[other] for other in near),
                ]
            )
        return rows

    def table(self, count: int) -> str:
        """Write the first items as lines of text."""
        apart = f"median distance to {NEIGHBORS} neighbours ({self.audit.unit})"
        head = ["item", "rank", "score", apart, "label", "labels of neighbours"]
        cells = [
            [visible_text(name, 40), rank, score, apart, visible_text(label, 30), visible_text(near, 60)]
            for rank, name, _, label, score, apart, _, near in self.rows(count)
        ]
        return align_columns([head, *cells])

    def to_pandas(self) -> pandas.DataFrame:
        """Give one line per item with the columns of ``save``, the label most likely to be wrong first."""
        numbers = {"rank": int, "score": float, "label_distance_to_neighbors": float}
        rows = [dict(zip(_COLUMNS, row, strict=True)) for row in self.rows()]
        return frame({name: numbers.get(name, str)(value) for name, value in row.items()} for row in rows)

    def save(self, path: Path | str) -> Path:
        """Write the list as a CSV file."""
        return write_csv(path, _COLUMNS, self.rows())


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Read the scores of a list."""
    try:
        with open_regular(path) as file:
            lines = csv.reader(io.StringIO(file.read().decode(), newline=""))
            header, *rows = ([from_cell(cell) for cell in line] for line in lines)
        role, name, score = (header.index(column) for column in ("role", "item_id", "score"))
        scores = {(row[role], row[name]): float(row[score]) for row in rows}
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise DataError(f"{path} is not a list of 'cml audit' ({error}). Make it again: cml audit RUN") from None
    if not np.isfinite(list(scores.values())).all():
        raise DataError(f"{path} holds a score that is no number. Make it again: cml audit RUN")
    return scores


def audit_items(
    model: Embedder,
    items: LabelledItems,  # N items
    shown: Presentation,  # their labels in words, their roles and the unit of the report
    *,
    seed: int = 0,
) -> AuditList:
    """Find the labels that disagree with those of similar items."""
    features = model.embed_by_reference(items.inputs, bar="features")
    audit = audit_labels(
        features, items.labels, items.distance, groups=items.groups, factor=shown.factor, unit=shown.unit, seed=seed
    )
    return AuditList(audit, items.ids, shown.words, shown.roles)
