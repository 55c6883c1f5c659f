"""The figure of the packages of cml, drawn from the layers in pyproject.toml and from the imports in the code."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from making.gradients import INK, PULL, save

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"cml": ROOT / "cml", "cml.tasks": ROOT / "tasks", "cml.data_prep": ROOT / "data_prep"}
EVERYWHERE = ("array_types", "errors")  # so the small print leaves them out
WIDTH, GAP = 10.4, 0.12  # inches


def layers() -> list[list[str]]:
    """Return the packages of each layer, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    packages = [[name.strip().removeprefix("cml.") for name in layer.split("|")] for layer in contract["layers"]]
    return [names for names in packages if names != ["__main__"]]


def imports() -> Counter[tuple[str, str]]:
    """Count, for each pair of packages, the modules of the first that import from the second."""
    known = {name for layer in layers() for name in layer}
    counts: Counter[tuple[str, str]] = Counter()
    for path, package in modules():
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            imported |= {name.split(".")[1] for name in names if name.startswith("cml.")}
        counts.update((package, other) for other in imported & known - {package})
    return counts


def modules() -> Iterator[tuple[Path, str]]:
    """Yield each module with its top-level package."""
    for name, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("").parts
            yield path, name.partition(".")[2] or inside[0]


def draw(path: Path) -> None:
    """Draw the layers as rows of an SVG file, and below each package the packages that it imports most often."""
    rows, uses = layers(), imports()
    figure = Figure(figsize=(WIDTH, 0.74 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row, names in enumerate(reversed(rows)):
        width = (WIDTH - GAP * (len(names) - 1)) / len(names)
        for column, name in enumerate(names):
            left = column * (width + GAP)
            axes.add_patch(package_box(left, row, width))
            imported = [other for (user, other), _ in uses.most_common() if user == name and other not in EVERYWHERE]
            axes.text(left + width / 2, row + 0.52, name, ha="center", va="center", color=PULL, size=10, weight="bold")
            small_print = ", ".join(imported[: 5 if width > 4 else 2 if width > 2.2 else 1])
            axes.text(left + width / 2, row + 0.2, small_print, ha="center", va="center", color=INK, size=7.5)
    axes.set(xlim=(-0.05, WIDTH + 0.05), ylim=(-0.05, len(rows)))
    axes.set_axis_off()
    save(figure, path)


def package_box(left: float, row: int, width: float):  # noqa: ANN201 - matplotlib's
    """Return the box of a package, in units of the axes."""
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((left, row), width, 0.76, "round,pad=0,rounding_size=0.08", fc="none", ec=INK, lw=1)
