"""Labels that are a number or a vector: angles, ages, scores.

Command: cml train value --data DIR --out RUN
Expected time: about an hour on 2 cores (1,000 batches of 150 images, 40 images a second). With ``--freeze-backbone
--steps 300``: 5 s once the images have been embedded.
Expected score: with that head, on 640 steering angles of a Donkeycar tub, 3 seeds: mean label distance@10 of .197 +-
.021 (binary triplets .210 +- .018, frozen features .358, oracle .041), nDCG@100 of .935 +- .005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cml.task import Task
from cml.tasks import main
from cml.tasks.baselines import variants
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo

RECIPE = TrainConfig()


def describe(label: Any, info: DatasetInfo) -> str:  # noqa: ANN401 - a label of any form
    """The number, or the vector's numbers."""
    numbers = label if isinstance(label, list) else [label]
    return ", ".join(f"{number:.3g}" for number in numbers)


def draw(image: Image, label: Any, info: DatasetInfo) -> Image:  # noqa: ANN401 - a label of any form
    """The picture as it is: a number has no place in it; it is said below."""
    return image.copy()


TASK = Task(
    name="value",
    summary="numbers and vectors: ages, scores; with --label-distance circular also angles and hours",
    recipe=RECIPE,
    draw=draw,
    describe=describe,
    variants=variants(paper_exponent=2.0),
)

if __name__ == "__main__":
    main("value")
