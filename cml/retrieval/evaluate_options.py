"""The options of an evaluation: what is measured, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cml.errors import UserError
from cml.processes.cores import CORES
from cml.retrieval.gains import GAINS
from cml.settings import check_word

DISTANCE_KS = tuple(range(1, 11))
NDCG_KS = tuple(range(10, 101, 10))
HIT_KS = (1, 5, 10)
HIT_NEIGHBORS = 50


@dataclass(frozen=True)
class EvaluateOptions:
    """Metrics of the evaluation and how they are computed.

    These are the options of ``cml.retrieval.evaluate``, ``cml.retrieval.evaluate_embeddings``, ``cml.Model.evaluate``,
    ``cml.Run.evaluate`` and ``cml evaluate``.

    Raises:
        UserError: a value is out of range, or the gain is unknown.

    Example:
        >>> EvaluateOptions(gain="rank", recall_within=25.0).recall_within
        25.0
    """

    gain: str = "reciprocal"
    """Gain of nDCG at a label distance of d: reciprocal is 1 / (1 + d), exponential is exp(-d), rank is
    1 / (1 + number of nearer items)."""
    seed: int = 0
    """Random seed of the random ranking and of the order of tied items."""
    singletons_as_misses: bool = False
    """Count a query without a relevant gallery item, such as the only item of its class, as a miss of Recall@K, as
    published code does. By default such queries are left out."""
    recall_within: float = 0.0
    """Also measure Recall@K: the fraction of queries with an item within this label distance, in the unit of the table,
    among the first K. 0 uses the value that is stored with the dataset, if any."""
    recall_ks: tuple[int, ...] = ()
    """Values of K for Recall@K. By default those that are stored with the dataset, or the usual ones: 1 2 4 8 for
    classes, 1 5 10 20 otherwise."""
    distance_ks: tuple[int, ...] = DISTANCE_KS
    """Values of K for the mean label distance. Values above a quarter of the gallery are left out, because all rankings
    score similarly there."""
    ndcg_ks: tuple[int, ...] = NDCG_KS
    """Values of K for nDCG."""
    hit_ks: tuple[int, ...] = HIT_KS
    """Values of K for Hit@K. By default Hit@K is not measured if the true nearest items are more than a tenth of the
    gallery."""
    hit_neighbors: int = HIT_NEIGHBORS
    """Number of true nearest items that Hit@K looks for."""
    whole_ranking: bool = True
    """Also compute the metrics of the whole ranking: Kendall's tau-b, Spearman's rho and H-AP."""
    ranking_sample: int = 20_000
    """Number of gallery items, drawn at random, on which the metrics of the whole ranking are computed if the gallery
    is larger. The other metrics always rank all items."""
    threads: int = CORES
    """Number of blocks of queries that are processed in parallel."""
    block_bytes: int = 4 << 20
    """Size of a block of label distances in bytes. A block has at least 16 queries. From 16,384 gallery items on, it
    has up to 128, as long as their scores take no more than 160 MB."""

    def check(self) -> None:
        """Refuse options that are out of range.

        Raises:
            UserError: one is.
        """
        check_word("gain", self.gain, GAINS)
        if not 0 <= self.recall_within < math.inf:
            raise UserError(
                f"'recall_within' must be a label distance of at least 0. Got {self.recall_within} instead."
            )
        if self.ranking_sample < 2:
            raise UserError(f"'ranking_sample' must be at least 2. Got {self.ranking_sample} instead.")
        if self.threads < 1 or self.block_bytes < 1:
            raise UserError(
                f"'threads' and 'block_bytes' must be at least 1. Got {self.threads} and {self.block_bytes} instead."
            )
