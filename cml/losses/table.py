"""All registered losses as a table: what ``cml losses`` prints and the documentation shows."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from cml.losses import registry
from cml.losses.loss import About

_ORDER = ("label distances", "vectors", "classes")
HEAD = ("loss", "labels", "cost of a batch", "source", "when to use it")


@dataclass(frozen=True)
class LossRow:
    """What the table says of a loss: its name, what it is given beside the embeddings, and what ``About`` says."""

    name: str
    labels: str
    cost: str
    source: str
    when: str


def loss_rows() -> list[LossRow]:
    """All registered losses, those over label distances first, cml's default at the top."""
    return sorted((loss_row(name) for name in registry.names()), key=_place)


def loss_row(name: str) -> LossRow:
    """What the table says of one loss.

    Raises:
        UserError: the name is unknown.
    """
    loss = registry.entry(name)
    silent = About(cost="", source=registry.origin(name), when=(inspect.getdoc(loss) or "").partition("\n")[0])
    about = getattr(loss, "about", silent)  # of somebody's own loss it may be missing
    return LossRow(name, getattr(loss, "labels", ""), about.cost, about.source, about.when)


def described(name: str) -> str:
    """A loss's settings and documentation, its row of the table, and what ``cml bench`` varies.

    Raises:
        UserError: the name is unknown.
    """
    row = loss_row(name)
    varied = ", ".join(f"{key}={values}" for key, values in getattr(registry.entry(name), "vary", {}).items())
    said = {
        "Labels": row.labels,
        "Cost of a batch": row.cost,
        "Source": row.source,
        "When to use it": row.when,
        "Varied by cml bench": varied,
    }
    return "\n".join([registry.described(name), "", *(f"{what}: {text}" for what, text in said.items() if text)])


def text_table(rows: Sequence[LossRow]) -> str:
    """The rows as aligned text, with their use on a line of its own."""
    widths = [max(len(getattr(row, column)) for row in rows) for column in ("name", "labels", "cost")]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip((row.name, row.labels, row.cost), widths, strict=True)]
        lines += ["  ".join([*cells, row.source]), f"{'':{widths[0]}}  {row.when}"]
    return "\n".join(lines)


def markdown_table(rows: Sequence[LossRow]) -> str:
    """The rows as a Markdown table."""
    lines = [
        HEAD,
        ("---",) * len(HEAD),
        *((f"`{row.name}`", row.labels, row.cost, row.source, row.when) for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _place(row: LossRow) -> tuple[int, bool, str]:
    place = _ORDER.index(row.labels) if row.labels in _ORDER else len(_ORDER)
    return place, row.name != "log-ratio", row.name
