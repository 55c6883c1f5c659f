"""Labels that are a number or a vector: angles, ages, scores.

Command: cml train value --data DIR --out RUN
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cml.training.config import TrainConfig
from tasks import Task

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo

RECIPE = TrainConfig()

# The baselines' margins and the threshold's quantile are the best of a small grid on the real sets of the README; every
# variant sees the same network, steps and, unless its name says otherwise, random batches with all items as anchors.
# The published loss takes the square of the label distance; label distances here are not squared, hence the exponent.
PAPER = "log-ratio(weights=uniform, label_exponent=2.0, floor_quantile=0.0, normalize=False)"


def describe(label: Any, info: DatasetInfo) -> str:  # noqa: ANN401 - a label of any form
    """The number, or the vector's numbers."""
    numbers = label if isinstance(label, list) else [label]
    return ", ".join(f"{number:.3g}" for number in numbers)


def draw(image: Image, label: Any, info: DatasetInfo) -> Image:  # noqa: ANN401 - a label of any form
    """The picture as it is: a number has no place in it; it is said below."""
    return image.copy()


TASK = Task(
    name="value",
    summary="numbers and vectors: angles, ages, scores",
    recipe=RECIPE,
    draw=draw,
    describe=describe,
    variants={
        "log-ratio": {},
        "log-ratio, uniform weights": {"loss": "log-ratio(weights=uniform)"},
        "log-ratio, grouped lists": {"sampler": "grouped"},
        "log-ratio, the paper's": {"loss": PAPER, "sampler": "dense"},
        "dense triplet": {"loss": "dense-triplet(margin=0.1)"},
        "binary triplet, threshold": {"loss": "binary-triplet(rule=threshold, quantile=0.2, margin=0.4)"},
        "binary triplet, nearest": {"loss": "binary-triplet(rule=nearest, k=5)", "sampler": "binary"},
    },
)
