"""What rankings retrieve for a run's queries, as numbers and as pictures with labels; the retrieval report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.data.encode_image import describe_shown_bands
from cml.data.prepared import PreparedDataset, Split
from cml.doors.dataset_report import Drawn, describe_held_out
from cml.doors.judged_report import DISAGREEMENT, describe_labels_of_run, report_judgements
from cml.doors.trained_run import Embeddings, TrainedRun
from cml.errors import UserError
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.ranking import mask_own_column, rank_columns
from cml.retrieval.reference_rows import ORACLE
from cml.task import Task

RETRIEVAL_REPORT = "retrieval_report.html"
ORACLE_GAP = "gap to the oracle"
_BLOCK = 256  # queries whose label distances are held at a time


@dataclass(frozen=True)
class Retrieved:
    """The first k items of each ranking for every query."""

    items: Mapping[str, Int64]  # method to positions (Q, k) in the gallery, -1 where nothing could be compared
    # method to label distances (Q, k) in the reported unit, infinite where nothing could be compared
    distances: Mapping[str, Float32]

    def mean(self, method: str) -> Float64:  # means (Q,) in the reported unit, NaN where nothing could be compared
        """Compute the mean label distance of each query's first k items."""
        known = np.isfinite(self.distances[method])
        with np.errstate(invalid="ignore"):
            means: Float64 = np.where(known, self.distances[method], 0).sum(axis=1) / known.sum(axis=1)
        return means

    def select_best(self, methods: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
        """Select the method whose first k items have the nearest labels, such as the best form of vectors."""

        def measure(name: str) -> float:
            means = self.mean(name)
            return float(means[~np.isnan(means)].sum())  # over the same queries for every method

        best = sorted(methods, key=measure)[:1]
        return {name: methods[name] for name in best}


def retrieve(
    trained: TrainedRun,
    methods: Mapping[str, Embeddings],  # method to embeddings of queries (Q, D) and gallery (G, D)
    k: int,  # items per query, at most G
) -> Retrieved:
    """Rank the gallery for every query by embeddings, and by the labels themselves (``ORACLE``)."""
    factor = trained.report.factor
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


@dataclass(frozen=True)
class RetrievalRows:
    """Builds the rows of a page that shows what methods retrieve for queries."""

    task: Task  # the task, which draws labels and puts them in words
    dataset: PreparedDataset  # the dataset of queries and gallery
    retrieved: Retrieved  # the rankings
    methods: Sequence[str]  # the methods to show, in this order
    size: int  # longer side of a picture in pixels
    ids: bool = True  # write ids and words below pictures; otherwise words alone, where nothing is drawn
    comparable: bool = True  # write label distances below pictures; False where none is known
    channels: int = 3  # the number of bands of an image that the backbone takes

    def build(
        self,
        query: int,
        *,
        score: float = 0.0,
        gain: float = math.nan,  # how much nearer the first method is than the baseline; NaN without a baseline
    ) -> ReportRow:
        """Build the row of a query."""
        queries, gallery = self.dataset.split("query"), self.dataset.split("gallery")
        shown = {}
        for name in self.methods:
            distances: list[float | None] = self.retrieved.distances[name][query].tolist()
            if not self.comparable:
                distances = [None] * len(distances)
            ranking = zip(self.retrieved.items[name][query].tolist(), distances, strict=True)
            shown[name] = [self._draw(gallery, item, distance) for item, distance in ranking if item >= 0]
        label = queries.labels[query]
        value = float(label) if isinstance(label, int | float) else math.nan
        return ReportRow(self._draw(queries, query, None), shown, score=score, gain=gain, value=value)

    def _draw(self, split: Split, item: int, distance: float | None) -> Picture:
        drawn = Drawn(self.task, self.dataset, split, split.pictures[item], item, self.size, self.channels)
        return drawn.picture(distance, ids=self.ids)


def write_retrieval_report(
    trained: TrainedRun,
    baselines: Mapping[str, Embeddings],
    *,
    queries: int = 48,
    k: int = 5,
    thumbnail: int = 96,  # size of a picture on the page, in pixels
    table: Sequence[Sequence[str]] = (),  # a table to print at the page's top, its first row the header
    note: str = "",  # a sentence to add to the summary
    path: Path | None = None,
) -> Path:
    """Write a run's retrieval report: what queries retrieve, evenly spaced from the worst query to the best."""
    for option, value in (("queries", queries), ("k", k), ("thumbnail", thumbnail)):
        if value < 1:
            raise UserError(f"'{option}' must be at least 1. Got {value} instead.")
    k = min(k, len(trained.gallery_labels))
    name = trained.config.train.method
    methods: dict[str, Embeddings] = {name: trained.embeddings}
    named = {title if title != name else f"{name} (baseline)": rows for title, rows in baselines.items()}
    retrieved = retrieve(trained, {**methods, **named}, k)
    judged = report_judgements(trained, {**methods, **named})
    if judged is None or not judged.disagreement:
        methods |= retrieved.select_best(named)
        measure, titles = ORACLE_GAP, [name, ORACLE, *(title for title in methods if title != name)]
        losses = {title: retrieved.mean(title) - retrieved.mean(ORACLE) for title in methods}
    else:  # triplets, whose label distances are not known
        methods |= judged.select_best(named)
        measure, titles, losses = DISAGREEMENT, list(methods), dict(judged.disagreement)
    order = np.argsort(-losses[name], kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(queries, len(order))).round().astype(int))]
    baseline_losses = losses[titles[-1]] if baselines else math.nan
    scores, gains = losses[name].tolist(), (baseline_losses - losses[name]).tolist()
    task, dataset = trained.task, trained.dataset
    channels = trained.model.config.inputs.channels
    rows = RetrievalRows(
        task, dataset, retrieved, titles, size=2 * thumbnail, comparable=measure == ORACLE_GAP, channels=channels
    )
    page = [rows.build(row, score=scores[row], gain=gains[row]) for row in shown.tolist()]
    info, path = dataset.info, path or trained.folder / RETRIEVAL_REPORT
    if measure == ORACLE_GAP:
        is_mean = f"the mean label distance of the top {k} of {name} minus that of the best possible ranking"
    else:
        is_mean = f"the share of a query's judgements that {name} does not agree with"
    remarks = [
        describe_held_out(info),
        describe_labels_of_run(trained.folder, trained.config),
        describe_shown_bands(channels),
        note,
    ]
    train = trained.config.train
    how = "tuned" if train.tune else f"{train.steps} steps"
    write_retrieval_page(
        path,
        page,
        title=f"{info.name}: what the embedding retrieves",
        unit=trained.report.unit,
        summary=(
            f"{len(page)} of {len(trained.query_labels)} queries against a gallery of {len(trained.gallery_labels)}. "
            f'The "{measure}" is {is_mean}. Run {trained.folder}, {how}, '
            f"label distance {task.label_distance(trained.config.train, info)}. " + " ".join(filter(None, remarks))
        ),
        table=table or ([] if judged is None else judged.table),
        legend=task.legend(info),
        thumbnail=thumbnail,
        measure=measure,
        baseline=titles[-1],
    )
    return path
