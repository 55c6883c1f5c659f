"""All registered losses as a table: what ``cml losses`` prints and the documentation shows."""

import inspect
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from cml.losses import registry
from cml.losses.loss import LossInfo

_ORDER = ("label distances", "triplets", "vectors", "classes")
HEAD = ("loss", "labels", "cost of a batch", "source", "when to use it")


@dataclass(frozen=True)
class LossRow:
    """A row of the table."""

    name: str  # The registered name
    labels: str  # The kind of target: "label distances", "classes", "vectors", "triplets"
    cost: str  # As in ``LossInfo``
    source: str  # As in ``LossInfo``; the plugin or package of a loss that has none
    when: str  # As in ``LossInfo``; the first line of the docstring of a loss that has none


def loss_rows() -> list[LossRow]:
    """All registered losses, those over label distances first, cml's default at the top."""

    def place(row: LossRow) -> tuple[int, bool, str]:
        return [*_ORDER, row.labels].index(row.labels), row.name != "log-ratio", row.name

    return sorted(map(loss_row, registry.names()), key=place)


def loss_row(name: str) -> LossRow:
    """The row of one loss.

    Returns the row.
    """
    loss = registry.entry(name)
    first_line = (inspect.getdoc(loss) or "").partition("\n")[0]
    default = LossInfo(cost="", source=registry.origin(name), when=first_line)  # a user's own may have no info
    return LossRow(name, getattr(loss, "labels", ""), *astuple(getattr(loss, "info", default)))


def describe_loss(name: str) -> str:
    """A loss's settings and documentation, its row of the table, and the settings that ``cml bench`` varies.

    Returns text of several lines.
    """
    loss = registry.entry(name)
    space = getattr(loss, "search_space", {})
    varied = ", ".join(f"{key}={values}" for key, values in space.items())
    heads = ("Labels", "Cost of a batch", "Source", "When to use it", "Varied by cml bench")
    row = loss_row(name)
    when = row.when if hasattr(loss, "info") else ""  # else the first line of the documentation, which stands above
    texts = (row.labels, row.cost, row.source, when, varied)
    lines = [f"{head}: {text}" for head, text in zip(heads, texts, strict=True) if text]
    return "\n".join([registry.describe(name), "", *lines])


def text_table(rows: Sequence[LossRow]) -> str:
    """The rows as aligned text, with their use on a line of its own."""
    cells = [(row.name, row.labels, row.cost) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row, texts in zip(rows, cells, strict=True):
        aligned = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
        lines += ["  ".join([*aligned, row.source]), f"{'':{widths[0]}}  {row.when}"]
    return "\n".join(lines)


def markdown_table(rows: Sequence[LossRow]) -> str:
    """The rows as a Markdown table."""
    lines = [HEAD, ("---",) * len(HEAD), *((f"`{row.name}`", *astuple(row)[1:]) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
