"""``cml distances DATASET``: label distances as a matrix or as neighbour lists, exact or within a budget; a summary."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Dataset, show
from cml.console.messages import resume_hint
from cml.errors import UserError
from cml.processes.cores import CORES

_NEIGHBORS = 10  # in a list, where a budget is given alone


@dataclass(frozen=True)
class Distances:
    """Compute the label distances of a dataset, or summarise them."""

    data: Dataset
    neighbors: int | None = None
    """Write this many exact nearest neighbours of each item to ids.npy and distances.npy, which training uses."""
    matrix: bool = False
    """Write all distances to matrix.npy."""
    budget: str = ""
    """For a label distance that is too slow for all pairs: find nearest neighbours and learn an embedding with few
    calls of it. The budget is a fraction of all pairs (1%), a number of calls (200000), or a total time (90s, 30min,
    2h). It can be combined with --neighbors K, which is 10 by default."""
    vectors: Path | None = None
    """Vectors that --budget starts from: a .npy file with one row per item, or a feature store (cml features). By
    default those of the dataset, or those that its label distance provides, as dtw does."""
    summary: bool = False
    """Summarise the distances: zeros, ties, infinities, scale, quantiles, and a histogram."""
    verify: bool = False
    """Compare the files of a finished --matrix or --neighbors with their checksums, and a random part of them with
    recomputed distances."""
    label_distance: str = ""
    """A name, or name(setting=value, ...); by default the one of the dataset's task. Numbers and vectors: euclidean,
    cosine. Angles, hours, hues: circular. Rotations in space: rotation. Latitude and longitude: haversine; with a
    heading: place. Poses: keypoints, procrustes, oks. Masks: layout. Labelled boxes: boxes. Captions: captions (words),
    sentences. Directions: direction. Distributions over ordered bins: emd. Tags: jaccard. Attributes: hamming. Classes:
    classes. Sequences: dtw, frechet; of tokens: edit. Sets of labels: sets. Several labels: combined. A matrix or
    neighbour lists: precomputed."""
    role: Literal["train", "query", "gallery", "query-gallery", "all"] = "train"
    """Items to use: those of one role, or of several roles in this order."""
    dtype: Literal["float32", "float16"] = "float32"
    """Data type of the matrix; float16 needs half the space and keeps three digits."""
    threads: int = CORES
    """Number of strips of rows that are computed at the same time."""
    scheduler: str = ""
    """Address of a Dask scheduler, tcp://host:port, whose workers compute the strips."""
    out: Path | None = None
    """Folder for the result; by default one in the cache, $CML_CACHE or ~/.cache/cml."""
    seed: int = 0
    """Random seed of the summary's sample and of --budget."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Do what the options say and print where the result is."""
    options = parse(Distances, arguments, prog="cml distances")
    lists = options.neighbors is not None or bool(options.budget)
    if sum([lists, options.matrix, options.summary]) != 1:
        raise UserError("Choose one of --neighbors K, --matrix, --budget and --summary (cml distances --help).")
    if options.vectors is not None and not options.budget:
        raise UserError("--vectors goes with --budget; without a budget, no vectors are needed.")
    if options.verify and options.budget:
        raise UserError("--verify goes with --matrix or exact --neighbors K; a budget leaves most pairs unknown.")
    if options.verify and options.summary:
        raise UserError("--verify goes with --matrix or --neighbors K; a summary is always recomputed.")
    with contextlib.nullcontext() if options.summary or options.verify else resume_hint():
        (_summary if options.summary else _approximation if options.budget else _job)(options)


def _job(options: Distances) -> None:
    from cml.approximate.dataset_distances import DatasetDistances
    from cml.distances.jobs import stored_lists
    from cml.distances.jobs.verify import verify
    from cml.distances.jobs.work import MatrixWork, NeighborsWork, Work

    opened = DatasetDistances.open(options.data, options.label_distance, options.role)
    distance, labels = opened.distance, opened.labels
    matrix, count = options.neighbors is None, options.neighbors or 0
    work: Work = MatrixWork(distance, labels, options.dtype) if matrix else NeighborsWork(distance, labels, count)
    folder = options.out or stored_lists.folder_of(work)
    about = {"folder": str(folder), "items": len(labels), "unit": opened.unit}
    if options.verify:
        verified = verify(distance, labels, folder)
        again = f"{verified.compared:,} of {verified.stored:,} stored distances computed again, all equal"
        line = f"{folder}: the checksums of {', '.join(verified.files)} hold; {again}"
        show(about | verified._asdict(), line, as_json=options.json)
        return
    result = opened.write(work, folder, threads=options.threads, scheduler=options.scheduler)
    job = {"path": str(result.path), "pairs": result.pairs, "seconds": round(result.seconds, 3)}
    done = f"{result.pairs:,} pairs in {result.seconds:.1f} s" if result.pairs else "was there already"
    name, value = work.option
    line = f"{result.path}: {work.kind} of {opened.counted}; {name} {value}, in {opened.unit}; {done}"
    show(about | job, line, f"the items of its rows: {folder / 'items.json'}", as_json=options.json)


def _approximation(options: Distances) -> None:
    from cml.approximate.budget import Budget
    from cml.approximate.dataset_distances import DatasetDistances

    Budget.parse(options.budget)  # a wrong one is refused before anything is read
    opened = DatasetDistances.open(options.data, options.label_distance, options.role)
    result = opened.approximate(
        options.budget,
        _NEIGHBORS if options.neighbors is None else options.neighbors,
        vectors=options.vectors,
        out=options.out,
        seed=options.seed,
        threads=options.threads,
        scheduler=options.scheduler,
    )
    lines = [f"of {opened.counted}; in {opened.unit}", *result.spent.lines()]
    if result.folder is not None:
        lines.append(f"neighbour lists, known distances, embeddings and model: {result.folder}")
    show({"folder": str(result.folder), "unit": opened.unit, **result.to_dict()}, *lines, as_json=options.json)


def _summary(options: Distances) -> None:
    from cml.approximate.dataset_distances import DatasetDistances

    opened = DatasetDistances.open(options.data, options.label_distance, options.role)
    summary, picture = opened.summary(options.out, seed=options.seed)
    lines = f"of {opened.counted}", summary.table(), f"histogram: {picture}"
    show({**summary.to_json(), "histogram": str(picture)}, *lines, as_json=options.json)
