"""The validation score: 1 - Spearman's rho between embedding and label distances of held-out training items."""

from typing import Any

import numpy as np

from cml.array_types import Int32
from cml.errors import UserError
from cml.processes.ranks import Ranks
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.own_column import mask_own_column
from cml.training.training_data import TrainingData


def label_order(data: TrainingData) -> Int32:
    """Rank the held-out items around each of them by label distance.

    Args:
        data: N held-out items.

    Returns:
        (N, N) the dense rank of each label distance in its row; -1 for the item itself and for incomparable ones.

    Raises:
        UserError: No item has others at different distances.
    """
    from cml.retrieval.rank_correlation import dense_ranks

    distances = data.distance.pairwise(data.labels, data.labels)
    mask_own_column(distances, slice(0, len(distances)))
    order = dense_ranks(distances)
    if not (order > 0).any():
        if data.distance.is_partial:
            raise UserError(
                "Validation ranks held-out items by their label distances, and too few of these are known: judged "
                "pairs have few, and judged triplets none. Set evaluate_every to 0."
            )
        raise UserError(
            f"The labels of the {len(order)} items held out for validation cannot be ranked: all are equally far from "
            "each other, or not comparable. Raise validation_fraction, shuffle the items, or set evaluate_every to 0."
        )
    return order


def held_out_score(network: Any, data: TrainingData, *, order: Int32, ranks: Ranks) -> float:  # noqa: ANN401
    """Score a network by 1 - Spearman's rho, each held-out item a query for all the others.

    Whole rankings also work with few items. A query whose embedding is equally far from all others counts as
    uncorrelated.

    Args:
        network: The network, in evaluation mode: a model, or its head on features.
        data: N held-out items.
        order: (N, N) from ``label_order``.
        ranks: The processes that share the work, all of which call this.

    Returns:
        The mean over queries, in 0..2; lower is better.
    """
    from cml.retrieval.rank_correlation import rank_correlations

    embeddings = ranks.compute_rows(len(data), lambda rows: network.embed(data.inputs.subset(rows)))
    scores = embedding_ranker(embeddings, embeddings)(slice(0, len(embeddings)))  # (N, N)
    rho = rank_correlations(scores, order)[1][order.max(axis=1) > 0]
    return float(1 - np.nan_to_num(rho).mean())
