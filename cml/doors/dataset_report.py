"""How the publishers of a dataset measure Recall@K, as dataset.json states it."""

import math
from collections.abc import Sequence

from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError
from cml.retrieval.results import Evaluation


def published_recall_ks(info: DatasetInfo) -> Sequence[int]:
    """The K of Recall@K that the dataset was published with; none if dataset.json lists none."""
    ks = info.details.get("recall_ks")
    if ks is None:
        return ()
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        where = f"dataset.json of {info.name!r}: details.recall_ks"
        raise DataError(f"{where} should list whole numbers of at least 1. Got {ks!r} instead.")
    return ks


def published_recall_within(info: DatasetInfo) -> float:
    """The label distance up to which the dataset's publishers count an item as relevant to Recall@K; 0 for none."""
    within = info.details.get("recall_within", 0)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within < math.inf:
        where = f"dataset.json of {info.name!r}: details.recall_within"
        raise DataError(f"{where} should be a label distance of at least 0. Got {within!r} instead.")
    return within


def describe_held_out(info: DatasetInfo) -> str:  # a sentence; "" where the labels are no judgements
    """Say what an evaluation on the queries of a dataset measures."""
    if not isinstance(info.details.get("judgements"), dict):
        return ""
    if info.queries_are_known:
        return "Judgements were held out, not items: this measures new judgements of known items."
    return "Items were held out with all their judgements: this measures new items."


def with_ceiling(evaluation: Evaluation, info: DatasetInfo) -> Evaluation:
    """Add the ceiling of all repeated judgements of a dataset to the verdict, for want of one of those evaluated."""
    judgements = info.details.get("judgements")
    if not isinstance(judgements, dict) or evaluation.ceiling is not None:
        return evaluation
    ceiling = judgements.get("ceiling")
    if not isinstance(ceiling, float | int) or isinstance(ceiling, bool):
        return evaluation
    measure = "triplet_agreement" if judgements.get("kind") == "triplets" else "pair_spearman"
    sentence = (
        f"By all judgements that were repeated, {measure} can reach {ceiling:.2f} at most; of those held out, too few "
        "were."
    )
    return evaluation.extend_verdict(sentence)
