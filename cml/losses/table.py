"""All registered losses as a table: what ``cml losses`` prints and the documentation shows."""

import inspect
from collections.abc import Sequence
from dataclasses import astuple, dataclass

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

    def place(row: LossRow) -> tuple[int, bool, str]:
        return [*_ORDER, row.labels].index(row.labels), row.name != "log-ratio", row.name

    return sorted(map(loss_row, registry.names()), key=place)


def loss_row(name: str) -> LossRow:
    """What the table says of one loss; a ``UserError`` if the name is unknown."""
    loss = registry.entry(name)
    silent = About(cost="", source=registry.origin(name), when=(inspect.getdoc(loss) or "").partition("\n")[0])
    return LossRow(name, getattr(loss, "labels", ""), *astuple(getattr(loss, "about", silent)))  # one's own may lack it


def described(name: str) -> str:
    """A loss's settings and documentation, its row of the table, and what ``cml bench`` varies."""
    varied = ", ".join(f"{key}={values}" for key, values in getattr(registry.entry(name), "vary", {}).items())
    heads = ("Labels", "Cost of a batch", "Source", "When to use it", "Varied by cml bench")
    said = zip(heads, (*astuple(loss_row(name))[1:], varied), strict=True)
    return "\n".join([registry.described(name), "", *(f"{what}: {text}" for what, text in said if text)])


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
