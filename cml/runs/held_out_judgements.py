"""What was held out of a dataset of judgements, in a sentence: items, or judgements of items that are trained on."""

from cml.data.dataset_info import DatasetInfo


def describe_held_out(info: DatasetInfo) -> str:
    """Say what an evaluation on the queries of a dataset measures.

    Args:
        info: The dataset's info.

    Returns:
        A sentence; "" where the labels are no judgements.
    """
    if not isinstance(info.details.get("judgements"), dict):
        return ""
    if info.queries_are_known:
        return "Judgements were held out, not items: this measures new judgements of known items."
    return "Items were held out with all their judgements: this measures new items."
