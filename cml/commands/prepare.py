"""``cml prepare SOURCE --out DIR``: raw files to a prepared dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cml import data_prep
from cml.command_line.options import parse, pick, print_json
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset

SKIP_BAD = "Leave out items whose image or label is bad and count them; otherwise the first one is the error."


def run(arguments: Sequence[str]) -> None:
    """Prepare a dataset and print what it holds."""
    import tyro

    name, rest = pick(arguments, "source", data_prep.names(), summary, "cml prepare")
    source: Any = data_prep.registry.entry(name)
    command: Any = make_dataclass(
        "Prepare",
        [
            ("out", Annotated[Path, tyro.conf.arg(help="Folder of the dataset to make. A killed run is continued.")]),
            ("source", source),
            ("skip_bad", Annotated[bool, tyro.conf.arg(help=SKIP_BAD)], field(default=False)),
            ("json", Annotated[bool, tyro.conf.arg(help="Print the result as JSON.")], field(default=False)),
        ],
        namespace={"__doc__": source.__doc__},
    )
    options = parse(command, rest, prog=f"cml prepare {name}", description="")
    if isinstance(raw := getattr(options.source, "source", None), Path) and not raw.exists():
        raise UserError(f"There is no {raw}: give the place of the raw files with --source.")
    try:
        dataset = options.source.prepare(options.out, skip_bad=options.skip_bad)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or "no item was finished yet") from None
    skipped = dataset.info.details.get("skipped", {"count": 0, "first": []})
    if options.json:
        print_json({"folder": str(dataset.folder), "counts": dict(dataset.info.counts), "skipped": skipped})
        return
    counts = ", ".join(f"{count} {role}" for role, count in dataset.info.counts.items() if count)
    print(f"{dataset.folder}: {counts} items of task {dataset.info.task!r}")
    for reason, count in dataset.info.details.get("left_out", {}).items():
        print(f"left out: {count} ({reason})")
    if skipped["count"]:
        print(f"skipped as bad: {skipped['count']}, the first ones by name in {dataset.folder}/dataset.json")
    sampler = _smaller_batches(dataset)
    print(f"next: cml train {dataset.info.task} --data {dataset.folder} --out runs/{dataset.folder.name}{sampler}")


def _smaller_batches(dataset: PreparedDataset) -> str:
    """The option that a dataset needs whose training items do not fill a batch of its task's recipe."""
    from cml import tasks
    from cml.sampling import registry
    from cml.sampling.sampler import suited_batch

    items, name = dataset.info.counts["train"], dataset.info.task
    if name not in tasks.names():  # a task of somebody who has not installed it here
        return ""
    sampler = registry.make(tasks.get(name).recipe.sampler)
    if items >= sampler.batch_size or items < 2:
        return ""
    return f' --sampler "random(batch_size={suited_batch(items)})"'


def summary(name: str) -> str:
    """First line of a source's docstring."""
    return (data_prep.registry.entry(name).__doc__ or "").strip().partition("\n")[0]
