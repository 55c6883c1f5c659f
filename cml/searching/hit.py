"""An answer of a search."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

TRAINED = "trained on"
"""The column of an index that is "yes" for items that its model was trained on."""
_NO_COLUMNS: Mapping[str, Any] = MappingProxyType({})


class Hit(NamedTuple):
    """One answer to a query."""

    item_id: str
    path: Path | None  # its image; None of a vector, and of an item that was added without a file
    distance: float  # L2 distance of its embedding to the query's
    label: Any = None  # its label: a number, a text, a list of these, or None
    # further columns of its dataset, numbers and texts, such as those of ``--keep-columns``
    columns: Mapping[str, Any] = _NO_COLUMNS

    @property
    def is_trained(self) -> bool:
        """Whether the model is known to have been trained on the item, which brings it nearer to like items."""
        return self.columns.get(TRAINED) == "yes"

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
