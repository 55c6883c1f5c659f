"""``cml gallery RUN``: a page of what a trained embedding retrieves, beside the oracle and a baseline, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.commands import parse, print_json
from cml.commands.evaluate import positional
from cml.commands.retrieved import retrieve, shown_row
from cml.commands.trained_run import Embeddings, TrainedRun
from cml.retrieval.evaluation import ORACLE


@dataclass(frozen=True)
class Gallery:
    """Write a page of what a trained embedding retrieves."""

    run: Path
    """Run folder."""
    against: Path | None = None
    """Run folder of a baseline on the same dataset; frozen ImageNet features when not given."""
    queries: int = 48
    """Queries shown: evenly spaced from the worst to the best."""
    k: int = 5
    """Pictures a method."""
    thumbnail: int = 96
    """Size of a picture on the page, in pixels."""
    data: Path | None = None
    """Where the dataset lies now, if not where it was at training."""
    device: str = "auto"
    """auto | cpu | cuda .."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Write RUN/gallery.html."""
    options = parse(Gallery, positional(arguments), prog="cml gallery", description=Gallery.__doc__ or "")
    trained = TrainedRun.open(options.run, data=options.data, device=options.device)
    baseline = None
    if options.against is not None:
        other = TrainedRun.open(options.against, data=options.data, device=options.device)
        if other.dataset.fingerprint != trained.dataset.fingerprint:
            from cml.errors import UserError

            raise UserError(f"{options.against} was trained on another dataset than {options.run}.")
        baseline = (other.config.train.loss.partition("(")[0], other.embeddings)
    elif trained.frozen is not None:
        baseline = trained.frozen
    path = write_run_gallery(trained, baseline, queries=options.queries, k=options.k, thumbnail=options.thumbnail)
    print_json({"gallery": str(path)}) if options.json else print(f"gallery: {path}")


def write_run_gallery(
    trained: TrainedRun,
    baseline: tuple[str, Embeddings] | None,
    *,
    queries: int = 48,
    k: int = 5,
    thumbnail: int = 96,
    table: Sequence[Sequence[str]] = (),
) -> Path:
    """Write the gallery of a run into its folder.

    Args:
        trained: The run.
        baseline: Name and embeddings of what to show beside it.
        queries: How many queries; evenly spaced from the worst to the best.
        k: Pictures a method.
        thumbnail: Size of a picture in pixels.
        table: A table to print at the page's top, its first row the header.
    """
    from cml.reporting.gallery import write_gallery

    k = min(k, len(trained.gallery))
    name = trained.config.train.loss.partition("(")[0]
    methods = {name: trained.embeddings}
    if baseline is not None:
        methods[baseline[0] if baseline[0] != name else f"{name} (baseline)"] = baseline[1]
    retrieved = retrieve(trained, methods, k)

    excess = retrieved.mean(name) - retrieved.mean(ORACLE)  # how much worse than the best possible
    order = np.argsort(-excess, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(queries, len(order))).round().astype(int))]
    titles = [name, ORACLE, *(title for title in methods if title != name)]
    page = [
        shown_row(trained, retrieved, int(row), titles, size=2 * thumbnail, score=float(excess[row])) for row in shown
    ]
    path = trained.folder / "gallery.html"
    info = trained.dataset.info
    write_gallery(
        path,
        page,
        title=f"{info.name}: what the embedding retrieves",
        unit=trained.report[1],
        summary=(
            f"{len(page)} of {len(trained.query)} queries against a gallery of {len(trained.gallery)}. The score says "
            f"how much farther the top {k} of {name} lie than the best possible. Run {trained.folder}, "
            f"{trained.config.train.steps} steps, label distance {trained.config.train.label_distance}."
        ),
        table=table,
        thumbnail=thumbnail,
    )
    return path
