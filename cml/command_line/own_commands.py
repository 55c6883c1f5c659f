"""Commands that a kind of training has for itself, in place of those of prepared datasets.

``cml train grades`` names the kind; ``cml evaluate RUN`` finds it in the run's config, by the label distance. An entry
``COMMAND.KIND`` is a function of the arguments after the command, and of the kind where that is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from cml.registry import NAME, Registry

Run = Callable[[Sequence[str]], None]
registry: Registry[None] = Registry(
    "command of a kind of training",
    {
        "compare.captioning": "cml.tasks.captioning.comparison:run",
        "compare.grades": "cml.graded_runs.compare:run",
        "evaluate.grades": "cml.graded_runs.evaluate:run",
        "explore.grades": "cml.graded_runs.explore:run",
        "index.grades": "cml.graded_runs.index:run",
        "prepare.grades": "cml.graded_runs.prepare:run",
        "train.grades": "cml.graded_runs.train:run",
    },
    group="cml.own_commands",
)


def kinds(command: str) -> list[str]:
    """The kinds that have a command of their own."""
    return [name.partition(".")[2] for name in registry.names() if name.startswith(f"{command}.")]


def summary(command: str, kind: str) -> str:
    """The line of a kind in the list of a command."""
    return (registry.entry(f"{command}.{kind}").__doc__ or "").partition("\n")[0]


def find(command: str, arguments: Sequence[str]) -> tuple[Run, Sequence[str]] | None:
    """Find the command of the kind that the first argument names, or that its run is of."""
    first = next(iter(arguments), "")
    if NAME.fullmatch(first) and f"{command}.{first}" in registry.names():
        return registry.entry(f"{command}.{first}"), arguments[1:]
    kind = "" if first.startswith("-") else _kind_of(Path(first))
    if kind and f"{command}.{kind}" in registry.names():
        return registry.entry(f"{command}.{kind}"), arguments
    return None


def _kind_of(run: Path) -> str:
    """The name of the label distance of a run; "" for anything else, which the command itself reports."""
    try:
        distance = json.loads((run / "config.json").read_bytes())["label_distance"]
        return str(distance).partition("(")[0]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
