"""How well an embedding can agree with judgements at most, as a sentence of an evaluation's verdict."""

from cml.data.dataset_info import DatasetInfo
from cml.retrieval.results import Evaluation


def with_ceiling(evaluation: Evaluation, info: DatasetInfo) -> Evaluation:
    """Add the ceiling that repeated judgements set, where the dataset has one.

    Args:
        evaluation: The evaluation.
        info: The dataset's info, whose details may hold the ceiling.

    Returns:
        The evaluation; its verdict says the ceiling.
    """
    judgements = info.details.get("judgements")
    if not isinstance(judgements, dict):
        return evaluation
    ceiling = judgements.get("ceiling")
    if not isinstance(ceiling, float | int) or isinstance(ceiling, bool):
        return evaluation
    measure = "triplet_agreement" if judgements.get("kind") == "triplets" else "pair_spearman"
    sentence = f"By the judgements that were repeated, {measure} can reach {ceiling:.2f} at most."
    return evaluation.extend_verdict(sentence)
