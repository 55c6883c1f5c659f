"""That a tuned model is the frozen features or the ridge regression, as a sentence of an evaluation's verdict."""

from cml.retrieval.feature_forms import VECTOR_ROWS
from cml.retrieval.label_regression import RIDGE_ROWS
from cml.retrieval.results import Evaluation
from cml.training.tune import Tuning
from cml.training.tune_candidates import FROZEN


def chosen_rows(tuning: Tuning | None) -> tuple[str, ...]:
    """Name the rows of references that a model is itself, so that a comparison with them says nothing.

    Args:
        tuning: What was chosen; None if the model was trained in steps.

    Returns:
        The name of the form of vectors that was kept, or the names of the row of the ridge regression, where that was
        taken alone.
    """
    if tuning is None:
        return ()
    if tuning.keeps_features:
        return tuple(row for frozen, row in zip(FROZEN, VECTOR_ROWS, strict=True) if frozen == tuning.frozen)
    return RIDGE_ROWS if tuning.is_ridge else ()


def with_chosen_reference(evaluation: Evaluation, tuning: Tuning | None) -> Evaluation:
    """Say that the model is a reference, where tuning kept the features or took the ridge regression alone.

    Args:
        evaluation: The evaluation.
        tuning: What was chosen; None if the model was trained in steps.

    Returns:
        The evaluation; its verdict says which reference the model is, if it is one.
    """
    if tuning is None:
        return evaluation
    if tuning.keeps_features:
        return evaluation.extend_verdict(f"The model is the {tuning.frozen}: tune kept them, and nothing was trained.")
    if tuning.is_ridge:
        return evaluation.extend_verdict("The chosen head is the ridge regression: tune took it alone.")
    return evaluation
