"""Labels that are a number or a vector: angles, ages, scores.

Command: cml train value --data DIR --out RUN
Time: about an hour on 2 cores; with ``--freeze-backbone --steps 300``, seconds once the images have been embedded.
Expected score: that of such heads on steering angles in docs/results/photographs.md, on solar cells, places and
rotations in docs/results/numbers_places_rotations.md.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.data.dataset_info import DatasetInfo
from cml.distances import as_label_distance
from cml.distances.composed import is_self_contained
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.task import Task
from cml.tasks import main
from cml.tasks.baselines import COMPARED, variants
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from PIL.Image import Image

_NAMES = 8  # of a set of names that are written out
RECIPE = TrainConfig(label_distance="dataset")  # what dataset.json says, or else euclidean


def label_distance(
    recipe: TrainConfig,  # the training options. Their label distance is the answer, unless it is ``dataset``
    # the dataset's info. ``dataset`` stands for its ``details.label_distance``, or else for euclidean
    info: DatasetInfo,
) -> str:
    """The label distance of a dataset of numbers."""
    if recipe.label_distance != "dataset":
        return recipe.label_distance
    text = info.details.get("label_distance", "euclidean")
    where = f"dataset.json of {info.name!r}, details.label_distance"
    mend = "choose one with --label-distance"
    try:
        allowed = isinstance(text, str) and is_self_contained(text)
    except UserError as error:
        raise DataError(f"{where}: {str(error).removesuffix('.')}; {mend}.") from None
    if not allowed:
        rule = "should be a label distance that reads nothing outside the dataset"
        raise DataError(f"{where}: {rule}. Got {text!r} instead; {mend}.")
    return str(text)


def describe(label: Any, info: DatasetInfo) -> str:  # noqa: ANN401 - a label of any form
    """Put a label in words: its numbers or names; of boxes how many of each class, of judgements how many."""
    if _distance(info) == "boxes":
        classes = Counter(box[0] for box in _boxes(label))
        return ", ".join(f"{count} {name}" for name, count in classes.items())
    if _distance(info) in ("judged-pairs", "judged-triplets"):
        return f"{len(label) - 1} judgements"
    if _distance(info) in ("dtw", "frechet"):
        return f"{len(label)} steps: {_step(label[0])} to {_step(label[-1])}"
    if isinstance(label, list) and isinstance(label[0], str):
        more = f", ... ({len(label)})" if len(label) > _NAMES else ""
        return ", ".join(label[:_NAMES]) + more
    return ", ".join(f"{number:.3g}" for number in np.ravel(label).tolist())


def draw(
    image: "Image",
    label: Any,  # noqa: ANN401 - a label of any form
    info: DatasetInfo,  # the dataset's info, whose ``details.label_distance`` says what the label is
) -> "Image":
    """Draw a label on its picture, where its kind can be drawn.

    An angle becomes an arrow on a dial (0 is up, clockwise), a rotation axes, a place a mark on a map, boxes frames.
    """
    from cml.reporting import label_marks

    name = _distance(info)
    if name == "circular" and not isinstance(label, list):
        distance: Any = as_label_distance(info.details["label_distance"])
        return label_marks.draw_dial(image, label / distance.period)
    if name == "rotation":
        from scipy.spatial.transform import Rotation

        packed = as_label_distance(info.details["label_distance"]).encode([label])
        return label_marks.draw_axes(image, Rotation.from_quat(packed.arrays["quaternions"][0]).as_matrix())
    if name in ("haversine", "place") and "metres" not in info.details["label_distance"]:
        return label_marks.draw_place(image, *label)
    if name == "boxes":
        from cml.data_prep.label_kinds import SHARES

        size = (1, 1, 1, 1) if info.frame == SHARES else image.size * 2
        boxes = ((kind, np.array(corners, float) / size) for kind, *corners in _boxes(label))
        return label_marks.draw_boxes(image, [(kind, *corners.tolist()) for kind, corners in boxes])
    return image.copy()


def _distance(info: DatasetInfo) -> str:
    """Name of the label distance that dataset.json names; "" for none."""
    text = info.details.get("label_distance", "")
    return Choice.parse(text).name if text and isinstance(text, str) else ""


def _step(step: Any) -> str:  # noqa: ANN401 - a text of numbers, or numbers
    """A step of a sequence in words."""
    numbers = step.split() if isinstance(step, str) else np.ravel(step).tolist()
    return " ".join(f"{float(number):.3g}" for number in numbers)


def _boxes(label: Sequence[Any]) -> list[Any]:
    """The boxes of a label, each a class and four numbers."""
    return [box.rsplit(maxsplit=4) if isinstance(box, str) else box for box in label]


TASK = Task(
    name="value",
    summary="numbers and vectors: ages, scores, angles, rotations, places",
    recipe=RECIPE,
    draw=draw,
    describe=describe,
    variants=variants(paper_exponent=2.0),
    compared=COMPARED,
    label_distance=label_distance,
    report=lambda unit, info: (1e-3, "km") if unit == "m" else (1.0, unit),  # of distances on the globe
    sample="heads",
)

if __name__ == "__main__":
    main("value")
