"""The data source ``rooms``."""

from dataclasses import dataclass

from PIL import Image

from cml.data_prep.layout_masks import DETAILS, MASK_FRAME
from cml.data_prep.layout_types import layout_type
from cml.data_prep.synthetic.synthetic_source import Drawing, SyntheticSource


@dataclass(frozen=True)
class Rooms(SyntheticSource):
    """Drawn, furnished rooms with exact masks of front, left and right wall, floor and ceiling.

    Command: cml prepare rooms --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs in their windows and frames are scikit-learn's sample images
    (CC BY).
    """

    task = "layout"
    frame = MASK_FRAME
    licence = "drawings: as cml; photographs in windows and frames: scikit-learn's sample images, CC BY"

    def _draw(self) -> Drawing:
        from cml.data_prep.synthetic.rooms.rooms import draw_rooms

        images, masks = self._draw_with(draw_rooms, self.count)
        types = ({"layout_type": layout_type(mask)} for mask in masks)
        return Drawing(images, map(Image.fromarray, masks), DETAILS, types)
