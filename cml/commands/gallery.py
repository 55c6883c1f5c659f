"""``cml gallery RUN``: a page of what a trained embedding retrieves, beside the oracle and a baseline, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cml.commands import parse, print_json
from cml.commands.evaluate import positional
from cml.commands.trained_run import Embeddings, TrainedRun
from cml.data.prepared import Split

if TYPE_CHECKING:
    from cml.reporting.gallery import Picture


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
    from cml.distances.label_distance import nearest_columns
    from cml.reporting.gallery import GalleryRow, write_gallery
    from cml.retrieval.evaluation import embedding_ranker

    k = min(k, len(trained.gallery))
    name = trained.config.train.loss.partition("(")[0]
    methods = {name: embedding_ranker(*trained.embeddings)}
    if baseline is not None:
        title = baseline[0] if baseline[0] != name else f"{name} (baseline)"
        methods[title] = embedding_ranker(*baseline[1])
    columns = {title: np.empty((len(trained.query), k), np.int64) for title in [name, "oracle", *methods]}
    found = {title: np.empty((len(trained.query), k), np.float32) for title in columns}
    for start in range(0, len(trained.query), 256):
        rows = slice(start, min(start + 256, len(trained.query)))
        block = trained.distance.pairwise(trained.query[rows], trained.gallery)  # (R, G)
        for title in columns:
            scores = block if title == "oracle" else methods[title](rows).astype(np.float32)
            columns[title][rows] = nearest_columns(scores, k)[0]
            retrieved = np.take_along_axis(block, columns[title][rows], axis=1)
            found[title][rows] = np.where(columns[title][rows] >= 0, retrieved, np.inf)

    excess = _mean(found[name]) - _mean(found["oracle"])  # how much worse than the best possible
    order = np.argsort(-excess, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(queries, len(order))).round().astype(int))]
    query, gallery = trained.splits

    def picture(split: Split, item: int, distance: float | None) -> Picture:
        return _picture(trained, split, item, distance, 2 * thumbnail)

    page = [
        GalleryRow(
            query=picture(query, row, None),
            retrieved={
                title: [
                    picture(gallery, item, float(distance))
                    for item, distance in zip(columns[title][row], found[title][row], strict=True)
                    if item >= 0
                ]
                for title in columns
            },
            score=float(excess[row]),
        )
        for row in shown
    ]
    path = trained.folder / "gallery.html"
    info = trained.dataset.info
    write_gallery(
        path,
        page,
        title=f"{info.name}: what the embedding retrieves",
        unit=trained.unit,
        summary=(
            f"{len(page)} of {len(query)} queries against a gallery of {len(gallery)}. The score says how much farther "
            f"the top {k} of {name} lie than the best possible. Run {trained.folder.name}, "
            f"{trained.config.train.steps} steps, label distance {trained.config.train.label_distance}."
        ),
        table=table,
        thumbnail=thumbnail,
    )
    return path


def _mean(distances: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean over the comparable ones, NaN where nothing is comparable."""
    known = np.isfinite(distances)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.where(known, distances, 0).sum(axis=1) / known.sum(axis=1)
    return means


def _picture(trained: TrainedRun, split: Split, item: int, distance: float | None, size: int) -> Picture:
    from PIL import Image

    from cml.data.images import read_image
    from cml.reporting.gallery import Picture

    image = Image.fromarray(read_image(split.paths[item]))
    scale = size / max(image.size)
    image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    label = split.labels[item]
    drawn = trained.task.draw(image, label, trained.dataset.info)
    words = trained.task.describe(label, trained.dataset.info)
    return Picture(drawn, f"{split.item_ids[item]} {words}".strip(), distance)
