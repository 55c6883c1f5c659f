"""The rows without trials and seeds, which follow from a set and a backbone: oracle, random, frozen and what is fitted.

Fitted are ridge regressions of the labels, or of their classical MDS, and the embedding that ``tune`` chooses on
training items.
"""

from collections.abc import Callable, Mapping

from cml.bench.computing import Fitted, fit_label_mds, fit_nothing, fit_ridge_of_labels, fit_with_tune
from cml.bench.scores import Ranks
from cml.bench.sets import BenchSet
from cml.bench.suite import NO_BACKBONE, Suite
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.random_row import random_ranker
from cml.retrieval.ranker import Ranker
from cml.training.config import TrainConfig

FITTED_ROWS: Mapping[str, Callable[[BenchSet, TrainConfig], Fitted]] = {
    "label-mds": fit_label_mds,
    "ridge": fit_ridge_of_labels,
    "tune": fit_with_tune,
}


def fixed_row_config(rules: Suite, track: str, backbone: str = "") -> TrainConfig:
    """Return the options of the rows that use features.

    Args:
        rules: The suite.
        track: "A" or "B".
        backbone: The backbone of the track; "" for that of the suite.

    Returns:
        Those of the track. Where its network has no published weights, those of the suite's heads. Vectors need none.
    """
    config = rules.config(track, backbone)
    return rules.heads if config.weights == "none" and config.backbone != NO_BACKBONE else config


def fixed_row_ranker(method: str, data: BenchSet, config: TrainConfig) -> tuple[Ranker, float]:
    """Return the ranker of the test items of a row without trials.

    Args:
        method: Name of the row.
        data: The set.
        config: The options, of which the backbone, its weights and the size of its images matter.

    Returns:
        The ranker, and the seconds of its training.

    Raises:
        UserError: the backbone or its weights are missing.
    """
    query, gallery = data.test(0, 0)
    if method == "oracle":
        return data.test_distances.__getitem__, 0.0
    if method == "random":
        return random_ranker(len(query), len(gallery)), 0.0
    fitted = FITTED_ROWS.get(method, fit_nothing)(data, config)
    return embedding_ranker(fitted.embed(query), fitted.embed(gallery)), fitted.seconds


def rank_fixed_row(method: str, data: BenchSet, config: TrainConfig) -> tuple[Ranks, float]:
    """Rank the test items by a row without trials, see ``fixed_row_ranker``.

    Args:
        method: Name of the row.
        data: The set.
        config: The options.

    Returns:
        The ranks of one run, and the seconds of its training.

    Raises:
        UserError: the backbone or its weights are missing.
    """
    ranker, seconds = fixed_row_ranker(method, data, config)
    queries, gallery = data.test_distances.shape
    return Ranks.from_rankers([ranker], queries, gallery), seconds
