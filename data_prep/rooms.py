"""The drawn rooms of cml.data_prep.drawn.rooms.rooms as a prepared dataset: no input, no download.

Not for: drawing, which cml.data_prep.drawn.rooms.rooms does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.data_prep.drawn.rooms.view import layout_type
from cml.data_prep.layout_masks import DETAILS
from cml.data_prep.source import made_with
from cml.errors import UserError


@dataclass(frozen=True)
class Rooms:
    """Drawn furnished rooms with exact masks of front, left and right wall, floor and ceiling.

    Command: cml prepare rooms --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs in their windows and frames are scikit-learn's sample images
    (CC BY).
    """

    count: int = 3000
    """How many rooms: two thirds for training, a twelfth are queries, the others the gallery."""
    size: int = 64
    """Side of the square images in pixels."""
    seed: int = 0
    """Another seed draws other rooms."""
    workers: int = 1
    """Processes to draw in; the pictures do not depend on it."""

    def __post_init__(self) -> None:
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``. A drawn room is never bad."""
        from cml.data_prep.drawn.rooms.rooms import draw_rooms

        origin = made_with(self, revision=1, without=["workers"])
        if (done := already_prepared(out, origin)) is not None:
            return done
        rooms = draw_rooms(self.count, size=self.size, seed=self.seed, workers=self.workers)
        info = DatasetInfo(
            name="rooms",
            task="layout",
            label_column="layout_file_name",
            label_unit="id of a surface",
            frame="a mask as large as its image",
            source="drawn by cml.data_prep.drawn.rooms.rooms",
            licence="drawings: as cml; photographs in windows and frames: scikit-learn's sample images, CC BY",
            details={**DETAILS, "image_size": [self.size, self.size]},
            made_with=origin,
        )
        train, query = self.count * 2 // 3, self.count // 12
        items = (
            Item(
                item_id=f"{number:05d}",
                role="train" if number < train else "query" if number < train + query else "gallery",
                image=Image.fromarray(image),
                label=Image.fromarray(mask),
                quality=None,
                extra={"layout_type": layout_type(mask)},
            )
            for number, (image, mask) in enumerate(zip(rooms.images, rooms.masks, strict=True))
        )
        return write_dataset(out, info, items, total=self.count)
