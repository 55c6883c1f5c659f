"""Drawn people, heads, rooms, scenes and things as prepared datasets: no input, no download."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from cml.data.prepared_writer import Item
from cml.data_prep.class_labels import Protocol
from cml.data_prep.layout_masks import DETAILS, MASK_FRAME, layout_type
from cml.data_prep.source import Content, DatasetSource, made_with
from cml.errors import UserError

_LICENCE = "drawings: as cml; photographs {}: scikit-learn's sample images, CC BY"


class _Drawing(NamedTuple):
    images: Iterable[Any]
    labels: Iterable[Any]
    details: Mapping[str, Any]  # what dataset.json says beside
    extras: Iterable[Mapping[str, Any]] = itertools.repeat({})


@dataclass(frozen=True)
class _Drawn(DatasetSource):
    """The settings of what is drawn, and how it is written. A drawing is never bad."""

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

    def _origin(self) -> dict[str, Any]:
        return made_with(self, revision=1, without=["workers", *(["train"] if self.train is None else [])])

    def _content(self, skip_bad: bool, after: ExitStack) -> Content:
        drawn, train = self._draw(), self._training
        query = self.count // 12 if self.train is None else (self.count - train) // 4
        if drawn.details.get("gallery") == "queries":
            query = self.count - train
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
        about = {"source": f"drawn by cml.data_prep.drawn.{self.name}.{self.name}"}
        return Content(items, {**drawn.details, "image_size": [self.size, self.size]}, about, self.count)

    @property
    def _training(self) -> int:
        """How many pictures are for training."""
        return self.count * 2 // 3 if self.train is None else self.train

    def _draw(self) -> _Drawing:
        raise NotImplementedError

    def _drawn(self, draw: Callable[..., Any], count: int, *more: Any) -> Any:  # noqa: ANN401 - what it gives
        return draw(count, *more, size=self.size, seed=self.seed, workers=self.workers)


@dataclass(frozen=True)
class People(_Drawn):
    """Drawn people in random poses over photographs, with the 16 MPII joints.

    Command: cml prepare people --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    name = "people"
    task = "pose"
    frame = "pixels of the image: x to the right, y down, 0 at the outer edge of the first pixel"
    licence = _LICENCE.format("behind them")

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.people.people import JOINTS, draw_people

        images, keypoints = self._drawn(draw_people, self.count)
        return _Drawing(images, keypoints.astype(float).round(2), {"joints": list(JOINTS)})


@dataclass(frozen=True)
class Heads(_Drawn):
    """Drawn heads, turned any way round over photographs, with their exact rotations.

    Command: cml prepare heads --out DIR

    Input: none; every picture follows from the seed. Labels are quaternions, compared by the angle between two
    rotations.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    name = "heads"
    task = "value"
    label_unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the camera: x to the right, y down, z away from the camera"
    licence = _LICENCE.format("behind them")

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.heads.heads import draw_heads

        images, rotations = self._drawn(draw_heads, self.count)
        return _Drawing(images, rotations.round(6).tolist(), {"label_distance": "rotation"})


@dataclass(frozen=True)
class Rooms(_Drawn):
    """Drawn furnished rooms with exact masks of front, left and right wall, floor and ceiling.

    Command: cml prepare rooms --out DIR

    Input: none; every picture follows from the seed.

    Licence: the drawings are free; the two photographs in their windows and frames are scikit-learn's sample images
    (CC BY).
    """

    name = "rooms"
    task = "layout"
    frame = MASK_FRAME
    licence = _LICENCE.format("in windows and frames")

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.rooms.rooms import draw_rooms

        images, masks = self._drawn(draw_rooms, self.count)
        types = ({"layout_type": layout_type(mask)} for mask in masks)
        return _Drawing(images, map(Image.fromarray, masks), DETAILS, types)


@dataclass(frozen=True)
class Scenes(_Drawn):
    """Drawn scenes of two to five things over photographs, with five captions each.

    Command: cml prepare scenes --out DIR

    Input: none; every picture and caption follows from the seed. dataset.json says that the captions' word vectors come
    with cml.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    name = "scenes"
    task = "caption"
    licence = _LICENCE.format("behind them")

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.scenes.scenes import draw_scenes

        images, captions, _ = self._drawn(draw_scenes, self.count)
        return _Drawing(images, map(list, captions), {"word_vectors": "scene-words"})


@dataclass(frozen=True)
class Things(_Drawn):
    """Drawn things over photographs, one in each picture, as classes such as "red ball".

    Command: cml prepare things --out DIR

    Input: none; every picture follows from the seed. A class is a kind of thing in a colour. Half of the classes are
    for training and the others for testing, where every image is a query that is searched among all others; Recall@1,
    2, 4, 8.

    Licence: the drawings are free; the two photographs behind them are scikit-learn's sample images (CC BY).
    """

    name = "things"
    task = "classes"
    licence = _LICENCE.format("behind them")

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.scenes.scenes import TEST, TRAINING, draw_singles

        halves = ((self._training, TRAINING), (self.count - self._training, TEST))
        drawn = [self._drawn(draw_singles, count, classes) for count, classes in halves]
        images, classes = (itertools.chain(*parts) for parts in zip(*drawn, strict=True))
        return _Drawing(images, classes, Protocol((1, 2, 4, 8)).details())
