"""An answer of a search in an index."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Hit:
    """One answer to a query.

    Attributes:
        item_id: Id of the item.
        path: Its image; None of a vector, and of an item that was added without a file.
        distance: L2 distance of its embedding to the query's.
        label: Its label: a number, a text, a list of these, or None.
    """

    item_id: str
    path: Path | None
    distance: float
    label: Any = None

    @property
    def shown_label(self) -> str:
        """The label as a text, numbers with six digits; "" for none."""
        if self.label is None:
            return ""
        return f"{self.label:.6g}" if isinstance(self.label, float) else str(self.label)
