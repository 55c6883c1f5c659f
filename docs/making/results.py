"""Figures on the pages: tables and numbers in sentences, filled in from the records of results.

    python docs/making/results.py fill

A table stands between ``<!-- results: NAME -->`` and ``<!-- end of results -->``; ``docs/making/result_tables.py`` says
how it is made of records. A number in a sentence is followed by its expression: ``3.4<!-- = EXPRESSION | .1f -->``,
where EXPRESSION is Python over the records and ``.1f`` is the format. A record is called by its name with the row, the
column and "mean" (the default), "low" or "high": ``steering("log-ratio", "ndcg@10")``. ``NAME.settings`` and
``NAME.values`` are parts of a record. ``docs/making/suite_tables.py`` has the functions for the benchmark.

``fill`` writes all tables and numbers of the README and the pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from making import (
    claims_tables,
    class_tables,
    contact_tables,
    coverage_figures,
    graded_figures,
    guide_tables,
    papers_tables,
    result_tables,
    suite_tables,
)
from making.records import RECORDS, ROOT, Record, numbers

RESULTS = ROOT / "docs" / "results"
TABLE = re.compile(r"(?P<begin><!-- results: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)", re.DOTALL)
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
FIGURE = re.compile(rf"(?P<number>{NUMBER})<!--\s=\s(?P<expression>.+?)\s-->", re.DOTALL)
FENCE = re.compile(r"^(?P<ticks>`{3,})[^\n]*\n(?P<code>.*?)^(?P=ticks)$", re.DOTALL | re.MULTILINE)
UNITS = r"(?:%|(?:s|ms|µs|min|h|kB|MB|GB|TB|KiB|MiB|GiB|seconds?|minutes?|hours?|days?|times|percent|per cent)\b)"
ANY = r"(?<![\w@.])[-+]?(?:\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|\.\d+)"
# a decimal fraction, a number with a unit or the only content of a cell: sizes and settings are seldom written so
MEASURED = rf"(?<![\w@.])[-+]?(?:(?:\d[\d,]*)?\.\d+|\d[\d,]*(?=\s?{UNITS}))|(?<=\| )[-+]?\d[\d,]*(?= +\|)"
VERSIONS = re.compile(r"(?:Python|torch|sentence-transformers|Pillow|cml|CC BY)\s\d[\d.]*(?:(?:, | or )\d[\d.]*)*\b")
SETTINGS = re.compile(r"<!-- settings: (?P<numbers>.+?) -->", re.DOTALL)
TABLES = {
    **result_tables.TABLES,
    **contact_tables.TABLES,
    **class_tables.TABLES,
    **claims_tables.TABLES,
    **suite_tables.TABLES,
    **guide_tables.TABLES,
    "coverages": coverage_figures.coverage_table,
    "item_intervals_told": lambda: coverage_figures.item_table("told apart"),
    "item_intervals_coverage": lambda: coverage_figures.item_table("coverage"),
    "audit_counts": coverage_figures.count_table,
    "graded_search": graded_figures.graded_table,
    "graded_whole": lambda: graded_figures.graded_table("graded_whole"),
    "papers_default_loss": papers_tables.default_loss,
    "papers_equal_tuning": papers_tables.equal_tuning,
    "papers_published_loss": papers_tables.published_loss,
    "papers_dimension": papers_tables.leads_by_dimension,
    "papers_captioners": papers_tables.captioners,
}
PLAIN = {"95"}  # numbers that need no origin: the level of all intervals
FUNCTIONS: dict[str, Any] = {"abs": abs, "len": len, "max": max, "min": min, "round": round, "sum": sum, "zip": zip}
FUNCTIONS["table_cell"] = result_tables.table_cell
FUNCTIONS["default_rank"] = lambda loss: result_tables.default_ranks()[loss]


def pages() -> Iterator[Path]:
    """Yield the README and every hand-written page."""
    yield ROOT / "README.md"
    yield from sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)


@dataclass(frozen=True)
class Figures:
    """A record as expressions on pages see it.

    Attributes:
        record: The record.
    """

    record: Record

    def __call__(self, row: str, column: str = result_tables.DISTANCE, part: str = "mean") -> float:
        """Look up a figure of a comparison, or of the table of a legacy record.

        Args:
            row: The method.
            column: The metric.
            part: "mean", "low" or "high".
        """
        if not self.record.legacy:
            rows = self.record.values["trained"] | self.record.values["references"]
            return float(rows[row][column][part])
        text = result_tables.cell_text(self.record, row, column)
        mean, half = (float(number) for number in (*re.findall(r"[-+]?[\d.]+", text.replace(",", "")), "0")[:2])
        return {"mean": mean, "low": mean - half, "high": mean + half}[part]

    @property
    def settings(self) -> Mapping[str, float]:
        """The sizes that the record holds."""
        return self.record.settings

    @property
    def values(self) -> Mapping[str, Any]:
        """The figures of the record."""
        return self.record.values


class _Names(dict[str, Any]):
    """What expressions can name: functions and every record."""

    def __missing__(self, name: str) -> Figures:
        if not (RECORDS / f"{name}.json").exists():
            raise KeyError(name)  # Python then says that the name is not defined
        return Figures(result_tables.load(name))


def evaluate(expression: str) -> str:
    """Evaluate the expression of a number.

    Args:
        expression: Python over the records, and after the last " | " the format of the result.

    Returns:
        The number as the page shows it.
    """
    code, separator, spec = " ".join(expression.split()).rpartition(" | ")
    if not separator:
        code, spec = spec, ""
    names = _Names({**FUNCTIONS, **suite_tables.NAMES, **coverage_figures.NAMES, **graded_figures.NAMES})
    modules = (suite_tables, coverage_figures, graded_figures, guide_tables)
    names = _Names({**FUNCTIONS, **{name: found for module in modules for name, found in module.NAMES.items()}})
    value = eval(code, {"__builtins__": {}}, names)
    if isinstance(value, float) and not spec:
        raise ValueError(f"The figure {code!r} has no format. Write one, as in '{code} | .2f'.")
    return format(value, spec)


def table(name: str, folder: Path = RESULTS) -> str:
    """Make a table from its records, as Markdown, and say where its figures come from.

    Args:
        name: The name of the table, a key of ``TABLES`` or the name of a record.
        folder: That of the page, from which it links to the record.
    """
    make = TABLES.get(name, lambda: result_tables.comparison(name))
    header, *rows = make()
    lines = [header, ["---"] * len(header), *rows]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return text.replace(" ± ", "\u00a0±\u00a0") + origin(
        name, folder
    )  # no line breaks within an interval: wide tables scroll


def origin(name: str, folder: Path = RESULTS) -> str:
    """Say when and where the figures of a table were measured, or that they are legacy figures.

    Args:
        name: The name of a table; "" is returned for those that are made of several records.
        folder: That of the page.
    """
    if not (RECORDS / f"{name}.json").exists():
        return ""
    record = result_tables.load(name)
    if record.legacy:
        return f"\n*Legacy figures: {record.legacy}*\n"
    cores, processor = record.machine["cores"], record.machine["processor"]
    machine = (
        f"{cores} cores of {processor}" if record.machine["accelerator"] == "none" else record.machine["accelerator"]
    )
    link = os.path.relpath(RESULTS / "records" / f"{name}.json", folder)
    return f"\n*[Record]({link}): {record.date}, commit {record.commit[:7]}, {machine}.*\n"


def fill(text: str, folder: Path = RESULTS) -> str:
    """Replace the tables and the numbers of a page by those of the records."""
    text = TABLE.sub(lambda match: f"{match['begin']}\n{table(match['name'], folder)}\n{match['end']}", text)
    return FIGURE.sub(lambda match: match[0].replace(match["number"], evaluate(match["expression"]), 1), text)


def unrecorded_numbers(text: str, kind: str = ANY) -> list[str]:
    """Find the numbers of a page that have no record.

    A number needs a record unless it is a setting: part of a command that the page or one of its records shows, a size
    that one of its records holds, or listed in a comment ``<!-- settings: .. -->`` of the page.

    Args:
        text: The page.
        kind: Which numbers: ``ANY`` on pages of results, and on other pages those that look ``MEASURED``.

    Returns:
        Each such number with the words around it.
    """
    allowed = set(PLAIN)
    for match in TABLE.finditer(text):
        path = RECORDS / f"{match['name']}.json"
        if path.exists():
            record = result_tables.load(match["name"])
            allowed.update(find_numbers(" ".join(record.commands)))
            allowed.update(f"{value:g}" for _, value in numbers(record.settings))
    for match in FENCE.finditer(text):
        allowed.update(find_numbers(match["code"]))
    for match in SETTINGS.finditer(text):
        allowed.update(find_numbers(match["numbers"]))
    prose = FENCE.sub("", TABLE.sub("", text))
    prose = FIGURE.sub("", prose)
    prose = re.sub(r"<!--.*?-->", "", prose, flags=re.DOTALL)
    prose = VERSIONS.sub("", re.sub(r"`[^`]*`", "", prose))
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    return [
        " ".join(prose[max(match.start() - 40, 0) : match.end() + 40].split())
        for match in re.finditer(kind, prose)
        if _plain(match[0]) not in allowed
    ]


def find_numbers(text: str) -> list[str]:
    """List the numbers of a text, without signs and thousands separators."""
    return [_plain(number) for number in re.findall(NUMBER, text)]


def _plain(number: str) -> str:
    return number.replace(",", "").lstrip("+-")


def main(arguments: list[str]) -> None:
    """Run the command line."""
    if arguments != ["fill"]:
        sys.exit(__doc__)
    for page in pages():
        page.write_text(fill(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
