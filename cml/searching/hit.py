"""An answer of a search in an index."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        columns: Further columns of its dataset, numbers and texts, such as those of ``--keep-columns``.
    """

    item_id: str
    path: Path | None
    distance: float
    label: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown_label(self) -> str:
        """The label as a text, numbers with six digits; "" for none."""
        return "" if self.label is None else _show(self.label)

    @property
    def shown_columns(self) -> dict[str, str]:
        """The further columns as texts, numbers with six digits, without those that are empty."""
        texts = {name: "" if value is None else _show(value) for name, value in self.columns.items()}
        return {name: text for name, text in texts.items() if text}


def _show(value: Any) -> str:  # noqa: ANN401 - as JSON holds it
    return f"{value:.6g}" if isinstance(value, float) else str(value)
