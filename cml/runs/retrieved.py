"""What several rankings retrieve for a run's queries, as numbers and as pictures with the label drawn.

The gallery page and the sheet of a comparison are made of it. Not for: how they look (cml.reporting).
"""

from __future__ import annotations

import contextlib
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError
from cml.retrieval.evaluation import ORACLE
from cml.runs.trained_run import Embeddings, TrainedRun

if TYPE_CHECKING:
    from PIL import Image

    from cml.data.prepared import PreparedDataset, Split
    from cml.reporting.gallery import GalleryRow, Picture
    from cml.task import Task

_BLOCK = 256  # queries whose label distances are held at a time


@dataclass(frozen=True)
class Retrieved:
    """The first k of each ranking for every query.

    Attributes:
        items: Method to (Q, k) gallery numbers, -1 where nothing could be compared.
        distances: Method to (Q, k) label distances as they are reported, infinite = cannot be compared.
    """

    items: Mapping[str, NDArray[np.int64]]
    distances: Mapping[str, NDArray[np.float32]]

    def mean(self, method: str) -> NDArray[np.float64]:
        """Mean label distance of each query's first k (Q,): NaN where nothing could be compared."""
        known = np.isfinite(self.distances[method])
        with np.errstate(invalid="ignore"):
            means: NDArray[np.float64] = np.where(known, self.distances[method], 0).sum(axis=1) / known.sum(axis=1)
        return means


def retrieve(trained: TrainedRun, methods: Mapping[str, Embeddings], k: int) -> Retrieved:
    """Rank the gallery by each of ``methods`` and by the labels themselves (``ORACLE``).

    Args:
        trained: The run whose queries, gallery and label distance count.
        methods: Name to embeddings of queries and gallery.
        k: Items a query.
    """
    from cml.retrieval.evaluation import embedding_ranker, leave_out_itself
    from cml.retrieval.rankers import ranked_columns

    factor, _ = trained.report
    rankers = {name: embedding_ranker(*embeddings) for name, embeddings in methods.items()}
    items = {name: np.empty((len(trained.query_labels), k), np.int64) for name in [*methods, ORACLE]}
    distances = {name: np.empty((len(trained.query_labels), k), np.float32) for name in items}
    for start in range(0, len(trained.query_labels), _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(trained.query_labels)))
        block = trained.distance.pairwise(trained.query_labels[rows], trained.gallery_labels)  # (R, G)
        if trained.dataset.info.queries_are_gallery:
            leave_out_itself(block, rows)
        for name in items:
            scores = block if name == ORACLE else rankers[name](rows)
            if trained.dataset.info.queries_are_gallery:
                leave_out_itself(scores, rows)
            columns = ranked_columns(scores, k, first=start)[0]
            missing = np.isinf(np.take_along_axis(scores, columns, axis=1))  # itself, or not comparable for the oracle
            items[name][rows] = np.where(missing, -1, columns)
            distances[name][rows] = np.where(missing, np.inf, factor * np.take_along_axis(block, columns, axis=1))
    return Retrieved(items, distances)


def shown_row(
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
) -> GalleryRow:
    """One query and what each of ``methods`` retrieves for it.

    Args:
        task: How labels are drawn.
        dataset: Whose queries and gallery they are.
        retrieved: What ``retrieve`` found.
        query: Number of the query.
        methods: Which methods to show, in this order.
        size: Longer side of a picture in pixels.
        score: How badly the query goes.
        gain: How much better than with a baseline.
        ids: Pictures have the item's id as name and the label in words as caption; otherwise the words alone, and only
            where the picture does not show the label already.
    """
    from cml.reporting.gallery import GalleryRow

    queries, gallery = dataset.split("query"), dataset.split("gallery")

    def picture(split: Split, item: int, distance: float | None) -> Picture:
        drawn = Drawn(task, dataset, split, split.paths[item], item, size)
        return drawn.picture(distance) if ids else _wordless(drawn, distance)

    return GalleryRow(
        query=picture(queries, query, None),
        retrieved={
            name: [
                picture(gallery, item, float(distance))
                for item, distance in zip(retrieved.items[name][query], retrieved.distances[name][query], strict=True)
                if item >= 0
            ]
            for name in methods
        },
        score=score,
        gain=gain,
        value=float(label) if isinstance(label := queries.labels[query], int | float) else math.nan,
    )


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
        from PIL import Image

        from cml.data.images import read_image

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

    def picture(self, distance: float | None = None) -> Picture:
        """For a gallery: the item's id is its name, the label in words its caption."""
        from cml.reporting.gallery import Picture

        return Picture(self, self.words(), distance, self.split.item_ids[self.item])

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        """While a task shows a label: what it cannot show is perhaps of another task."""
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise DataError(
                f"The task {self.task.name!r} cannot show the label {reprlib.repr(self.split.labels[self.item])} of "
                f"the item {self.split.item_ids[self.item]!r} in {self.dataset.folder} ({type(error).__name__}: "
                f"{error}). Is it the task of this dataset?"
            ) from error


def _wordless(drawn: Drawn, distance: float | None) -> Picture:
    from cml.reporting.gallery import Picture

    plain, image = drawn.plain(), drawn()
    seen = image.size != plain.size or image.tobytes() != plain.tobytes()
    return Picture(image, "" if seen else drawn.words(), distance)
