"""Drawn people, heads, rooms and scenes as prepared datasets: no input, no download.

Not for: drawing, which the folders beside this file do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.data_prep.layout_masks import DETAILS, layout_type
from cml.data_prep.source import made_with
from cml.errors import UserError


class _Drawing(NamedTuple):
    """What was drawn, in order, and what dataset.json says of it."""

    about: Mapping[str, Any]
    details: Mapping[str, Any]
    photographs: str  # where the photographs are to be seen
    images: Iterable[Any]
    labels: Iterable[Any]
    extras: Iterable[Mapping[str, Any]] = itertools.repeat({})


@dataclass(frozen=True)
class _Drawn:
    """The settings of what is drawn, and how it is written."""

    count: int = 3000
    """How many pictures: those for training, then the queries, which are a quarter of the others, then the gallery."""
    train: int | None = None
    """Pictures for training; two thirds of all when not given."""
    size: int = 64
    """Side of the square images in pixels."""
    seed: int = 0
    """Another seed draws other pictures."""
    workers: int = 1
    """Processes to draw in; the pictures do not depend on it."""

    def __post_init__(self) -> None:
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")
        if self.train is not None and not 1 <= self.train <= self.count - 4:
            raise UserError(
                f"'train' should leave at least 4 of the {self.count} pictures for testing. Got {self.train} instead."
            )

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``. A drawing is never bad."""
        origin = made_with(self, revision=1, without=["workers", *(["train"] if self.train is None else [])])
        if (done := already_prepared(out, origin)) is not None:
            return done
        name, drawn = type(self).__name__.lower(), self._draw()
        info = DatasetInfo(
            name=name,
            source=f"drawn by cml.data_prep.drawn.{name}.{name}",
            licence=f"drawings: as cml; photographs {drawn.photographs}: scikit-learn's sample images, CC BY",
            details={**drawn.details, "image_size": [self.size, self.size]},
            made_with=origin,
            **drawn.about,
        )
        train = self.count * 2 // 3 if self.train is None else self.train
        query = self.count // 12 if self.train is None else (self.count - train) // 4
        items = (
            Item(
                item_id=f"{number:05d}",
                role="train" if number < train else "query" if number < train + query else "gallery",
                image=Image.fromarray(image),
                label=label,
                quality=None,
                extra=extra,
            )
            for number, (image, label, extra) in enumerate(
                zip(drawn.images, drawn.labels, drawn.extras, strict=False)  # extras may go on forever
            )
        )
        return write_dataset(out, info, items, total=self.count, skip_bad=skip_bad)

    def _draw(self) -> _Drawing:
        raise NotImplementedError


@dataclass(frozen=True)
class People(_Drawn):
    """Drawn people in random poses over photographs, with the 16 MPII joints.

    Command: cml prepare people --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.people.people import JOINTS, draw_people

        people = draw_people(self.count, size=self.size, seed=self.seed, workers=self.workers)
        frame = "pixels of the image: x to the right, y down, 0 at the outer edge of the first pixel"
        about = {"task": "pose", "label_column": "keypoints", "label_unit": "px", "frame": frame}
        labels = people.keypoints.astype(float).round(2)
        return _Drawing(about, {"joints": list(JOINTS)}, "behind them", people.images, labels)


@dataclass(frozen=True)
class Heads(_Drawn):
    """Drawn heads, turned any way round over photographs, with their exact rotations.

    Command: cml prepare heads --out DIR

    Input: none; every picture follows from the seed. Labels are quaternions, compared by the angle between two
    rotations.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.heads.heads import draw_heads

        images, rotations = draw_heads(self.count, size=self.size, seed=self.seed, workers=self.workers)
        frame = "quaternion x, y, z, w from the head to the camera: x to the right, y down, z away from the camera"
        about = {"task": "value", "label_column": "value", "label_unit": "rotation", "frame": frame}
        details = {"label_distance": "rotation"}
        return _Drawing(about, details, "behind them", images, rotations.round(6).tolist())


@dataclass(frozen=True)
class Rooms(_Drawn):
    """Drawn furnished rooms with exact masks of front, left and right wall, floor and ceiling.

    Command: cml prepare rooms --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs in their windows and frames are scikit-learn's sample images
    (CC BY).
    """

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.rooms.rooms import draw_rooms

        rooms = draw_rooms(self.count, size=self.size, seed=self.seed, workers=self.workers)
        about = {
            "task": "layout",
            "label_column": "layout_file_name",
            "label_unit": "id of a surface",
            "frame": "a mask as large as its image",
        }
        types = ({"layout_type": layout_type(mask)} for mask in rooms.masks)
        return _Drawing(about, DETAILS, "in windows and frames", rooms.images, map(Image.fromarray, rooms.masks), types)


@dataclass(frozen=True)
class Scenes(_Drawn):
    """Drawn scenes of two to five things over photographs, with five captions each.

    Command: cml prepare scenes --out DIR

    Input: none; every picture and caption follows from the seed. dataset.json says that the captions' word vectors come
    with cml.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.scenes.scenes import draw_scenes

        scenes = draw_scenes(self.count, size=self.size, seed=self.seed, workers=self.workers)
        about = {"task": "caption", "label_column": "captions", "label_unit": "captions", "frame": ""}
        details = {"word_vectors": "scene-words"}
        return _Drawing(about, details, "behind them", scenes.images, map(list, scenes.captions))
