"""The packages of cml in one picture, drawn from pyproject's layers and from the imports of the code."""

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
WIDTH, ROOM = 10.4, 0.12


def layers() -> list[list[str]]:
    """The packages of each layer, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    named = [[name.strip().removeprefix("cml.") for name in layer.split("|")] for layer in contract["layers"]]
    return [names for names in named if names != ["__main__"]]


def imports() -> Counter[tuple[str, str]]:
    """How many modules of one package import from another."""
    known = {name for layer in layers() for name in layer}
    found: Counter[tuple[str, str]] = Counter()
    for path, package in modules():
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            elif isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            imported |= {name.split(".")[1] for name in names if name.startswith("cml.")}
        found.update((package, other) for other in imported & known - {package})
    return found


def modules() -> Iterator[tuple[Path, str]]:
    """All modules with the package of the first level that they belong to."""
    for name, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder).with_suffix("").parts
            yield path, name.partition(".")[2] or inside[0]


def draw(path: Path) -> None:
    """Draw the house as an SVG file: a row per layer, and below each package what it imports most."""
    rows, uses = layers(), imports()
    figure = Figure(figsize=(WIDTH, 0.74 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, names in enumerate(reversed(rows)):
        width = (WIDTH - ROOM * (len(names) - 1)) / len(names)
        for number, name in enumerate(names):
            left = number * (width + ROOM)
            axes.add_patch(axes_box(left, place, width))
            most = [other for (user, other), _ in uses.most_common() if user == name and other not in ("errors",)]
            axes.text(
                left + width / 2, place + 0.52, name, ha="center", va="center", color=PULL, size=10, weight="bold"
            )
            some = ", ".join(most[: 5 if width > 4 else 2 if width > 2.2 else 1])
            axes.text(left + width / 2, place + 0.2, some, ha="center", va="center", color=INK, size=7.5)
    axes.set(xlim=(-0.05, WIDTH + 0.05), ylim=(-0.05, len(rows)))
    axes.set_axis_off()
    save(figure, path)


def axes_box(left: float, place: int, width: float):  # noqa: ANN201 - matplotlib's
    """The box of a package."""
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((left, place), width, 0.76, "round,pad=0,rounding_size=0.08", fc="none", ec=INK, lw=1)
