"""``cml check DATASET``: everything that is wrong with a prepared dataset, pixels included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cml import tasks
from cml.command_line.options import parse, show
from cml.errors import DataError, shortened
from cml.processes.bar import Bar


@dataclass(frozen=True)
class Check:
    """Find what is wrong with a prepared dataset."""

    data: Annotated[Path, Positional, arg(metavar="DATASET")]
    """Folder of the prepared dataset."""
    json: bool = False
    """Print the problems as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Print every problem, one per line; exit code 2 if there is one."""
    from cml.data.prepared import PreparedDataset, check_dataset
    from cml.retrieval.verdict import size_verdict
    from cml.runs.distances import refused_labels

    options = parse(Check, arguments, prog="cml check")
    with Bar(desc="check", unit="image", leave=False) as bar:
        problems, verdict = check_dataset(options.data, tasks=tasks.names(), progress=bar.update), ""
    if not (problems := list(map(shortened, problems or refused_labels(options.data)))):
        dataset = PreparedDataset.open(options.data)
        gallery = len(dataset.split("gallery")) - dataset.info.queries_are_gallery
        verdict = size_verdict(len(dataset.split("query")), gallery)
    result = {"folder": str(options.data), "problems": problems, "verdict": verdict}
    lines = problems or [f"{options.data}: nothing wrong", *([verdict] if verdict else [])]
    show(result, *lines, as_json=options.json)
    if problems:
        raise DataError(f"{options.data} has {len(problems)} problem(s), listed above.")
