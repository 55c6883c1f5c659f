"""The score that picks the best weights during training: on held-out training items, never on queries or gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cml.retrieval.evaluation import embedding_ranker, evaluate

if TYPE_CHECKING:
    from cml.models.embedding import EmbeddingModel
    from cml.processes.ranks import Ranks
    from cml.training.batches import TrainingData


def held_out_score(model: EmbeddingModel, data: TrainingData, *, ranks: Ranks | None = None) -> float:
    """Mean label distance@10 with every second held-out item as a query and the others as the gallery.

    Args:
        model: The model as it is now.
        data: Held-out items.
        ranks: The processes that share the work, all of which call this; None for this one alone.

    Returns:
        The mean over queries, in units of the label distance; lower is better.
    """
    if ranks is None:
        embeddings = model.embed(data.images)
    else:
        embeddings = ranks.rows(len(data), lambda rows: model.embed(data.images.subset(rows)))
    query, gallery = slice(0, None, 2), slice(1, None, 2)
    k = min(10, len(embeddings) // 2)
    result = evaluate(
        {"model": embedding_ranker(embeddings[query], embeddings[gallery])},
        data.distance,
        data.labels[query],
        data.labels[gallery],
        distance_ks=[k],
        ndcg_ks=[],
        hit_ks=[],
        correlation=False,
        bootstrap=0,
        oracle=False,
        ranks=ranks,
    )
    return result.rows["model"][f"label_distance@{k}"].mean
