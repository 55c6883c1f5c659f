"""Evaluation of rankings of a gallery against label distances, in blocks of queries that all rankers share.

A block of label distances is computed once for all rankers. Memory is O(block), never queries x gallery.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float32, Float64, Floating, Int64
from cml.distances import LabelDistance, Labels
from cml.distances.blas_threads import one_blas_thread
from cml.errors import UserError
from cml.option_types import check_options
from cml.retrieval.condensed_lists import comparable_label_distance, count_known, cut_options, put_last
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.mean_interval import mean_intervals
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.metrics import Metric, MetricInfo, make_metrics
from cml.retrieval.metrics.all_queries import SCORE_K, AllQueriesMetric, QueryTable
from cml.retrieval.metrics.hit import choose_hit_neighbors
from cml.retrieval.metrics.label_distance import compute_label_distance
from cml.retrieval.oracle_row import ORACLE, measure_oracle
from cml.retrieval.own_column import mask_own_column
from cml.retrieval.ranker import Ranker
from cml.retrieval.ranking import LabelBlock, Ranking
from cml.retrieval.ranking_ties import rank_columns
from cml.retrieval.results import Evaluation

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

_FEWEST_ROWS = 16  # a matrix product of fewer rows only waits for the gallery to be read from memory
_READ_ROWS = 64  # which make more of each reading of a large gallery, as long as their scores take up to 160 MB
_LARGE = 1 << 14  # items
_SCORE_BYTES = 160 << 20


def evaluate(
    rankers: Mapping[str, Ranker],
    distance: LabelDistance,
    query_labels: Labels,
    gallery_labels: Labels,
    options: EvaluateOptions | None = None,
    *,
    same_items: bool = False,
    oracle: bool = True,
    progress: Callable[[int], object] | None = None,
    ranks: Ranks | None = None,
) -> Evaluation:
    """Measure every ranker, and the ranking by the label distance itself as the row "oracle".

    Every registered metric is measured that the options allow, see ``cml.retrieval.metrics``. cml's own are
    label_distance@K, ndcg@K and hit@K, those of the log-ratio paper (Kim et al., Deep Metric Learning Beyond Binary
    Supervision, 2019); recall@K, map@r and r_precision of classes; kendall_tau, spearman_rho and h_ap of the whole
    ranking; score@10, which is (random - ours) / (random - oracle) of the mean label distances@10, with what a random
    ranking has in expectation; and, from 100 queries on, worst_decile@10, the mean label distance@10 in that tenth of
    the labels where it is largest. The last two take the largest K where none is 10.

    Of a label distance that ``is_partial``, each query ranks the items of known label distance alone, as do random and
    oracle (condensed lists: Sakai, Alternatives to Bpref, SIGIR 2007); a query without any is undefined in all metrics.

    Items with the same score are taken in random order, for h_ap in all orders. Neither ``block_bytes`` nor
    ``threads`` of the options changes the result, unless a ranker's scores depend on the block.

    Args:
        rankers: Name -> ranker; called from several threads at a time.
        distance: The label distance.
        query_labels: Q labels, encoded: ``distance.encode(labels)``.
        gallery_labels: G labels, encoded by the same distance.
        options: What is measured, and how; the defaults when not given.
        same_items: The queries are the gallery, in the same order: each is left out of its own ranking. Without it,
            equal labels of queries and gallery are a warning.
        oracle: Whether to add the row "oracle".
        progress: Called with the number of queries done, block by block.
        ranks: The processes that share the blocks of queries, all of which call this with the same arguments and get
            the same result; None for this one alone.

    Returns:
        A row for each ranker and one for the oracle, each metric with its 95 % interval over queries.

    Raises:
        UserError: a setting is out of range, there is nothing to rank, or a ranker or the label distance gives a
            block of another shape or with NaN.
    """
    options = check_options(options or EvaluateOptions())
    queries, gallery = len(query_labels), len(gallery_labels)
    if same_items and queries != gallery:
        raise UserError(f"Queries that are the gallery too must be as many as it. Got {queries} and {gallery} instead.")
    repeats = same_items or distance.class_names(query_labels) is not None  # classes are the same of other items too
    if not repeats and queries == gallery and query_labels.fingerprint() == gallery_labels.fingerprint():
        warnings.warn(
            "The queries have the labels of the gallery. If they are the same items, each of them finds itself first, "
            "which is no merit of the embedding: set same_items=True.",
            stacklevel=2,
        )
    ranked = gallery - 1 if same_items else gallery
    known_items = None
    if distance.is_partial:
        known_items = max(0, count_known(distance, query_labels, gallery_labels) - same_items)
        options = cut_options(options, known_items, gallery)
    hit_neighbors = choose_hit_neighbors(options.hit_neighbors, ranked)
    metrics = make_metrics(options, ranked)
    per_query = [metric for metric in metrics if not isinstance(metric, AllQueriesMetric)]
    columns = [column for metric in per_query for column in metric.columns]
    names = [*rankers, *([ORACLE] if oracle else [])]
    _check_rankers(rankers, names, queries, gallery, len(columns), oracle=oracle)

    blocks = _Blocks(rankers, distance, query_labels, gallery_labels, options, per_query, columns, same_items, oracle)
    blocks.measure(progress, ranks)

    measured = dict(zip(columns, blocks.values.transpose(2, 0, 1), strict=True))  # (names, Q) each
    vectors = distance.label_vectors(query_labels)
    table = QueryTable(measured, blocks.comparable, blocks.chance, blocks.best, blocks.best_k, vectors)
    results = _summarize(metrics, table, names)
    ties = {name: int(tied.sum()) for name, tied in zip(rankers, blocks.tied, strict=True) if tied.any()}
    return Evaluation(
        rows=results,
        unit=distance.unit,
        gain=options.gain,
        queries=queries,
        gallery=ranked,
        hit_neighbors=hit_neighbors,
        ties=ties,
        singletons_as_misses=options.singletons_as_misses,
        recall_within=options.recall_within,
        ranking_sample=0 if blocks.sample is None else len(blocks.sample),
        known_items=known_items,
    )


def _check_rankers(
    rankers: Mapping[str, Ranker], names: Sequence[str], queries: int, gallery: int, columns: int, *, oracle: bool
) -> None:
    if not queries or not gallery or not names or not columns:
        raise UserError(
            "An evaluation needs at least one query, gallery item, ranker and metric. Got "
            f"{queries}, {gallery}, {len(names)} and {columns} instead."
        )
    wrong = [name for name, ranker in rankers.items() if not callable(ranker)]
    if wrong:
        raise UserError(
            f"The ranker {wrong[0]!r} must be a function, such as cml.retrieval.embedding_ranker(query, gallery). "
            f"Got {type(rankers[wrong[0]]).__name__} instead."
        )
    if oracle and ORACLE in rankers:
        raise UserError(f"The ranker name {ORACLE!r} is taken by the row of the label distance; choose another one.")


class _Blocks:
    """Measures the queries block by block, several blocks at a time.

    The results are views of one array, so that several processes merge it at once. Rows are the rankers and, if it is
    measured, the oracle.
    """

    def __init__(
        self,
        rankers: Mapping[str, Ranker],
        distance: LabelDistance,
        query_labels: Labels,
        gallery_labels: Labels,
        options: EvaluateOptions,
        metrics: Sequence[Metric],
        columns: Sequence[str],
        same_items: bool,
        oracle: bool,
    ) -> None:
        self.rankers = rankers
        self.distance = distance
        self.query_labels = query_labels
        self.gallery_labels = gallery_labels
        self.options = options
        self.metrics = metrics
        self.same_items = same_items
        self.oracle = oracle
        self.queries, self.gallery = len(query_labels), len(gallery_labels)
        self.best_k = _largest_score_k(columns)
        self.sample = _draw_sample(metrics, options, self.gallery)
        # one row and two columns more than values, for the other results
        self._all = np.zeros((len(rankers) + oracle + 1, self.queries, len(columns) + 2))

    @property
    def _on_sample(self) -> list[Metric]:
        return [metric for metric in self.metrics if metric.needs == "whole_ranking" and self.sample is not None]

    @property
    def _on_all(self) -> list[Metric]:
        return [metric for metric in self.metrics if metric.needs != "whole_ranking" or self.sample is None]

    @property
    def values(self) -> Float64:
        """The metrics of each query, (rows, Q, columns)."""
        return self._all[:-1, :, :-2]

    @property
    def comparable(self) -> Float64:
        """The mean label distance of the first ``best_k`` comparable items, (rows, Q)."""
        return self._all[:-1, :, -2]

    @property
    def tied(self) -> Float64:
        """1 where the first items of a ranking have equal scores, else 0, (rankers, Q)."""
        return self._all[: len(self.rankers), :, -1]

    @property
    def chance(self) -> Float64:
        """What a random ranking has in expectation, (Q,), see ``LabelBlock.chance``."""
        return self._all[-1, :, 0]

    @property
    def best(self) -> Float64:
        """The mean label distance of the ``best_k`` nearest items by label, (Q,)."""
        return self._all[-1, :, 1]

    def measure(self, progress: Callable[[int], object] | None, ranks: Ranks | None) -> None:
        """Measure all blocks; of several processes each measures its share, and all get the whole."""
        threads, block_bytes = self.options.threads, self.options.block_bytes
        fewest = _FEWEST_ROWS
        if self.gallery >= _LARGE:
            fewest = max(fewest, min(_READ_ROWS, _SCORE_BYTES // (8 * self.gallery)))
        size = max(fewest, min(-(-self.queries // threads), block_bytes // (4 * self.gallery)))
        starts = range(0, self.queries, size)
        if ranks is not None:
            starts = starts[ranks.share(len(starts))]
        slices = [slice(start, min(start + size, self.queries)) for start in starts]
        left = self.queries
        # BLAS threads below these threads would only wait for each other
        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            for done in pool.map(self._measure_block, slices):
                left -= done
                if progress is not None:
                    progress(done)
        if ranks is not None and ranks.size > 1:
            self._all = ranks.all_reduce_array(self._all)  # rows that others have measured are 0 here
            if progress is not None:
                progress(left)

    def _measure_block(self, rows: slice) -> int:
        labels = LabelBlock(self._label_distances(rows), self._on_all)
        sampled = None if self.sample is None else LabelBlock(labels.distances[:, self.sample], self._on_sample)
        unknown = np.isinf(labels.distances) if self.distance.is_partial else None
        for row, (name, ranker) in enumerate(self.rankers.items()):
            values, comparable, tied = self._measure_ranker(name, ranker, rows, labels, sampled, unknown)
            self.values[row, rows], self.comparable[row, rows], self.tied[row, rows] = values, comparable, tied
        oracle_row = len(self.rankers)
        if self.oracle:
            self.values[oracle_row, rows] = measure_oracle(self.metrics, labels, sampled)
        if self.best_k:
            best = compute_label_distance(labels.ideal, [self.best_k])[:, 0]
            self.chance[rows], self.best[rows] = labels.chance, best
            if self.oracle:
                self.comparable[oracle_row, rows] = best
        done: int = rows.stop - rows.start
        return done

    def _measure_ranker(
        self,
        name: str,
        ranker: Ranker,
        rows: slice,
        labels: LabelBlock,
        sampled: LabelBlock | None,
        unknown: Bools | None,
    ) -> tuple[Float64, Float64, Bools]:
        """The ``values`` (R, columns), ``comparable`` (R,) and ``tied`` (R,) of a ranker, whose scores are not kept."""
        scores = self._scores(name, ranker, rows)
        if unknown is not None:
            scores = put_last(scores, unknown)
        columns, tied = rank_columns(scores, labels.depth, first=rows.start, seed=self.options.seed)
        ranking = Ranking.from_columns(labels, scores, columns)
        of_sample = None
        if sampled is not None:
            some = scores[:, self.sample]
            first, _ = rank_columns(some, sampled.depth, first=rows.start, seed=self.options.seed)
            of_sample = Ranking.from_columns(sampled, some, first)
        measured = _measure_ranking(self.metrics, ranking, of_sample)
        comparable = np.full(len(tied), np.nan)
        if self.best_k:
            comparable = comparable_label_distance(
                ranking, columns, self.best_k, first=rows.start, seed=self.options.seed
            )
        return measured, comparable, tied

    def _label_distances(self, rows: slice) -> Float32:
        distances = self.distance.pairwise(self.query_labels[rows], self.gallery_labels)  # (R, G)
        self._check_block(distances, f"label distance {self.distance.name!r}", rows)
        least = distances.min()
        if not least >= 0:
            got = f"Got {least} for a query in {rows.start}..{rows.stop - 1} instead."
            raise UserError(f"The label distance {self.distance.name!r} must be at least 0. {got}")
        if self.same_items:
            mask_own_column(distances, rows)
        return distances

    def _scores(self, name: str, ranker: Ranker, rows: slice) -> Floating:
        scores = np.asarray(ranker(rows))
        self._check_block(scores, f"ranker {name!r}", rows)
        if self.same_items:
            scores = scores.copy()
            mask_own_column(scores, rows)
        return scores

    def _check_block(self, block: NDArray[Any], source: str, rows: slice) -> None:
        queries, gallery = self.queries, self.gallery
        if block.shape != (rows.stop - rows.start, gallery) or block.dtype.kind != "f":
            raise UserError(
                f"The {source} must give floating-point numbers for {queries} queries and {gallery} gallery items, "
                f"({queries}, {gallery}) in all, as there are labels. Got shape {block.shape}, {block.dtype} instead "
                f"for the queries {rows.start}..{rows.stop - 1}."
            )
        if np.isnan(block.max()):
            where = f"a query in {rows.start}..{rows.stop - 1}"
            raise UserError(f"The {source} gives NaN for {where}: nothing can be ranked by it.")


def _draw_sample(metrics: Sequence[Metric], options: EvaluateOptions, gallery: int) -> Int64 | None:
    """Positions of the gallery items on which the whole ranking is measured, rising; None for all of them."""
    if gallery <= options.ranking_sample or not any(metric.needs == "whole_ranking" for metric in metrics):
        return None
    rng = np.random.default_rng([options.seed, gallery])
    return np.sort(rng.choice(gallery, options.ranking_sample, replace=False))


def _measure_ranking(metrics: Sequence[Metric], ranking: Ranking, sampled: Ranking | None) -> Float64:
    """All columns of all metrics, (R, columns); those of the whole ranking on a sample if there is one."""
    return np.column_stack(
        [
            metric.measure(ranking if sampled is None or metric.needs != "whole_ranking" else sampled)
            for metric in metrics
        ]
    )


def _largest_score_k(columns: Sequence[str]) -> int:
    """The largest K of the mean label distance up to that of the score; 0 for none."""
    ks = [int(column.partition("@")[2]) for column in columns if column.startswith("label_distance@")]
    return max((k for k in ks if k <= SCORE_K), default=0)


def _summarize(
    metrics: Sequence[Metric], table: QueryTable, names: Sequence[str]
) -> dict[str, dict[str, MetricResult]]:
    """Means and intervals: ranker name -> column -> result, the columns in the order of the metrics."""
    infos = {column: metric.info for metric in metrics for column in metric.columns}
    columns: dict[str, Float64] = {}  # (names, Q) each
    intervals: dict[str, Float64] = {}  # (names, 2) each
    for metric in metrics:
        if not isinstance(metric, AllQueriesMetric):
            columns |= {column: table.columns[column] for column in metric.columns}
            continue
        values = metric.measure_queries(table)
        if values is not None:
            columns[metric.columns[0]] = values.per_query
            if values.intervals is not None:
                intervals[metric.columns[0]] = values.intervals
    flat = np.concatenate([*columns.values()])  # (columns x names, Q)
    ends = mean_intervals(flat.T)
    intervals = dict(zip(columns, ends.reshape(len(columns), len(names), 2), strict=True)) | intervals
    results: dict[str, dict[str, MetricResult]] = {ranker: {} for ranker in names}
    for column, rows in columns.items():
        for ranker, per_query, interval in zip(names, rows, intervals[column], strict=True):
            results[ranker][column] = _metric_result(column, per_query, interval, infos[column])
    return results


def _metric_result(column: str, per_query: Float64, interval: Float64, info: MetricInfo) -> MetricResult:
    present = per_query[~np.isnan(per_query)]
    mean = float(present.mean()) if len(present) else float("nan")
    low, high = info.clip_interval(mean, *interval.tolist())
    return MetricResult(column, per_query.copy(), mean, low, high, len(per_query) - len(present), info)
