"""Room layouts: which pixels of a photograph of a room are front, left and right wall, floor and ceiling.

Command: cml train layout --data DIR --out RUN
Time: about an hour on 2 cores; with ``--freeze-backbone --steps 300``, seconds once the images have been embedded.
Expected score: that of such heads on rooms of one home in docs/results/photographs.md, of small networks on drawn rooms
in docs/results/drawn.md. The recipe has not been run on LSUN.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.array_types import UInt8
from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError
from cml.registry import Choice
from cml.tasks import main
from cml.tasks.baselines import COMPARED, variants
from cml.tasks.value import TASK as VALUE
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from PIL.Image import Image

RECIPE = TrainConfig(
    # 1 - mIoU of masks reduced to 64 x 64 pixels: a hundredth of a step's time, off by 0.002 on real rooms.
    label_distance="layout",
    # A mirrored room is another room, whose label is known: its mask mirrored, left and right wall exchanged.
    flip="image",
    # Jitter moves the borders in the picture and not in the mask, by less than any two rooms differ: without it 2,000
    # drawn rooms are learned by heart.
    scale_jitter=0.04,
    shift_jitter=0.02,
)
COLORS = {"front": "#f0e442", "left": "#0072b2", "right": "#d55e00", "floor": "#009e73", "ceiling": "#cc79a7"}
MIRRORED = {"left": "right", "right": "left"}


def surfaces(info: DatasetInfo) -> dict[int, str]:
    """Read which surface each id of a dataset's masks stands for."""
    names = info.details.get("ids")
    is_named = isinstance(names, dict) and all(_is_id(key) and isinstance(name, str) for key, name in names.items())
    if not names or not is_named:
        raise DataError(
            f"dataset.json of {info.name!r} must name the masks' ids under details.ids, as in "
            '{"1": "front", "2": "left", "3": "right", "4": "floor", "5": "ceiling"}.'
        )
    return {int(key): name for key, name in names.items()}


def _is_id(number: object) -> bool:
    return isinstance(number, str) and number.isdecimal() and int(number) <= 255


def label_distance(
    recipe: TrainConfig,
    # the dataset's info. With ``details.ids_differ`` an id means another surface in another mask, and ids are matched
    info: DatasetInfo,
) -> str:
    """Complete the recipe's label distance: ``layout`` needs the ids that occur, and the one that is ignored."""
    choice = Choice.parse(recipe.label_distance)
    if choice.name != "layout":
        return recipe.label_distance
    settings: dict[str, Any] = {"ignore": info.details.get("ignore_id"), "largest_id": max(surfaces(info))}
    if info.details.get("ids_differ"):
        settings["matching"] = "hungarian"
    settings.update(choice.settings)
    return str(Choice(choice.name, settings))


def mirror(label: Path, info: DatasetInfo) -> UInt8:  # -> (H, W)
    """Mirror a mask, left and right wall exchanged."""
    names = surfaces(info)
    numbers = {name: number for number, name in names.items()}
    swapped = np.arange(256, dtype=np.uint8)
    for number, name in names.items():
        swapped[number] = numbers.get(MIRRORED.get(name, name), number)
    return swapped[_mask(label)[:, ::-1]]


def draw(image: "Image", label: Path, info: DatasetInfo) -> "Image":
    """Draw a mask on its picture: surfaces tinted, and their borders."""
    from cml.reporting.drawing import draw_regions

    ignored = info.details.get("ignore_id")
    colors = {number: _color(number, name) for number, name in surfaces(info).items()}
    return draw_regions(image, _mask(label), colors=colors, ignore=() if ignored is None else (ignored,), tint=0.2)


def legend(info: DatasetInfo) -> dict[str, str]:
    """Say which colour is which surface."""
    ignored = info.details.get("ignore_id")
    return {name: _color(number, name) for number, name in surfaces(info).items() if number != ignored}


def _color(number: int, name: str) -> str:
    from cml.reporting.drawing import REGIONS

    return COLORS.get(name, REGIONS[number % len(REGIONS)])


def describe(label: Path, info: DatasetInfo) -> str:
    """Put a mask in words: the surfaces in view and their shares of the picture."""
    mask, names = _mask(label), surfaces(info)
    present, counts = np.unique(mask, return_counts=True)
    shares = zip(present.tolist(), (counts / mask.size).tolist(), strict=True)
    return ", ".join(f"{names.get(number, number)} {share:.0%}" for number, share in shares)


def _mask(label: Path) -> UInt8:
    from cml.data.masks import MaskFault, read_mask

    try:
        return read_mask(label)
    except MaskFault as fault:
        raise DataError(f"The mask {label} {fault}.") from None


TASK = replace(
    VALUE,
    name="layout",
    summary="room layouts: masks of walls, floor and ceiling",
    recipe=RECIPE,
    draw=draw,
    describe=describe,
    variants=variants(paper_exponent=1.0),  # the published loss takes 1 - mIoU as it is
    compared=COMPARED,
    label_distance=label_distance,
    mirror=mirror,
    sample="rooms",
    legend=legend,
)

if __name__ == "__main__":
    main("layout")
