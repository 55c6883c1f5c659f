"""The gallery of a run: what its embedding retrieves, beside the oracle and a baseline."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.errors import UserError
from cml.retrieval.evaluation import ORACLE
from cml.runs.retrieved import retrieve, shown_row
from cml.runs.trained_run import Embeddings, TrainedRun

GALLERY = "gallery.html"
BEHIND = "behind the oracle by"


def write_run_gallery(
    trained: TrainedRun,
    baseline: tuple[str, Embeddings] | None,
    *,
    queries: int = 48,
    k: int = 5,
    thumbnail: int = 96,
    table: Sequence[Sequence[str]] = (),
    note: str = "",
    path: Path | None = None,
) -> Path:
    """Write the gallery of a run into its folder.

    Args:
        trained: The run.
        baseline: Name and embeddings of what to show beside it.
        queries: How many queries; evenly spaced from the worst to the best.
        k: Pictures per method.
        thumbnail: Size of a picture in pixels.
        table: A table to print at the page's top, its first row the header.
        note: A sentence more for the page's top.
        path: Where to write it instead.
    """
    from cml.reporting.gallery import write_gallery

    for option, value in (("queries", queries), ("k", k), ("thumbnail", thumbnail)):
        if value < 1:
            raise UserError(f"'{option}' must be at least 1. Got {value} instead.")
    k = min(k, len(trained.gallery_labels))
    name = trained.config.train.loss
    methods = {name: trained.embeddings}
    if baseline is not None:
        methods[baseline[0] if baseline[0] != name else f"{name} (baseline)"] = baseline[1]
    retrieved = retrieve(trained, methods, k)

    excess = retrieved.mean(name) - retrieved.mean(ORACLE)  # how much worse than the best possible
    order = np.argsort(-excess, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(queries, len(order))).round().astype(int))]
    titles = [name, ORACLE, *(title for title in methods if title != name)]
    gain = retrieved.mean(list(methods)[-1]) - retrieved.mean(name)  # 0 where there is no baseline
    page = [
        shown_row(
            trained.task,
            trained.dataset,
            retrieved,
            int(row),
            titles,
            size=2 * thumbnail,
            score=float(excess[row]),
            gain=float(gain[row]) if baseline is not None else math.nan,
        )
        for row in shown
    ]
    path = path or trained.folder / GALLERY
    info = trained.dataset.info
    write_gallery(
        path,
        page,
        title=f"{info.name}: what the embedding retrieves",
        unit=trained.report[1],
        summary=(
            f"{len(page)} of {len(trained.query_labels)} queries against a gallery of {len(trained.gallery_labels)}. "
            f'"{BEHIND}" says how much larger the mean label distance of the top {k} of {name} is than that of the '
            f"best possible. Run {trained.folder}, {trained.config.train.steps} steps, "
            f"label distance {trained.task.label_distance(trained.config.train, info)}. {note}"
        ),
        table=table,
        legend=trained.task.legend(info),
        thumbnail=thumbnail,
        measure=BEHIND,
        baseline=titles[-1],
    )
    return path
