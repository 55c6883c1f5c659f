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
from cml.retrieval.embedding_ranker import Ranker
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.item_influences import Effects, ItemInfluences
from cml.retrieval.item_units import ItemUnits
from cml.retrieval.mean_interval import item_intervals
from cml.retrieval.metric_result import MetricResult, Over
from cml.retrieval.metrics import Metric, cut_options, make_metrics
from cml.retrieval.metrics.all_queries import SCORE_K, AllQueriesMetric, QueryTable
from cml.retrieval.metrics.hit import choose_hit_neighbors
from cml.retrieval.metrics.label_distance import compute_label_distance, label_distance_effects
from cml.retrieval.ranking import (
    LabelBlock,
    Ranking,
    comparable_lists,
    count_known,
    mask_own_column,
    put_last,
    rank_columns,
)
from cml.retrieval.reference_rows import ORACLE, RandomRanker
from cml.retrieval.results import Evaluation

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

_FEWEST_ROWS = 16  # a matrix product of fewer rows only waits for the gallery to be read from memory
_READ_ROWS = 128  # which make more of each reading of a large gallery, as long as their scores take up to 160 MB
_LARGE = 1 << 14  # items
_SCORE_BYTES = 160 << 20
_MOST_THREADS = 16  # each of which holds a block of queries
_EFFECT_QUERIES = 128  # whose whole rankings show what gallery items do; all of them give the same errors

_Source = LabelBlock | Ranking
_FoundEffects = tuple[int, int, Int64 | None, Effects]  # row, first column, queries or None for all of a block, effects


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
    groups: Sequence[Any] | None = None,
    gallery_groups: Sequence[Any] | None = None,
    other_groups: bool = False,
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
        groups: (Q,) the group of each query, such as a patient or a scene, where groups are drawn and not items:
            intervals then count groups. None where items are drawn one by one.
        gallery_groups: (G,) that of each gallery item. A group on both sides is drawn as a whole.
        other_groups: Whether a query ranks the items of other groups alone.

    Returns:
        A row for each ranker and one for the oracle, each metric with its 95 % interval over items, each of which
        counts as a query, in the gallery or as both.

    Raises:
        UserError: a setting is out of range, there is nothing to rank, or a ranker or the label distance gives a
            block of another shape or with NaN.

    Example:
        >>> from cml import distances
        >>> from cml.retrieval import evaluate, random_ranker
        >>> distance = distances.get("euclidean")
        >>> labels = distance.encode([[float(number)] for number in range(20)])
        >>> found = evaluate({"random": random_ranker(20, 20)}, distance, labels, labels, same_items=True)
        >>> found.rows["oracle"]["spearman_rho"].mean
        1.0
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
    units = ItemUnits.of(queries, gallery, same_items, groups, gallery_groups)
    ranked = units.count_others(gallery) if other_groups else gallery - same_items
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

    blocks = _Blocks(
        rankers, distance, query_labels, gallery_labels, options, per_query, columns, same_items, oracle, units
    )
    blocks.other_groups = other_groups and units.are_joint
    blocks.measure(progress, ranks)

    measured = dict(zip(columns, blocks.values.transpose(2, 0, 1), strict=True))  # (names, Q) each
    vectors = distance.label_vectors(query_labels)
    influences = blocks.influences()
    kept = influences.select((slice(-1), slice(-1)))  # (names, columns)
    of_terms = {
        "comparable": influences.select((slice(-1), -1)),
        "chance": influences.select((-1, 0)),
        "best": influences.select((-1, 1)),
    }
    table = QueryTable(measured, blocks.comparable, blocks.chance, blocks.best, of_terms, blocks.best_k, vectors)
    results = _summarize(metrics, table, names, kept, "groups" if units.are_groups else "items")
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
        units: ItemUnits,
    ) -> None:
        from cml.retrieval.effect_sums import EffectSums

        self.rankers = rankers
        self.distance = distance
        self.query_labels = query_labels
        self.gallery_labels = gallery_labels
        self.options = options
        self.metrics = metrics
        self.same_items = same_items
        self.other_groups = False  # whether the query's own group is left out
        self.oracle = oracle
        self.queries, self.gallery = len(query_labels), len(gallery_labels)
        self.best_k = _largest_score_k(columns)
        self.sample = _draw_sample(metrics, options, self.gallery)
        # one row and two columns more than values, for the other results
        self._all = np.zeros((len(rankers) + oracle + 1, self.queries, len(columns) + 2))
        self.units = units
        self._sums = EffectSums(units, len(self._all), len(columns) + 1)
        places = np.cumsum([0, *(len(metric.columns) for metric in metrics)]).tolist()
        self._places = dict(zip(metrics, places, strict=False))  # the first column of each metric
        some = np.linspace(0, self.queries - 1, min(self.queries, _EFFECT_QUERIES))
        self._has_whole = any(metric.needs == "whole_ranking" for metric in metrics)
        self._effect_queries = np.unique(some.astype(np.int64))  # for whole rankings

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
        threads, block_bytes = min(self.options.threads, _MOST_THREADS), self.options.block_bytes
        fewest, share = _FEWEST_ROWS, -(-self.queries // threads)
        if self.gallery >= _LARGE:
            fewest = max(fewest, min(_READ_ROWS, share, _SCORE_BYTES // (8 * self.gallery)))
        size = max(fewest, min(share, block_bytes // (4 * self.gallery)))
        starts = range(0, self.queries, size)
        if ranks is not None:
            starts = starts[ranks.share(len(starts))]
        slices = [slice(start, min(start + size, self.queries)) for start in starts]
        left = self.queries
        from cml.retrieval.compile_notice import say_what_compiles

        # BLAS threads below these threads would only wait for each other
        with say_what_compiles(), one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            for rows, found, label_distances in pool.map(self._measure_block, slices):
                queries = np.arange(rows.start, rows.stop)
                for row, column, some, effects in found:
                    factor = 1.0 if some is None else self.queries / len(self._effect_queries)
                    self._sums.add(row, column, queries if some is None else some, effects, factor)
                if self.best_k:
                    self._sums.add_chance(queries, label_distances, self.chance[rows])
                left -= len(queries)
                if progress is not None:
                    progress(len(queries))
        if ranks is not None and ranks.size > 1:
            self._all = ranks.all_reduce_array(self._all)  # rows that others have measured are 0 here
            self._sums.merge(self._all[:, :, :-1], ranks)
            if progress is not None:
                progress(left)

    def influences(self) -> ItemInfluences:
        """What items do to the means: (rows + 1, columns + 1), the last column of ``comparable``.

        The first two columns of the last row are of ``chance`` and ``best``.
        """
        in_gallery = np.bincount(self.units.of_gallery, minlength=self.units.gallery) > 0
        is_ranked = np.repeat(in_gallery[None], self._all.shape[2] - 1, axis=0)  # (columns + 1, units)
        if self.sample is not None:
            in_sample = np.bincount(self.units.of_gallery[self.sample], minlength=self.units.gallery) > 0
            for metric in self._on_sample:
                first = self._places[metric]
                is_ranked[first : first + len(metric.columns)] = in_sample
        return self._sums.influences(self._all[:, :, :-1], is_ranked)

    def _measure_block(self, rows: slice) -> tuple[slice, list[_FoundEffects], Float32]:
        """Measure a block; gives effects of gallery items, which are added up in the order of the queries."""
        found: list[_FoundEffects] = []
        labels = LabelBlock(self._label_distances(rows), self._on_all)
        sampled = None if self.sample is None else LabelBlock(labels.distances[:, self.sample], self._on_sample)
        unknown = np.isinf(labels.distances) if self.distance.is_partial or self.other_groups else None
        for row, (name, ranker) in enumerate(self.rankers.items()):
            found += self._measure_ranker(row, name, ranker, rows, labels, sampled, unknown)
        oracle_row = len(self.rankers)
        if self.oracle:
            self.values[oracle_row, rows] = _measure_source(self.metrics, labels, sampled, "measure_oracle")
            found += self._find_effects(oracle_row, rows, labels, sampled, "oracle_effects")
        if self.best_k:
            best = compute_label_distance(labels.ideal, [self.best_k])[:, 0]
            self.chance[rows], self.best[rows] = labels.chance, best
            lists = label_distance_effects(labels.ideal[:, : self.best_k + 1], labels.nearest, [self.best_k])
            found.append((oracle_row + self.oracle, 1, None, lists))
            if self.oracle:
                self.comparable[oracle_row, rows] = best
                found.append((oracle_row, self.values.shape[2], None, lists))
        return rows, found, labels.distances

    def _measure_ranker(
        self,
        row: int,
        name: str,
        ranker: Ranker,
        rows: slice,
        labels: LabelBlock,
        sampled: LabelBlock | None,
        unknown: Bools | None,
    ) -> list[_FoundEffects]:
        """Measure a ranker, whose scores are not kept, and give the effects of gallery items."""
        scores = self._scores(name, ranker, rows)
        if unknown is not None:
            scores = put_last(scores, unknown)
        columns, tied = rank_columns(scores, labels.depth, first=rows.start, seed=self.options.seed, next_too=True)
        ranking = Ranking.from_columns(labels, scores, columns)
        of_sample = None
        if sampled is not None:
            some = scores[:, self.sample]
            first, _ = rank_columns(some, sampled.depth, first=rows.start, seed=self.options.seed, next_too=True)
            of_sample = Ranking.from_columns(sampled, some, first)
        is_random = isinstance(ranker, RandomRanker)
        measure, effects = ("measure_random", "random_effects") if is_random else ("measure", "effects")
        self.values[row, rows] = _measure_source(self.metrics, ranking, of_sample, measure)
        self.tied[row, rows] = tied
        found = self._find_effects(row, rows, ranking, of_sample, effects)
        self.comparable[row, rows] = np.nan
        if self.best_k:
            retrieved, items = comparable_lists(ranking, self.best_k, first=rows.start, seed=self.options.seed)
            self.comparable[row, rows] = compute_label_distance(retrieved, [self.best_k])[:, 0]
            lists = label_distance_effects(retrieved, items, [self.best_k])
            found.append((row, self.values.shape[2], None, lists))
        return found

    def _find_effects(
        self, row: int, rows: slice, all_items: _Source, sampled: _Source | None, method: str
    ) -> list[_FoundEffects]:
        """Effects of gallery items on the metrics, by a method of theirs; of some queries on whole rankings."""
        found: list[_FoundEffects] = []
        chosen = self._effect_queries
        chosen = chosen[(chosen >= rows.start) & (chosen < rows.stop)]
        whole = (all_items if sampled is None else sampled).select(chosen - rows.start) if self._has_whole else None
        for metric, column in self._places.items():
            is_whole = metric.needs == "whole_ranking"
            effects = getattr(metric, method)(whole if is_whole else all_items)
            if effects is not None and len(effects.items):
                found.append((row, column, chosen if is_whole else None, effects))
        found = _join_effects(found)
        if self.sample is None:
            return found
        of_sample = self.sample
        return [
            (row, column, some, effects if some is None else Effects(of_sample[effects.items], effects.changes))
            for row, column, some, effects in found
        ]

    def _label_distances(self, rows: slice) -> Float32:
        distances = self.distance.pairwise(self.query_labels[rows], self.gallery_labels)  # (R, G)
        self._check_block(distances, f"label distance {self.distance.name!r}", rows)
        least = distances.min()
        if not least >= 0:
            got = f"Got {least} for a query in {rows.start}..{rows.stop - 1} instead."
            raise UserError(f"The label distance {self.distance.name!r} must be at least 0. {got}")
        self._leave_out(distances, rows)
        return distances

    def _scores(self, name: str, ranker: Ranker, rows: slice) -> Floating:
        scores = np.asarray(ranker(rows))
        self._check_block(scores, f"ranker {name!r}", rows)
        if self.same_items or self.other_groups:
            scores = scores.copy()
            self._leave_out(scores, rows)
        return scores

    def _leave_out(self, block: Floating, rows: slice) -> None:
        """Put what belongs to each query infinitely far away: itself, or its whole group."""
        if self.same_items:
            mask_own_column(block, rows)
        if self.other_groups:
            block[self.units.of_queries[rows][:, None] == self.units.of_gallery] = np.inf

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


def _join_effects(found: Sequence[_FoundEffects]) -> list[_FoundEffects]:
    """Join effects of the same items on columns side by side, whose pairs of items then get their signs once."""
    joined: list[_FoundEffects] = []
    for row, column, some, effects in found:
        if joined:
            first, before = joined[-1][1], joined[-1][3]
            if before.items is effects.items and first + before.changes.shape[2] == column:
                changes = np.concatenate([before.changes, effects.changes], axis=2)
                joined[-1] = row, first, some, Effects(before.items, changes)
                continue
        joined.append((row, column, some, effects))
    return joined


def _draw_sample(metrics: Sequence[Metric], options: EvaluateOptions, gallery: int) -> Int64 | None:
    """Positions of the gallery items on which the whole ranking is measured, rising; None for all of them."""
    if gallery <= options.ranking_sample or not any(metric.needs == "whole_ranking" for metric in metrics):
        return None
    rng = np.random.default_rng([options.seed, gallery])
    return np.sort(rng.choice(gallery, options.ranking_sample, replace=False))


def _measure_source(metrics: Sequence[Metric], source: _Source, sampled: _Source | None, method: str) -> Float64:
    """All columns of all metrics by a method of theirs, (R, columns); of whole rankings on a sample if there is one."""
    return np.column_stack(
        [
            getattr(metric, method)(source if sampled is None or metric.needs != "whole_ranking" else sampled)
            for metric in metrics
        ]
    )


def _largest_score_k(columns: Sequence[str]) -> int:
    """The largest K of the mean label distance up to that of the score; 0 for none."""
    ks = [int(column.partition("@")[2]) for column in columns if column.startswith("label_distance@")]
    return max((k for k in ks if k <= SCORE_K), default=0)


def _summarize(
    metrics: Sequence[Metric], table: QueryTable, names: Sequence[str], measured: ItemInfluences, drawn: Over
) -> dict[str, dict[str, MetricResult]]:
    """Means and intervals: ranker name -> column -> result, the columns in the order of the metrics."""
    results: dict[str, dict[str, MetricResult]] = {name: {} for name in names}
    first = 0
    for metric in metrics:
        columns = metric.columns
        if isinstance(metric, AllQueriesMetric):
            found = metric.measure_queries(table)
            if found is None:
                continue
            values, influences = found.per_query[:, None], found.influences
            has_effects = influences is not None
            influences = ItemInfluences.of_queries(found.per_query) if influences is None else influences
            influences = influences.select((slice(None), None))
        else:
            values = np.stack([table.columns[column] for column in columns], axis=1)  # (names, columns, Q)
            influences = measured.select((slice(None), slice(first, first + len(columns))))
            has_effects = type(metric).effects is not Metric.effects
            first += len(columns)
        is_present = ~np.isnan(values)
        counts = is_present.sum(axis=-1)
        means = np.full(counts.shape, np.nan)
        for cell in np.argwhere(counts).tolist():
            means[*cell] = values[*cell][is_present[*cell]].mean()
        ends = metric.info.clip_intervals(means, item_intervals(influences))
        of_gallery = influences.given_gallery() if has_effects else None
        given = None if of_gallery is None else metric.info.clip_intervals(means, item_intervals(of_gallery))
        for row, name in enumerate(names):
            for place, column in enumerate(columns):
                low, high = ends[row, place].tolist()
                results[name][column] = MetricResult(
                    column,
                    values[row, place].copy(),
                    means[row, place].item(),
                    low,
                    high,
                    values.shape[-1] - int(counts[row, place]),
                    metric.info,
                    drawn if has_effects else "queries",
                    None if given is None else tuple(given[row, place].tolist()),
                    influences.select((row, place)),
                )
    return results
