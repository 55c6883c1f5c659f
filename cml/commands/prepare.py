"""``cml prepare SOURCE --out DIR``: raw files to a prepared dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any

from cml.commands import parse, pick, print_json


def run(arguments: Sequence[str]) -> None:
    """Prepare a dataset and print what it holds."""
    import data_prep

    known = {name: summary(data_prep.registry.entry(name)) for name in data_prep.names()}
    name, rest = pick(arguments, "source", known, "cml prepare")
    source: Any = data_prep.registry.entry(name)
    command: Any = make_dataclass(
        "Prepare",
        [("out", Path), ("source", source), ("json", bool, field(default=False))],
        namespace={"__doc__": source.__doc__},
    )
    options = parse(command, rest, prog=f"cml prepare {name}", description=source.__doc__ or "")
    dataset = options.source.prepare(options.out)
    if options.json:
        print_json({"folder": str(dataset.folder), "counts": dict(dataset.info.counts)})
        return
    counts = ", ".join(f"{count} {role}" for role, count in dataset.info.counts.items())
    print(f"{dataset.folder}: {counts} items of task {dataset.info.task!r}")
    print(f"next: cml train {dataset.info.task} --data {dataset.folder} --out runs/{dataset.folder.name}")


def summary(source: Any) -> str:  # noqa: ANN401 - any registered source
    """First line of a source's docstring."""
    return (source.__doc__ or "").strip().partition("\n")[0]
