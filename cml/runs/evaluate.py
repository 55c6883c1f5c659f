"""How well a run retrieves: its embedding beside oracle, random and frozen features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cml.errors import DataError

if TYPE_CHECKING:
    from cml.retrieval.evaluation import Evaluation
    from cml.runs.trained_run import TrainedRun

EMBEDDING = "embedding"  # the trained model's row
RECALL_KS = (1, 2, 4, 8)  # where the dataset says none: those of CUB-200-2011 and Cars-196


def evaluate_run(
    trained: TrainedRun, *, gain: str = "reciprocal", seed: int = 0, references: bool = True
) -> Evaluation:
    """Evaluate a run on its dataset's queries and gallery.

    Args:
        trained: The run.
        gain: Gain of nDCG.
        seed: Of the random ranking and the bootstrap.
        references: Add the rows that do not depend on the training: oracle, random, frozen features.
    """
    from tqdm import tqdm

    from cml.retrieval.evaluation import HIT_KS, NDCG_KS, Ranker, embedding_ranker, evaluate, random_ranker

    itself = trained.dataset.info.queries_are_gallery
    recall_ks = class_recall_ks(trained, len(trained.gallery) - itself)
    rankers: dict[str, Ranker] = {EMBEDDING: embedding_ranker(*trained.embeddings)}
    if references:
        if trained.frozen is not None:
            name, features = trained.frozen
            rankers[name] = embedding_ranker(*features)
        rankers["random"] = random_ranker(len(trained.query), len(trained.gallery), seed)
    silent = trained.ranks is not None and not trained.ranks.first
    with tqdm(total=len(trained.query), desc="evaluate", unit="query", disable=silent) as bar:
        evaluation = evaluate(
            rankers,
            trained.distance,
            trained.query,
            trained.gallery,
            ndcg_ks=() if recall_ks else NDCG_KS,  # of classes no order beyond "same" is known
            hit_ks=() if recall_ks else HIT_KS,
            correlation=not recall_ks,
            recall_ks=recall_ks,
            same_items=itself,
            gain=gain,
            seed=seed,
            oracle=references,
            progress=bar.update,
            ranks=trained.ranks,
        )
    return replace(evaluation, unit=trained.unit).reported(*trained.report)


def class_recall_ks(trained: TrainedRun, gallery: int) -> tuple[int, ...]:
    """The K of Recall@K where labels are classes: the dataset's published ones, up to the gallery's size; else none.

    Raises:
        DataError: dataset.json lists something else.
    """
    from cml.distances.classes import Classes

    if not isinstance(trained.distance, Classes):
        return ()
    ks = trained.dataset.info.details.get("recall_ks", RECALL_KS)
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        raise DataError(
            f"dataset.json of {trained.dataset.info.name!r}: details.recall_ks should list whole numbers of at least "
            f"1. Got {ks!r} instead."
        )
    return tuple(k for k in ks if k <= gallery) or (1,)
