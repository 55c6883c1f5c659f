"""Tables of results: one file per table, which the README and the pages include.

    python docs/making/results.py fill
    python docs/making/results.py record NAME COMPARISON_FOLDER

``fill`` writes every table between the comments of the pages that show it. ``record`` stores the table that
``cml compare`` left in a folder as ``docs/results/NAME.json``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
TABLE = re.compile(r"(?P<begin><!-- results: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """Yield the README and every hand-written page."""
    yield ROOT / "README.md"
    yield from sorted(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)


def table(name: str) -> str:
    """Read a table from its file, as Markdown."""
    stored = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    lines = [stored["columns"], ["---"] * len(stored["columns"]), *stored["rows"]]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return text.replace(" ± ", "\u00a0±\u00a0")  # no line breaks within an interval: wide tables scroll


def fill(text: str) -> str:
    """Replace the tables of a page by those of the files that its comments name."""
    return TABLE.sub(lambda match: f"{match['begin']}\n{table(match['name'])}\n{match['end']}", text)


def record(name: str, comparison: Path) -> None:
    """Store a table of ``cml compare``.

    Args:
        name: The name of the table: the file is ``docs/results/NAME.json``.
        comparison: The output folder of ``cml compare``.
    """
    lines = [line for line in (comparison / "table.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    columns, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    row_lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in rows)
    text = f'{{\n  "columns": {json.dumps(columns, ensure_ascii=False)},\n  "rows": [\n{row_lines}\n  ]\n}}\n'
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Run the command line."""
    match arguments:
        case ["fill"]:
            for page in pages():
                page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
        case ["record", name, comparison]:
            record(name, Path(comparison))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
