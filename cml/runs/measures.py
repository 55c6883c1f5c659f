"""Which measures suit which labels: of classes Recall@K, of all others label distance, nDCG, Hit@K, correlations .."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cml.distances.classes import Classes
from cml.distances.label_distance import LabelDistance, Labels
from cml.errors import UserError
from cml.processes.bar import Bar
from cml.retrieval.evaluation import HIT_KS, NDCG_KS, Evaluation, Ranker, evaluate
from cml.retrieval.results import largest_k

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

EMBEDDING = "embedding"  # the trained model's row
RECALL_KS = (1, 2, 4, 8)  # where the dataset says none: those of CUB-200-2011 and Cars-196
WITHIN_KS = (1, 5, 10, 20)  # those of place recognition


def cut_row(dimension: int) -> str:
    """The row of the trained model's embedding cut to its first numbers."""
    return f"{EMBEDDING}, first {dimension}"


def measured(
    rankers: Mapping[str, Ranker],
    distance: LabelDistance,
    query: Labels,
    gallery: Labels,
    *,
    same_items: bool,
    recall_ks: Sequence[int] = (),
    recall_within: float = 0.0,
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
        recall_ks: K of Recall@K, the usual ones when not given; those beyond a quarter of the gallery are left out.
        recall_within: The label distance up to which an item is relevant to Recall@K; 0 measures it of classes alone.
        count_lone: See ``cml.retrieval.evaluation.evaluate``.
        gain: Gain of nDCG.
        seed: Of the bootstrap.
        oracle: Whether to add the row of the label distance itself.
        ranks: The processes that share the work; None for this one alone.

    Raises:
        UserError: ``recall_within`` for labels that are classes.
    """
    classes = isinstance(distance, Classes)
    recalls = usable_recall_ks(distance, recall_ks, len(gallery) - same_items, recall_within)
    with Bar(total=len(query), desc="evaluate", unit="query", disable=ranks is not None and not ranks.first) as bar:
        return evaluate(
            rankers,
            distance,
            query,
            gallery,
            ndcg_ks=() if classes else NDCG_KS,
            hit_ks=() if classes else HIT_KS,
            correlation=not classes,
            recall_ks=recalls,
            recall_within=recall_within,
            count_lone=count_lone,
            same_items=same_items,
            gain=gain,
            seed=seed,
            oracle=oracle,
            progress=bar.update,
            ranks=ranks,
        )


def usable_recall_ks(distance: LabelDistance, ks: Sequence[int], gallery: int, within: float = 0.0) -> tuple[int, ...]:
    """Those K of Recall@K that tell in a gallery of that size, at least 1; none for labels without what is relevant.

    Args:
        distance: The label distance.
        ks: The K; none for the usual ones.
        gallery: Items in the gallery.
        within: The label distance up to which an item is relevant, where labels are no classes; 0 for none.

    Raises:
        UserError: ``within`` is given for classes.
    """
    classes = isinstance(distance, Classes)
    if classes and within:
        raise UserError(f"For Recall@K of classes an item must have the query's: leave recall_within={within} out.")
    if not classes and not within:
        return ()
    wanted = ks or (RECALL_KS if classes else WITHIN_KS)
    return tuple(k for k in wanted if k <= largest_k(gallery)) or (1,)
