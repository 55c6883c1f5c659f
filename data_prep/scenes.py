"""The drawn scenes of cml.data_prep.drawn.scenes.scenes as a prepared dataset: no input, no download.

Not for: drawing, which cml.data_prep.drawn.scenes.scenes does.
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
class Scenes:
    """Drawn scenes of two to five things over photographs, with five captions each.

    Command: cml prepare scenes --out DIR

    Input: none; every picture and caption follows from the seed. dataset.json says that the captions' word vectors come
    with cml.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    count: int = 3000
    """How many scenes: two thirds for training, a twelfth are queries, the others the gallery."""
    size: int = 64
    """Side of the square images in pixels."""
    seed: int = 0
    """Another seed draws other scenes."""
    workers: int = 1
    """Processes to draw in; the scenes do not depend on it."""

    def __post_init__(self) -> None:
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        from cml.data_prep.drawn.scenes.scenes import draw_scenes

        origin = made_with(self, revision=1, without=["workers"])
        if (done := already_prepared(out, origin)) is not None:
            return done
        scenes = draw_scenes(self.count, size=self.size, seed=self.seed, workers=self.workers)
        info = DatasetInfo(
            name="scenes",
            task="caption",
            label_column="captions",
            label_unit="captions",
            frame="",
            source="drawn by cml.data_prep.drawn.scenes.scenes",
            licence="drawings: as cml; photographs behind them: scikit-learn's sample images, CC BY",
            details={"word_vectors": "scene-words", "image_size": [self.size, self.size]},
            made_with=origin,
        )
        train, query = self.count * 2 // 3, self.count // 12
        items = (
            Item(
                item_id=f"{number:05d}",
                role="train" if number < train else "query" if number < train + query else "gallery",
                image=Image.fromarray(image),
                label=list(captions),
                quality=None,
            )
            for number, (image, captions) in enumerate(zip(scenes.images, scenes.captions, strict=True))
        )
        return write_dataset(out, info, items, total=self.count, skip_bad=skip_bad)
