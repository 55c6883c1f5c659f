"""The base class of the drawn datasets: settings, split and items."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource, InfoTexts
from cml.data_prep.provenance import record_provenance
from cml.errors import UserError


class Drawing(NamedTuple):
    """What was drawn."""

    images: Iterable[Any]  # the pictures, each (size, size, 3) uint8 RGB
    labels: Iterable[Any]  # the label of each picture
    details: Mapping[str, Any]  # further content of dataset.json
    extras: Iterable[Mapping[str, Any]] = itertools.repeat({})  # further columns of each picture


@dataclass(frozen=True)
class SyntheticSource(DatasetSource):
    """The settings of what is drawn, and how it is written. A drawing is never bad."""

    count: int = 3000
    """Number of images: those for training, then the queries (a quarter of the rest), then the gallery."""
    train: int | None = None
    """Number of training images; by default two thirds of all."""
    size: int = 64
    """Side of the square images in pixels."""
    seed: int = 0
    """Random seed."""
    workers: int = 1
    """Number of processes that draw; the images do not depend on it."""

    licence = "drawings: as cml; photographs behind them: scikit-learn's sample images, CC BY"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 12:
            raise UserError(f"The count should be at least 12, so that every role has items. Got {self.count} instead.")
        if self.train is not None and not 1 <= self.train <= self.count - 4:
            rule = f"at least 4 of the {self.count} pictures for testing"
            raise UserError(f"'train' should leave {rule}. Got {self.train} instead.")

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, ignored=["workers", *(["train"] if self.train is None else [])])

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        drawn, train = self._draw(), self._training
        query = self.count // 12 if self.train is None else (self.count - train) // 4
        if drawn.details.get("gallery") == "queries":
            query = self.count - train
        ids = (f"{number:05d}" for number in range(self.count))
        roles = itertools.chain(["train"] * train, ["query"] * query, itertools.repeat("gallery"))
        images, lossless = map(Image.fromarray, drawn.images), itertools.repeat(None)
        items = map(Item, ids, roles, images, drawn.labels, lossless, drawn.extras)
        name = type(self).__name__.lower()
        # The path at which these drawings first lay: another text would change the fingerprints of datasets.
        texts: InfoTexts = {"source": f"drawn by cml.data_prep.drawn.{name}.{name}"}
        return Content(items, {**drawn.details, "image_size": [self.size, self.size]}, texts, self.count)

    @property
    def _training(self) -> int:
        """How many pictures are for training."""
        return self.count * 2 // 3 if self.train is None else self.train

    def _draw(self) -> Drawing:
        raise NotImplementedError

    def _draw_with(self, draw: Callable[..., Any], count: int, *more: Any) -> Any:  # noqa: ANN401 - what it gives
        return draw(count, *more, size=self.size, seed=self.seed, workers=self.workers)
