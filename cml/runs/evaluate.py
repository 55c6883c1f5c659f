"""How well a run retrieves: its embedding beside oracle, random and frozen features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cml.errors import DataError, UserError
from cml.retrieval.embeddings import EMBEDDING, cut_row, measured
from cml.retrieval.evaluation import Evaluation, Ranker, embedding_ranker, random_ranker
from cml.retrieval.verdict import judged
from cml.runs import pairs as pair_file
from cml.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from cml.runs.trained_run import TrainedRun


def evaluate_run(
    trained: TrainedRun,
    *,
    gain: str = "reciprocal",
    seed: int = 0,
    count_lone: bool = False,
    recall_within: float = 0.0,
    pairs: Path | None = None,
    dimensions: Sequence[int] = (),
    references: bool = True,
) -> Evaluation:
    """Evaluate a run on its dataset's queries and gallery.

    Args:
        trained: The run.
        gain: Gain of nDCG.
        seed: Of the random ranking, the bootstrap and the order of tied items.
        count_lone: See ``cml.retrieval.evaluation.evaluate``.
        recall_within: Also measure Recall@K: an item is relevant at this label distance, as it is reported, or a
            smaller one. 0 for what dataset.json says in its details, if anything.
        pairs: File of pairs with their similarity as people see it, see ``cml.runs.pairs``; None for the dataset's own
            pairs.csv, if it has one.
        dimensions: Also cut the embedding to its first so many numbers, as they are: a row each, called by ``cut_row``.
        references: Add the rows that do not depend on the training: oracle, random, frozen features.

    Raises:
        UserError: the embedding has not as many numbers.
    """
    query, gallery = trained.embeddings
    embeddings = {EMBEDDING: trained.embeddings}
    for size in dimensions:
        if not 1 <= size <= query.shape[1]:
            raise UserError(f"'dimensions' must be in 1..{query.shape[1]}, those of the embedding. Got {size} instead.")
        if size < query.shape[1]:
            embeddings[cut_row(size)] = query[:, :size], gallery[:, :size]
    if references and trained.frozen is not None:
        embeddings |= dict([trained.frozen])
    rankers: dict[str, Ranker] = {name: embedding_ranker(*both) for name, both in embeddings.items()}
    if references:
        rankers["random"] = random_ranker(len(trained.query_labels), len(trained.gallery_labels), seed)
    evaluation = measured(
        rankers,
        trained.distance,
        trained.query_labels,
        trained.gallery_labels,
        same_items=trained.dataset.info.queries_are_gallery,
        recall_ks=published_recall_ks(trained),
        recall_within=(recall_within or published_recall_within(trained)) / trained.report[0],
        gain=gain,
        seed=seed,
        count_lone=count_lone,
        oracle=references,
        ranks=trained.ranks,
    )
    evaluation = replace(evaluation, unit=trained.unit).reported(*trained.report)
    own = trained.dataset.folder / pair_file.FILE
    if pairs is not None or own.is_file():
        evaluation = pair_file.with_pairs(evaluation, trained, embeddings, pairs or own, seed)
    log = trained.folder / "metrics.jsonl"  # which a shared model has not
    records = read_metrics(log) if log.exists() else []
    return judged(
        evaluation, EMBEDDING, [float(record["loss"]) for record in records if record.get("loss") is not None]
    )


def published_recall_ks(trained: TrainedRun) -> Sequence[int]:
    """The K of Recall@K that the dataset was published with, if any.

    Raises:
        DataError: dataset.json lists something else.
    """
    ks = trained.dataset.info.details.get("recall_ks")
    if ks is None:
        return ()
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        raise DataError(
            f"dataset.json of {trained.dataset.info.name!r}: details.recall_ks should list whole numbers of at least "
            f"1. Got {ks!r} instead."
        )
    return ks


def published_recall_within(trained: TrainedRun) -> float:
    """The label distance up to which the dataset's publishers count an item as relevant to Recall@K; 0 for none.

    Raises:
        DataError: dataset.json says something else.
    """
    within = trained.dataset.info.details.get("recall_within", 0)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within < math.inf:
        raise DataError(
            f"dataset.json of {trained.dataset.info.name!r}: details.recall_within should be a label distance of at "
            f"least 0. Got {within!r} instead."
        )
    return within
