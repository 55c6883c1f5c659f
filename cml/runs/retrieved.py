"""What rankings retrieve for a run's queries, as numbers and as pictures with labels; the retrieval report."""

import contextlib
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.data.images import read_image
from cml.data.prepared import PreparedDataset, Split
from cml.errors import DataError, UserError
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.oracle_row import ORACLE
from cml.retrieval.own_column import mask_own_column
from cml.retrieval.ranking_ties import rank_columns
from cml.runs.trained_run import Embeddings, TrainedRun
from cml.task import Task

RETRIEVAL_REPORT = "retrieval_report.html"
BEHIND = "behind the oracle by"
_BLOCK = 256  # queries whose label distances are held at a time


@dataclass(frozen=True)
class Retrieved:
    """The first k of each ranking for every query: method to (Q, k)."""

    items: Mapping[str, NDArray[np.int64]]  # numbers in the gallery, -1 where nothing could be compared
    distances: Mapping[str, NDArray[np.float32]]  # of labels, as they are reported; infinite where not comparable

    def mean(self, method: str) -> NDArray[np.float64]:
        """Mean label distance of each query's first k (Q,): NaN where nothing could be compared."""
        known = np.isfinite(self.distances[method])
        with np.errstate(invalid="ignore"):
            means: NDArray[np.float64] = np.where(known, self.distances[method], 0).sum(axis=1) / known.sum(axis=1)
        return means


def retrieve(trained: TrainedRun, methods: Mapping[str, Embeddings], k: int) -> Retrieved:
    """The first k by each of ``methods`` and by the labels themselves (``ORACLE``)."""
    factor, _ = trained.report
    rankers = {name: embedding_ranker(*embeddings) for name, embeddings in methods.items()}
    items = {name: np.empty((len(trained.query_labels), k), np.int64) for name in [*methods, ORACLE]}
    distances = {name: np.empty((len(trained.query_labels), k), np.float32) for name in items}
    for start in range(0, len(trained.query_labels), _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(trained.query_labels)))
        block = trained.distance.pairwise(trained.query_labels[rows], trained.gallery_labels)  # (R, G)
        if trained.dataset.info.queries_are_gallery:
            mask_own_column(block, rows)
        for name in items:
            scores = block if name == ORACLE else rankers[name](rows)
            if trained.dataset.info.queries_are_gallery:
                mask_own_column(scores, rows)
            columns = rank_columns(scores, k, first=start)[0]
            missing = np.isinf(np.take_along_axis(scores, columns, axis=1))  # itself, or not comparable for the oracle
            items[name][rows] = np.where(missing, -1, columns)
            distances[name][rows] = np.where(missing, np.inf, factor * np.take_along_axis(block, columns, axis=1))
    return Retrieved(items, distances)


def build_gallery_row(
    task: Task,
    dataset: PreparedDataset,
    retrieved: Retrieved,
    query: int,
    methods: Sequence[str],
    *,
    size: int,
    score: float = 0.0,
    gain: float = math.nan,
    ids: bool = True,
) -> ReportRow:
    """What ``methods`` retrieve for a query, with ids and words; without ``ids``, words where nothing is drawn."""
    queries, gallery = dataset.split("query"), dataset.split("gallery")

    def picture(split: Split, item: int, distance: float | None) -> Picture:
        return Drawn(task, dataset, split, split.paths[item], item, size).picture(distance, ids=ids)

    shown = {}
    for name in methods:
        found = zip(retrieved.items[name][query].tolist(), retrieved.distances[name][query].tolist(), strict=True)
        shown[name] = [picture(gallery, item, distance) for item, distance in found if item >= 0]
    value = float(label) if isinstance(label := queries.labels[query], int | float) else math.nan
    return ReportRow(picture(queries, query, None), shown, score=score, gain=gain, value=value)


@dataclass(frozen=True)
class Drawn:
    """Makes an item's picture with its label; equal for equal items, so that a page makes each but once."""

    task: Task = field(compare=False)
    dataset: PreparedDataset = field(compare=False)
    split: Split = field(compare=False)
    path: Path
    item: int
    size: int

    def plain(self) -> Image.Image:
        """The photograph alone."""
        image = Image.fromarray(read_image(self.path))
        scale = self.size / max(image.size)
        return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))

    def __call__(self) -> Image.Image:
        """The photograph with its label."""
        with self._fitting():
            return self.task.draw(self.plain(), self.split.labels[self.item], self.dataset.info)

    def words(self) -> str:
        """The label in words."""
        with self._fitting():
            return self.task.describe(self.split.labels[self.item], self.dataset.info)

    def picture(self, distance: float | None, *, ids: bool) -> Picture:
        """For a page or a sheet; see ``build_gallery_row``."""
        if ids:
            return Picture(self, self.words(), distance, self.split.item_ids[self.item])
        plain, image = self.plain(), self()
        seen = image.size != plain.size or image.tobytes() != plain.tobytes()
        return Picture(image, "" if seen else self.words(), distance)

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        """While a task shows a label: what it cannot show is perhaps of another task."""
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            label, item = reprlib.repr(self.split.labels[self.item]), self.split.item_ids[self.item]
            where = f"the label {label} of the item {item!r} in {self.dataset.folder}"
            said = f"The task {self.task.name!r} cannot show {where} ({type(error).__name__}: {error})."
            raise DataError(f"{said} Is it the task of this dataset?") from error


def write_retrieval_report(
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
    """Write a run's retrieval report into its folder or to ``path``, from the worst query to the best."""
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
    baseline_mean = math.nan if baseline is None else retrieved.mean(list(methods)[-1])
    scores, gains = excess.tolist(), (baseline_mean - retrieved.mean(name)).tolist()
    task, dataset = trained.task, trained.dataset
    page = [
        build_gallery_row(task, dataset, retrieved, row, titles, size=2 * thumbnail, score=scores[row], gain=gains[row])
        for row in shown.tolist()
    ]
    info, path = dataset.info, path or trained.folder / RETRIEVAL_REPORT
    write_retrieval_page(
        path,
        page,
        title=f"{info.name}: what the embedding retrieves",
        unit=trained.report[1],
        summary=(
            f"{len(page)} of {len(trained.query_labels)} queries against a gallery of {len(trained.gallery_labels)}. "
            f'"{BEHIND}" says how much larger the mean label distance of the top {k} of {name} is than that of the '
            f"best possible. Run {trained.folder}, {trained.config.train.steps} steps, "
            f"label distance {task.label_distance(trained.config.train, info)}. {note}"
        ),
        table=table,
        legend=task.legend(info),
        thumbnail=thumbnail,
        measure=BEHIND,
        baseline=titles[-1],
    )
    return path
