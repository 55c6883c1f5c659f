"""The losses, samplers and settings that ``cml compare`` sets beside log-ratio in every task of graded labels."""

from collections.abc import Mapping
from typing import Any

OURS = "log-ratio"
OF_LABEL = "that of the label"  # a dimension
COMPARED = (
    OURS,
    "dense triplet",
    "binary triplet, threshold",
    "rank-n-contrast",
    "cosent",
    "h-ap",
    "regression",
    "tune",
)
"""What ``cml compare`` trains unless it is told: the losses for graded labels that people know, and no loss at all."""


def variants(
    # power of the task's label distance that the published loss takes: 2 where it takes the squared L2 distance and the
    # task's is not squared (poses, numbers), 1 where it takes the task's as it is
    paper_exponent: float = 1.0,
) -> Mapping[str, Mapping[str, Any]]:
    """What ``cml compare`` trains against each other, for every task: name to the options that differ from its recipe.

    Unless its name says otherwise, a variant sees random batches with every item as an anchor. Margins and the
    threshold's quantile are the best of a small grid on real sets (steering angles, sports poses), so that no baseline
    is held back.
    """
    published = published_log_ratio(paper_exponent)
    return {
        # cml's default: rank weights, automatic exponent, floor, equal labels at half of it, normalised
        OURS: {},
        "log-ratio, uniform weights": {"loss": "log-ratio(weights=uniform)"},
        # the published loss, on all triplets of a batch
        "log-ratio, plain": {"loss": published},
        # the published loss on the published lists: one anchor, its 5 nearest, random others
        "log-ratio, the paper's": {"loss": published, "sampler": "dense"},
        "dense triplet": {"loss": "dense-triplet(margin=0.3)"},
        "binary triplet, threshold": {"loss": "binary-triplet(rule=threshold, quantile=0.2, margin=0.4)"},
        # the published baseline's lists: one anchor, 5 of its 30 nearest, the rest from outside them
        "binary triplet, nearest": {"loss": "binary-triplet(rule=nearest, k=5)", "sampler": "binary"},
        "rank-n-contrast": {"loss": "rank-n-contrast"},
        "cosent": {"loss": "cosent"},
        "h-ap": {"loss": "h-ap"},
        # these have a dimension of their own: a prediction of the label vector, and the head that tune chooses
        "regression": {"loss": "regression", "dimension": OF_LABEL},
        "tune": {"tune": True},
    }


def published_log_ratio(
    label_exponent: float,  # power of the label distance, as ``LogRatioLoss.paper`` takes it
) -> str:
    """Name the published log-ratio loss, ``LogRatioLoss.paper``, as the command line takes it."""
    return (
        f"log-ratio(weights=uniform, label_exponent={label_exponent}, floor_quantile=0.0, normalize=False, "
        "published_offsets=True)"
    )
