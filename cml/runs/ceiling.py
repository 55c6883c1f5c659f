"""The ceiling that a whole dataset has, as a sentence of a verdict where too few held-out judgements were repeated."""

from cml.data.dataset_info import DatasetInfo
from cml.retrieval.results import Evaluation


def with_ceiling(evaluation: Evaluation, info: DatasetInfo) -> Evaluation:
    """Add the ceiling of all repeated judgements of a dataset to the verdict, for want of one of those evaluated.

    Args:
        evaluation: The evaluation.
        info: The dataset's info, whose details may hold the ceiling.

    Returns:
        The evaluation; its verdict says the ceiling, if the evaluation has none of its own.
    """
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
