"""What reports on a dataset show: published cutoffs, the ceiling of its judgements, pictures of its items."""

import contextlib
import math
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from cml.data.dataset_info import DatasetInfo
from cml.data.encode_image import read_picture
from cml.data.prepared import PreparedDataset, Split
from cml.errors import DataError
from cml.reporting.drawing import draw_vector, draw_words
from cml.reporting.retrieval_report import Picture
from cml.retrieval.results import Evaluation
from cml.task import Task


def published_recall_ks(info: DatasetInfo) -> Sequence[int]:
    """The K of Recall@K that the dataset was published with; none if dataset.json lists none."""
    ks = info.details.get("recall_ks")
    if ks is None:
        return ()
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        where = f"dataset.json of {info.name!r}: details.recall_ks"
        raise DataError(f"{where} should list whole numbers of at least 1. Got {ks!r} instead.")
    return ks


def published_recall_within(info: DatasetInfo) -> float:
    """The label distance up to which the dataset's publishers count an item as relevant to Recall@K; 0 for none."""
    within = info.details.get("recall_within", 0)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within < math.inf:
        where = f"dataset.json of {info.name!r}: details.recall_within"
        raise DataError(f"{where} should be a label distance of at least 0. Got {within!r} instead.")
    return within


def describe_held_out(info: DatasetInfo) -> str:  # a sentence; "" where the labels are no judgements
    """Say what an evaluation on the queries of a dataset measures."""
    if not isinstance(info.details.get("judgements"), dict):
        return ""
    if info.queries_are_known:
        return "Judgements were held out, not items: this measures new judgements of known items."
    return "Items were held out with all their judgements: this measures new items."


def with_ceiling(evaluation: Evaluation, info: DatasetInfo) -> Evaluation:
    """Add the ceiling of all repeated judgements of a dataset to the verdict, for want of one of those evaluated."""
    judgements = info.details.get("judgements")
    if not isinstance(judgements, dict) or evaluation.ceiling is not None:
        return evaluation
    ceiling = judgements.get("ceiling")
    if not isinstance(ceiling, float | int) or isinstance(ceiling, bool):
        return evaluation
    measure = "triplet_agreement" if judgements.get("kind") == "triplets" else "pair_spearman"
    sentence = (
        f"By all judgements that were repeated, {measure} can reach {ceiling:.2f} at most; of those held out, too few "
        "were."
    )
    return evaluation.extend_verdict(sentence)


@dataclass(frozen=True)
class Drawn:
    """Makes an item's picture with its label; equal for equal items, so that a page makes each but once.

    An item without a picture is drawn: a vector as a curve, a text by its words. Of images that a backbone
    takes with ``channels`` bands, other than three, the first bands are shown; see ``read_picture``.
    """

    task: Task = field(compare=False)
    dataset: PreparedDataset = field(compare=False)
    split: Split = field(compare=False)
    path: Path | None
    item: int
    size: int
    channels: int = 3
    role: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", self.split.role)

    def plain(self) -> Image.Image:
        """The photograph alone, the curve of a vector, or the words of a text."""
        if self.path is None:
            if self.split.vectors is None:
                assert self.split.texts is not None
                return draw_words(self.split.texts.values[self.item], self.size)
            mean, std = self.dataset.sample_standardization
            (row,) = self.split.vectors.read(np.array([self.item]))
            return draw_vector((row - mean) / std, self.size)
        image = read_picture(self.path, self.channels)
        scale = self.size / max(image.size)
        return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))

    def __call__(self) -> Image.Image:
        """The photograph with its label."""
        with self._fitting():
            return self.task.draw(self.plain(), self.split.labels[self.item], self.dataset.info)

    def words(self) -> str:
        """The label in words."""
        with self._fitting():
            return self.task.describe(self.split.labels[self.item], self.dataset.info)

    def picture(self, distance: float | None, *, ids: bool) -> Picture:
        """For a page or a sheet; see ``RetrievalRows``."""
        if ids:
            item_id = self.split.item_ids[self.item]
            # the number of an item's judgements says less of it than its name
            is_judged = isinstance(self.dataset.info.details.get("judgements"), dict)
            return Picture(self, item_id if is_judged else self.words(), distance, item_id)
        plain, image = self.plain(), self()
        seen = image.size != plain.size or image.tobytes() != plain.tobytes()
        return Picture(image, "" if seen else self.words(), distance)

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        """While a task shows a label: what it cannot show is perhaps of another task."""
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            label, item = reprlib.repr(self.split.labels[self.item]), self.split.item_ids[self.item]
            where = f"the label {label} of the item {item!r} in {self.dataset.folder}"
            fault = f"The task {self.task.name!r} cannot show {where} ({type(error).__name__}: {error})."
            raise DataError(f"{fault} Is it the task of this dataset?") from error
