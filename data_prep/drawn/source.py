"""Drawn people, heads, rooms, scenes and things as prepared datasets: no input, no download."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from cml.data.prepared_writer import Item
from cml.data_prep.class_labels import protocol
from cml.data_prep.layout_masks import DETAILS, MASK_FRAME, layout_type
from cml.data_prep.source import Content, DatasetSource, made_with
from cml.errors import UserError


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

    licence = "drawings: as cml; photographs behind them: scikit-learn's sample images, CC BY"

    def __post_init__(self) -> None:
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")
        if self.train is not None and not 1 <= self.train <= self.count - 4:
            what = f"at least 4 of the {self.count} pictures for testing"
            raise UserError(f"'train' should leave {what}. Got {self.train} instead.")

    def _origin(self) -> dict[str, Any]:
        return made_with(self, revision=1, without=["workers", *(["train"] if self.train is None else [])])

    def _content(self, skip_bad: bool) -> Content:
        drawn, train = self._draw(), self._training
        query = self.count // 12 if self.train is None else (self.count - train) // 4
        if drawn.details.get("gallery") == "queries":
            query = self.count - train
        ids = (f"{number:05d}" for number in range(self.count))
        roles = itertools.chain(["train"] * train, ["query"] * query, itertools.repeat("gallery"))
        images, lossless = map(Image.fromarray, drawn.images), itertools.repeat(None)
        items = map(Item, ids, roles, images, drawn.labels, lossless, drawn.extras)
        name = type(self).__name__.lower()
        about = {"source": f"drawn by cml.data_prep.drawn.{name}.{name}"}
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

    task = "pose"
    frame = "pixels of the image: x to the right, y down, 0 at the outer edge of the first pixel"

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

    task = "value"
    label_unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the camera: x to the right, y down, z away from the camera"

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

    task = "layout"
    frame = MASK_FRAME
    licence = "drawings: as cml; photographs in windows and frames: scikit-learn's sample images, CC BY"

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

    task = "caption"

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

    task = "classes"

    def _draw(self) -> _Drawing:
        from cml.data_prep.drawn.scenes.scenes import TEST, TRAINING, draw_singles

        halves = ((self._training, TRAINING), (self.count - self._training, TEST))
        drawn = [self._drawn(draw_singles, count, classes) for count, classes in halves]
        images, classes = (itertools.chain(*parts) for parts in zip(*drawn, strict=True))
        return _Drawing(images, classes, protocol(1, 2, 4, 8))
