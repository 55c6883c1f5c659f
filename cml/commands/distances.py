"""``cml distances DATASET``: label distances as a matrix or as neighbour lists, checks of them, and what they are like.

Matrix and lists are jobs: killed at any moment, the same command goes on where they stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cml.command_line.options import parse, print_json, say
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset
    from cml.distances.label_distance import LabelDistance, Labels

ROLES = {
    "train": ("train",),
    "query": ("query",),
    "gallery": ("gallery",),
    "query-gallery": ("query", "gallery"),
    "all": ("train", "query", "gallery"),
}
MARKED = (0.02, 0.2, 0.5)  # quantiles that the picture names: a floor, a threshold, the middle


@dataclass(frozen=True)
class Distances:
    """Write a dataset's label distances, or say what they are like."""

    data: Path
    """Folder of the prepared dataset."""
    neighbors: int | None = None
    """Write the exact so many nearest of each item: ids.npy and distances.npy. Training finds them again."""
    matrix: bool = False
    """Write all distances: matrix.npy."""
    summary: bool = False
    """Say what the distances are like: zeros, ties, infinities, scale, quantiles; with a histogram."""
    verify: bool = False
    """Compute a random part of the finished --matrix or --neighbors again and compare it."""
    label_distance: str = ""
    """A name, or name(setting=value, ..); by default the one of the dataset's task."""
    role: Literal["train", "query", "gallery", "query-gallery", "all"] = "train"
    """The items: of one role, or of several in this order."""
    dtype: Literal["float32", "float16"] = "float32"
    """Numbers of the matrix; float16 takes half the room and keeps three digits."""
    threads: int = 2
    """Strips under way at a time."""
    scheduler: str = ""
    """Address of a Dask scheduler, tcp://host:port, whose workers compute the strips."""
    out: Path | None = None
    """Folder for the result; by default one in the cache, $CML_CACHE or ~/.cache/cml."""
    seed: int = 0
    """Of the summary's sample."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Do what the options say and print where the result is."""
    options = parse(Distances, _positional(arguments), prog="cml distances", description=Distances.__doc__ or "")
    chosen = [options.neighbors is not None, options.matrix, options.summary]
    if sum(chosen) != 1:
        raise UserError("Choose one of --neighbors K, --matrix and --summary (cml distances --help).")
    if options.verify and options.summary:
        raise UserError("--verify goes with --matrix or --neighbors K; a summary is computed anew each time.")
    try:
        (_summary if options.summary else _job)(options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on from here") from None


def _positional(arguments: Sequence[str]) -> list[str]:
    """Let the dataset be given without its flag: ``cml distances DATASET``."""
    if arguments and not arguments[0].startswith("-"):
        return ["--data", *arguments]
    return list(arguments)


def open_labels(data: Path, label_distance: str, role: str) -> tuple[PreparedDataset, LabelDistance, Labels, list[str]]:
    """Dataset, label distance fitted on its training items, encoded labels of a role, and their item ids.

    Raises:
        UserError: the dataset, its task or the label distance does not fit.
    """
    from cml import distances, tasks
    from cml.data.prepared import PreparedDataset
    from cml.distances.dataset_labels import encode

    dataset = PreparedDataset.open(data)
    if not label_distance:
        task = tasks.get(dataset.info.task)
        label_distance = task.label_distance(task.recipe, dataset.info)
    names = [name for name in ROLES[role] if name in dataset.info.roles or role == "gallery"]
    distance = distances.registry.make(label_distance).fit(dataset.split("train").labels)
    labels = encode(distance, dataset, names)
    return dataset, distance, labels, [item for name in names for item in dataset.split(name).item_ids]


def _unit(distance: LabelDistance, dataset: PreparedDataset) -> str:
    return distance.unit.replace("label units", dataset.info.label_unit or "label units")


def _job(options: Distances) -> None:
    from cml.distances.jobs import stored_lists
    from cml.distances.jobs.check import verify
    from cml.distances.jobs.run import Runner, run_job
    from cml.distances.jobs.work import MatrixWork, NeighborsWork, Work

    dataset, distance, labels, ids = open_labels(options.data, options.label_distance, options.role)
    work: Work
    if options.neighbors is not None:
        work = NeighborsWork(distance, labels, options.neighbors)
    else:
        work = MatrixWork(distance, labels, options.dtype)
    folder = options.out or stored_lists.folder_of(work)
    found: dict[str, Any] = {"folder": str(folder), "items": len(labels), "unit": _unit(distance, dataset)}
    if options.verify:
        compared = verify(distance, labels, folder)
        if options.json:
            print_json({**found, "compared": compared})
        else:
            print(f"{folder}: {compared:,} stored distances computed again, all equal")
        return
    runner = Runner(threads=options.threads, scheduler=options.scheduler, say=say)
    about = {"dataset": str(dataset.folder.resolve()), "role": options.role}
    result = run_job(work, folder, runner, about=about, item_ids=ids)
    stored_lists.note(folder, work)
    if options.json:
        print_json({**found, "path": str(result.path), "pairs": result.pairs, "seconds": round(result.seconds, 3)})
        return
    done = f"{result.pairs:,} pairs in {result.seconds:.1f} s" if result.pairs else "was there already"
    name, value = work.option
    print(f"{result.path}: {work.kind} of {len(labels):,} items, {name} {value}, in {found['unit']}; {done}")
    print(f"the items of its rows: {folder / 'items.json'}")


def _summary(options: Distances) -> None:
    from cml.distances.jobs import stored_lists
    from cml.distances.jobs.summary import summarize
    from cml.distances.jobs.work import MatrixWork
    from cml.reporting.histogram import write_histogram

    dataset, distance, labels, _ = open_labels(options.data, options.label_distance, options.role)
    summary = summarize(distance, labels, unit=_unit(distance, dataset), seed=options.seed)
    folder = options.out or stored_lists.folder_of(MatrixWork(distance, labels)).parent
    picture = folder / "histogram.png"
    try:
        write_histogram(
            picture,
            summary.distances,
            unit=summary.unit,
            quantiles={share: summary.quantiles[share] for share in MARKED},
            title=f"{dataset.info.name}, {distance.name}",
        )
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be written ({error.strerror}); choose another --out.") from None
    if options.json:
        print_json({**summary.to_json(), "histogram": str(picture)})
        return
    print(summary.table())
    print(f"histogram: {picture}")
