"""Evaluation of rankings of a gallery against label distances, in blocks of queries that all rankers share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cml.distances import LabelDistance, Labels
from cml.distances.blas_threads import one_blas_thread
from cml.errors import UserError
from cml.retrieval import over_queries
from cml.retrieval.block_measures import BlockMeasures, Measures
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.metrics import Float64, Floats
from cml.retrieval.rankers import Ranker, embedding_ranker, random_ranker, ranked_columns
from cml.retrieval.results import Evaluation, Metric

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

__all__ = ["ORACLE", "Evaluation", "Metric", "Ranker", "embedding_ranker", "evaluate", "random_ranker"]

ORACLE = "oracle"
SCORE_K = 10
_FEWEST_TENTHS = 100  # queries needed for the worst tenth
_FEWEST_ROWS = 16  # a matrix product of fewer rows only waits for the gallery to be read from memory


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

    The measures are those of the log-ratio paper (Kim et al., Deep Metric Learning Beyond Binary Supervision, 2019):
    label_distance@K, ndcg@K, hit@K, and besides kendall_tau, spearman_rho and h_ap over the whole gallery. score@10 is
    (random - ours) / (random - oracle) of the mean label distances@10, with what a random ranking has in expectation;
    worst_decile@10 is the mean label distance@10 in that tenth of the labels where it is largest, from 100 queries on.
    Both take the largest K where none is 10.

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

    Raises:
        UserError: a setting is out of range, there is nothing to rank, or a ranker or the label distance gives a
            block of another shape or with NaN.
    """
    options = options or EvaluateOptions()
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
    measures = Measures.of(options).fitted(ranked)
    names = [*rankers, *([ORACLE] if oracle else [])]
    if not queries or not gallery or not names or not measures.names:
        raise UserError(
            "An evaluation needs at least one query, gallery item, ranker and measure. Got "
            f"{queries}, {gallery}, {len(names)} and {len(measures.names)} instead."
        )
    if wrong := [name for name, ranker in rankers.items() if not callable(ranker)]:
        raise UserError(
            f"The ranker {wrong[0]!r} must be a function, such as cml.retrieval.embedding_ranker(query, gallery). "
            f"Got {type(rankers[wrong[0]]).__name__} instead."
        )
    if oracle and ORACLE in rankers:
        raise UserError(f"The ranker name {ORACLE!r} is taken by the row of the label distance; choose another one.")
    k = max((k for k in measures.ks["label_distance"] if k <= SCORE_K), default=0)  # of score and worst tenth
    # the last column: whether there are ties; the last row: chance and oracle, of every query
    values = np.zeros((len(names) + 1, queries, len(measures.names) + 1))
    size = max(_FEWEST_ROWS, min(-(-queries // options.threads), options.block_bytes // (4 * gallery)))

    def measure(start: int) -> int:
        rows = slice(start, min(start + size, queries))
        distances = distance.pairwise(query_labels[rows], gallery_labels)  # (R, G)
        _check_block(distances, queries, gallery, f"label distance {distance.name!r}", rows)
        if not (least := distances.min()) >= 0:
            got = f"Got {least} for a query in {start}..{rows.stop - 1} instead."
            raise UserError(f"The label distance {distance.name!r} must be at least 0. {got}")
        if same_items:
            leave_out_itself(distances, rows)
        block = BlockMeasures(measures, distances)
        for index, ranker in enumerate(rankers.values()):
            scores = np.asarray(ranker(rows))
            _check_block(scores, queries, gallery, f"ranker {names[index]!r}", rows)
            if same_items:
                leave_out_itself(scores := scores.copy(), rows)
            columns, tied = ranked_columns(scores, block.depth, first=start, seed=options.seed)
            values[index, rows, :-1] = block.measure(scores, columns)
            values[index, rows, -1] = tied
        if oracle:
            values[-2, rows, :-1] = block.measure_oracle()
        if k:
            values[-1, rows, :2] = block.bounds(k)
        return rows.stop - start

    starts = range(0, queries, size)
    if ranks is not None:
        starts = starts[ranks.share(len(starts))]
    left, progress = queries, progress or (lambda _: None)
    # BLAS threads below these threads would only wait for each other
    with one_blas_thread(), ThreadPoolExecutor(options.threads) as pool:
        for done in pool.map(measure, starts):
            left -= done
            progress(done)
    if ranks is not None and ranks.size > 1:
        values = ranks.all_reduce_array(values)  # rows that others have measured are 0 here
        progress(left)

    ties = {name: int(row[:, -1].sum()) for name, row in zip(names, values, strict=False) if row[:, -1].any()}
    columns = dict(zip(measures.names, values[:-1, :, :-1].transpose(2, 0, 1), strict=True))  # (names, Q) each
    ours, bounds = columns.get(f"label_distance@{k}"), values[-1, :, :2].T
    ratios = np.empty((0, 2))
    if ours is not None:
        terms = np.array([over_queries.score_terms(one, *bounds) for one in ours])
        gains, reaches = terms.transpose(1, 2, 0)  # (Q, names) each
        ratios = over_queries.ratio_intervals(gains, reaches, resamples=options.bootstrap, seed=options.seed)
        whole = {f"score@{k}": over_queries.over_mean(gains, reaches).T}
        if queries >= _FEWEST_TENTHS and not measures.precision:
            parts = over_queries.label_parts(distance.label_vectors(query_labels), bounds[1])
            whole[f"worst_decile@{k}"] = np.array([over_queries.in_worst_part(one, parts) for one in ours])
        first = dict(list(columns.items())[: len(measures.ks["label_distance"])])
        columns = {**first, **whole, **columns}
    flat = np.concatenate([*columns.values()])  # (measures x names, Q)
    intervals = over_queries.mean_intervals(flat.T, resamples=options.bootstrap, seed=options.seed).reshape(
        len(columns), len(names), 2
    )
    ends = dict(zip(columns, intervals, strict=True)) | {f"score@{k}": ratios}
    table = {
        ranker: {name: _metric(name, column[row], ends[name][row]) for name, column in columns.items()}
        for row, ranker in enumerate(names)
    }
    return Evaluation(
        rows=table,
        unit=distance.unit,
        gain=options.gain,
        queries=queries,
        gallery=ranked,
        hit_neighbors=measures.hit_neighbors,
        ties=ties,
        singletons_as_misses=options.singletons_as_misses,
        recall_within=options.recall_within,
    )


def leave_out_itself(block: Floats, rows: slice) -> None:
    """Set the distance of each query in a slice to itself, in a (R, G) block, to infinity."""
    block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf


def _check_block(block: NDArray[Any], queries: int, gallery: int, what: str, rows: slice) -> None:
    if block.shape != (rows.stop - rows.start, gallery) or block.dtype.kind != "f":
        raise UserError(
            f"The {what} must give floating-point numbers for {queries} queries and {gallery} gallery items, "
            f"({queries}, {gallery}) in all, as there are labels. Got shape {block.shape}, {block.dtype} instead for "
            f"the queries {rows.start}..{rows.stop - 1}."
        )
    if np.isnan(block.max()):
        where = f"a query in {rows.start}..{rows.stop - 1}"
        raise UserError(f"The {what} gives NaN for {where}: nothing can be ranked by it.")


def _metric(name: str, per_query: Float64, interval: Float64) -> Metric:
    present = per_query[~np.isnan(per_query)]
    mean = float(present.mean()) if len(present) else float("nan")
    low, high = interval.tolist()
    return Metric(name, per_query.copy(), mean, low, high, len(per_query) - len(present))
