"""The drawn people of cml.data_prep.drawn.people.people as a prepared dataset: no input, no download.

Not for: drawing, which cml.data_prep.drawn.people.people does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.data_prep.source import made_with
from cml.errors import UserError


@dataclass(frozen=True)
class People:
    """Drawn people in random poses over photographs, with the 16 MPII joints.

    Command: cml prepare people --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    count: int = 3000
    """How many people: two thirds for training, a twelfth are queries, the others the gallery."""
    size: int = 64
    """Side of the square images in pixels."""
    seed: int = 0
    """Another seed draws other people."""
    workers: int = 1
    """Processes to draw in; the pictures do not depend on it."""

    def __post_init__(self) -> None:
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        from cml.data_prep.drawn.people.people import JOINTS, draw_people

        origin = made_with(self, revision=1, without=["workers"])
        if (done := already_prepared(out, origin)) is not None:
            return done
        people = draw_people(self.count, size=self.size, seed=self.seed, workers=self.workers)
        info = DatasetInfo(
            name="people",
            task="pose",
            label_column="keypoints",
            label_unit="px",
            frame="pixels of the image: x to the right, y down, 0 at the outer edge of the first pixel",
            source="drawn by cml.data_prep.drawn.people.people",
            licence="drawings: as cml; photographs behind them: scikit-learn's sample images, CC BY",
            details={"joints": list(JOINTS), "image_size": [self.size, self.size]},
            made_with=origin,
        )
        train, query = self.count * 2 // 3, self.count // 12
        items = (
            Item(
                item_id=f"{number:05d}",
                role="train" if number < train else "query" if number < train + query else "gallery",
                image=Image.fromarray(image),
                label=keypoints.astype(float).round(2),
                quality=None,
            )
            for number, (image, keypoints) in enumerate(zip(people.images, people.keypoints, strict=True))
        )
        return write_dataset(out, info, items, total=self.count, skip_bad=skip_bad)
