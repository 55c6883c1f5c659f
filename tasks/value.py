"""Labels that are a number or a vector: angles, ages, scores.

Command: cml train value --data DIR --out RUN
Expected time: about an hour on 2 cores (1,000 batches of 150 images, 40 images a second). With ``--freeze-backbone
--steps 300``: 5 s once the images have been embedded.
Expected score: with that head, on 640 steering angles of a Donkeycar tub, 3 seeds: mean label distance@10 of .197 +-
.021 (binary triplets .210 +- .018, frozen features .358, oracle .041), nDCG@100 of .935 +- .005.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cml.errors import DataError
from cml.registry import Choice
from cml.task import Task
from cml.tasks import main
from cml.tasks.baselines import variants
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo

RECIPE = TrainConfig(label_distance="dataset")  # what dataset.json says, or else euclidean
_KNOWN = ("boxes", "circular", "cosine", "euclidean", "haversine", "place", "rotation")  # none opens a file


def label_distance(recipe: TrainConfig, info: DatasetInfo) -> str:
    """The recipe's choice; ``dataset`` is what dataset.json has under details.label_distance, or else euclidean.

    Raises:
        DataError: dataset.json names a label distance that is not one of numbers.
    """
    if recipe.label_distance != "dataset":
        return recipe.label_distance
    text = info.details.get("label_distance", "euclidean")
    if not isinstance(text, str) or Choice.parse(text).name not in _KNOWN:
        raise DataError(
            f"dataset.json of {info.name!r} should name under details.label_distance one of {', '.join(_KNOWN)}. "
            f"Got {text!r} instead; choose one with --label-distance."
        )
    return text


def report(unit: str, info: DatasetInfo) -> tuple[float, str]:
    """Distances on the globe are reported in kilometres, others as they are."""
    return (1e-3, "km") if unit == "m" else (1.0, unit)


def describe(label: Any, info: DatasetInfo) -> str:  # noqa: ANN401 - a label of any form
    """The number, or the vector's numbers."""
    numbers = label if isinstance(label, list) else [label]
    return ", ".join(f"{number:.3g}" for number in numbers)


def draw(image: Image, label: Any, info: DatasetInfo) -> Image:  # noqa: ANN401 - a label of any form
    """The picture as it is: a number has no place in it; it is said below."""
    return image.copy()


TASK = Task(
    name="value",
    summary="numbers and vectors: ages, scores, angles, rotations, places",
    recipe=RECIPE,
    draw=draw,
    describe=describe,
    variants=variants(paper_exponent=2.0),
    label_distance=label_distance,
    report=report,
    sample="heads",
)

if __name__ == "__main__":
    main("value")
