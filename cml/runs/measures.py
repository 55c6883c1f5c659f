"""Which measures suit which labels: of classes Recall@K, of all others label distance, nDCG, Hit@K and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cml.distances.classes import Classes
from cml.distances.label_distance import LabelDistance, Labels
from cml.processes.bar import Bar
from cml.retrieval.evaluation import HIT_KS, NDCG_KS, Evaluation, Ranker, evaluate
from cml.retrieval.results import largest_k

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

EMBEDDING = "embedding"  # the trained model's row
RECALL_KS = (1, 2, 4, 8)  # where the dataset says none: those of CUB-200-2011 and Cars-196


def measured(
    rankers: Mapping[str, Ranker],
    distance: LabelDistance,
    query: Labels,
    gallery: Labels,
    *,
    same_items: bool,
    recall_ks: Sequence[int] = RECALL_KS,
    count_lone: bool = False,
    gain: str = "reciprocal",
    seed: int = 0,
    oracle: bool = True,
    ranks: Ranks | None = None,
) -> Evaluation:
    """Evaluate rankers by the measures that suit the labels, with a progress bar.

    Of classes no order beyond "same" is known: they are measured by Recall@K, MAP@R and R-precision alone.

    Args:
        rankers: Name to ranker.
        distance: The label distance.
        query: Q encoded labels.
        gallery: G encoded labels.
        same_items: The queries are the gallery; each is left out of its own ranking.
        recall_ks: K of Recall@K where labels are classes; those beyond a quarter of the gallery are left out.
        count_lone: See ``cml.retrieval.evaluation.evaluate``.
        gain: Gain of nDCG.
        seed: Of the bootstrap.
        oracle: Whether to add the row of the label distance itself.
        ranks: The processes that share the work; None for this one alone.
    """
    recalls = class_recall_ks(distance, recall_ks, len(gallery) - same_items)
    with Bar(total=len(query), desc="evaluate", unit="query", disable=ranks is not None and not ranks.first) as bar:
        return evaluate(
            rankers,
            distance,
            query,
            gallery,
            ndcg_ks=() if recalls else NDCG_KS,
            hit_ks=() if recalls else HIT_KS,
            correlation=not recalls,
            recall_ks=recalls,
            count_lone=count_lone,
            same_items=same_items,
            gain=gain,
            seed=seed,
            oracle=oracle,
            progress=bar.update,
            ranks=ranks,
        )


def class_recall_ks(distance: LabelDistance, ks: Sequence[int], gallery: int) -> tuple[int, ...]:
    """Those K of Recall@K that tell in a gallery of that size, at least 1; none where labels are no classes."""
    if not isinstance(distance, Classes):
        return ()
    return tuple(k for k in ks if k <= largest_k(gallery)) or (1,)
