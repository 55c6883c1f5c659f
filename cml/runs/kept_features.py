"""That a tuned model is the frozen features, as a sentence of an evaluation's verdict."""

from cml.retrieval.results import Evaluation
from cml.training.tune import Tuning


def with_kept_features(evaluation: Evaluation, tuning: Tuning | None) -> Evaluation:
    """Say that nothing was trained, where tuning kept the features.

    Args:
        evaluation: The evaluation.
        tuning: What was chosen; None if the model was trained in steps.

    Returns:
        The evaluation; where features were kept, its verdict says in what form.
    """
    if tuning is None or not tuning.keeps_features:
        return evaluation
    sentence = f"The model is the {tuning.frozen}: tune kept them, and nothing was trained."
    return evaluation.extend_verdict(sentence)
