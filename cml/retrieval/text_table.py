"""Tables as text: aligned for a terminal, as Markdown or HTML; or as a pandas frame, if pandas is installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from cml.errors import UserError

if TYPE_CHECKING:
    import pandas


def align_columns(grid: Sequence[Sequence[str]]) -> str:
    """A grid of cells in columns: the first is left-aligned, the others right-aligned."""
    widths = [max(len(line[column]) for line in grid) for column in range(len(grid[0]))]
    lines = (
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in grid
    )
    return "\n".join(line.rstrip() for line in lines)


def markdown(grid: Sequence[Sequence[str]]) -> str:
    """A grid of cells as a Markdown table, its first line the header."""
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in grid]
    lines.insert(1, "|---" + "|---:" * (len(grid[0]) - 1) + "|")
    return "\n".join(lines)


def html(grid: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A grid of cells as an HTML table, its first line the header, with a paragraph for each note; all is escaped."""
    head, *body = ([escape(cell) for cell in line] for line in grid)
    titles = (f"<th>{cell}</th>" if cell else "<td></td>" for cell in head)  # screen readers announce no empty header
    lines = ["<table>", "<thead><tr>", *titles, "</tr></thead>", "<tbody>"]
    lines += [f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in body]
    lines += ["</tbody>", "</table>", *(f"<p>{escape(note)}</p>" for note in notes)]
    return "\n".join(lines)


def frame(records: Iterable[Mapping[str, Any]], *, columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """Records as a pandas frame, one row each, with ``columns`` even if there is none; ``UserError`` without pandas."""
    try:
        import pandas
    except ImportError:
        raise UserError("to_pandas() needs pandas: pip install pandas.") from None
    return pandas.DataFrame(list(records), columns=columns)
