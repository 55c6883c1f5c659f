"""Body poses: keypoints of a person in its crop, compared joint by joint.

Command: cml train pose --data DIR --out RUN
Time: about an hour on 2 cores; with ``--freeze-backbone --steps 300``, seconds once the images have been embedded.
Expected score: that of such heads on sports poses in docs/results/photographs.md, of small networks on drawn people in
docs/results/drawn.md. The recipe has not been run on MPII.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError
from cml.registry import Choice
from cml.tasks import main
from cml.tasks.value import TASK as VALUE
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from PIL.Image import Image

RECIPE = TrainConfig(
    # Root mean squared distance of the shared joints, in pixels of the crop: a unit that tables can be read in. The
    # exponent that the loss fits makes the square of it the same loss.
    label_distance="keypoints(squared=False)",
    # The authors store 288 px crops and show the network a 224 px box, its side +-12 px and its place +-7 px.
    crop=224 / 288,
    scale_jitter=12 / 288,
    shift_jitter=7 / 288,
    flip="list",
)

# Bones by the joints' names; a dataset's order and choice of joints decides which of them exist.
BONES = (
    *(("r_ankle", "r_knee"), ("r_knee", "r_hip"), ("l_ankle", "l_knee"), ("l_knee", "l_hip"), ("r_hip", "l_hip")),
    *(("r_hip", "r_shoulder"), ("l_hip", "l_shoulder"), ("r_shoulder", "l_shoulder")),
    *(("r_shoulder", "r_elbow"), ("r_elbow", "r_wrist"), ("l_shoulder", "l_elbow"), ("l_elbow", "l_wrist")),
    *(("thorax", "upper_neck"), ("upper_neck", "head_top"), ("neck", "head_top")),
    *(("l_eye", "nose"), ("r_eye", "nose"), ("l_eye", "l_ear"), ("r_eye", "r_ear")),
    *(("l_ear", "l_shoulder"), ("r_ear", "r_shoulder")),
)


def joints(info: DatasetInfo) -> list[str]:
    """Read the names of a dataset's joints."""
    names = info.details.get("joints")
    if not isinstance(names, Sequence) or isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise DataError(f"dataset.json of {info.name!r} must list the joints' names under details.joints.")
    return list(names)


def label_distance(recipe: TrainConfig, info: DatasetInfo) -> str:
    """Complete the recipe's label distance: a normalisation by torso length needs the joints of the torso."""
    choice = Choice.parse(recipe.label_distance)
    if "torso" not in str(choice.settings.get("normalization")) or "torso" in choice.settings:
        return recipe.label_distance
    names = joints(info)
    hips = tuple(names.index(name) for name in ("r_hip", "l_hip"))
    shoulders = tuple(names.index(name) for name in ("r_shoulder", "l_shoulder"))
    return str(Choice(choice.name, {**choice.settings, "torso": (hips, shoulders)}))


def mirror(
    label: list[list[float]],  # keypoints of J joints, (x, y, visible) each, in pixels
    info: DatasetInfo,
) -> list[list[float]]:
    """Mirror keypoints: x counted from the other side, left and right joints exchanged."""
    names, width = joints(info), info.details["image_size"][1]
    swapped = {"r_": "l_", "l_": "r_"}
    order = [names.index(swapped.get(name[:2], name[:2]) + name[2:]) for name in names]
    return [[width - label[other][0], *label[other][1:]] for other in order]


def draw(
    image: "Image",
    label: list[list[float]],  # keypoints of J joints, (x, y, visible) each, in pixels of the stored image
    info: DatasetInfo,
) -> "Image":
    """Draw the skeleton on the picture."""
    from cml.reporting.drawing import draw_skeleton

    names = joints(info)
    scale = image.width / info.details["image_size"][1]
    points = [[x * scale, y * scale, visible] for x, y, visible in label]
    limbs = [(names.index(a), names.index(b)) for a, b in BONES if a in names and b in names]
    left, right = ([index for index, name in enumerate(names) if name.startswith(side)] for side in ("l_", "r_"))
    return draw_skeleton(image, points, limbs, left=left, right=right)


def report(unit: str, info: DatasetInfo) -> tuple[float, str]:
    """Report pixels of a 288 px crop as those of the 224 px box that the network sees, as the paper's code does."""
    if unit == "px" and list(info.details.get("image_size", ())) == [288, 288]:
        return 224 / 288, "px of the 224 px box"
    return 1.0, unit


TASK = replace(
    VALUE,
    name="pose",
    summary="body poses: keypoints of a person",
    recipe=RECIPE,
    draw=draw,
    describe=lambda label, info: "",  # the skeleton says it
    label_distance=label_distance,
    mirror=mirror,
    report=report,
    sample="people",
)

if __name__ == "__main__":
    main("pose")
