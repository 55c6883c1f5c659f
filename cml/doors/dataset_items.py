"""The items of a run's dataset, of one split or of several, and how they are shown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.checks.audit_list import SCORE, read_scores
from cml.console.messages import say
from cml.data.encode_image import describe_shown_bands
from cml.data.image_sources import ImageSource
from cml.data.input_form import Inputs
from cml.data.prepared import PreparedDataset, Split
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.distances.dataset_labels import encode_labels
from cml.distances.label_distance import LabelDistance
from cml.doors.dataset_report import Drawn, describe_held_out
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.label_inputs import Open
from cml.items.labelled_items import Presentation, describe_label
from cml.task import ReportedUnit, Task

_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile


class DatasetItems:
    """Some items of a prepared dataset: what a model embeds, and what people see."""

    def __init__(
        self,
        dataset: PreparedDataset,
        distance: LabelDistance,
        splits: Sequence[str] = (),
        *,
        count: int | None = None,
        seed: int = 0,
    ) -> None:
        info = dataset.info
        if info.queries_are_known and len(set(splits)) > 1:
            raise UserError(
                f"The queries of {dataset.folder} are training items again, with other judgements. Name one split, "
                f"train or query. Got {', '.join(splits)}."
            )
        every = ("query",) if info.queries_are_known else info.roles
        self.dataset, self._distance = dataset, distance
        self._splits = [dataset.split(name) for name in (splits or every)]
        items = [(split, item) for split in self._splits for item in range(len(split))]
        rows = np.arange(len(items))
        if count is not None and len(rows) > count:
            rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
            say(f"{count:,} of {len(items):,} items, a random subset")
        self._rows = rows
        self._places = [items[row] for row in rows.tolist()]

    def label(self, open_inputs: Open) -> LabelledItems:
        """Make the labelled items."""
        labels = encode_labels(self._distance, self.dataset, [split.role for split in self._splits])[self._rows]
        return LabelledItems(
            open_inputs(self._inputs()),
            labels,
            self._distance,
            given_labels=[split.labels[item] for split, item in self._places],
            given_ids=[split.item_ids[item] for split, item in self._places],
        )

    def present(
        self,
        task: Task,
        report: ReportedUnit,  # the unit of label distances
        *,
        channels: int = 3,
        audit: Path | None = None,  # the list of an audit, whose scores are a column; None for none
    ) -> Presentation:
        """Say how the items are shown."""
        from cml.items.shown_columns import further_columns

        info = self.dataset.info
        drawn = [
            Drawn(task, self.dataset, split, split.pictures[item], item, _SIDE, channels)
            for split, item in self._places
        ]
        columns, texts = further_columns(self._read_further())
        if audit is not None:
            columns = {SCORE: (self._audit_scores(audit), None), **columns}
        return Presentation(
            words=[drawing.words() for drawing in drawn],
            roles=self.roles,
            unit=report.unit,
            factor=report.factor,
            title=info.name,
            pictures=drawn,
            colours=self._colours(),
            legend=task.legend(info),
            note=f"{describe_held_out(info)} {describe_shown_bands(channels)}".strip(),
            columns=columns,
            texts=texts,
            are_known=info.queries_are_known,
        )

    def describe(self, task: Task, report: ReportedUnit) -> Presentation:
        """Say how a list shows the items, which draws none."""
        drawn = (Drawn(task, self.dataset, split, None, item, _SIDE) for split, item in self._places)
        labels = (split.labels[item] for split, item in self._places)
        words = [drawing.words() or describe_label(label) for drawing, label in zip(drawn, labels, strict=True)]
        return Presentation(words, self.roles, report.unit, report.factor)

    @property
    def roles(self) -> list[str]:
        """The role of each item."""
        return [split.role for split, _ in self._places]

    def _inputs(self) -> ImageSource | Inputs:
        """What a model embeds of the items: their image files, vectors or texts."""
        first = self._splits[0].inputs
        if isinstance(first, Texts):
            read = [split.texts.values[item] for split, item in self._places if split.texts is not None]
            return Texts(read, fields=first.form.fields)
        if not isinstance(first, Vectors):
            return [split.paths[item] for split, item in self._places]
        rows = np.empty((len(self._places), first.form.shape[0]), np.float32)
        for split, places in self._by_split():
            assert split.vectors is not None
            rows[places] = split.vectors.read(np.array([self._places[place][1] for place in places], np.int64))
        return Vectors(rows, columns=first.form.columns)

    def _by_split(self) -> list[tuple[Split, Int64]]:
        """Each split with the places of its items."""
        roles = np.array(self.roles)
        return [(split, np.flatnonzero(roles == split.role)) for split in self._splits]

    def _read_further(self) -> list[dict[str, Any]]:
        """The further columns of each item, as in metadata.jsonl."""
        rows: list[dict[str, Any]] = [{} for _ in self._places]
        for split, places in self._by_split():
            of_item = {self._places[place][1]: place for place in places.tolist()}
            for item, columns in enumerate(self.dataset.read_further(split.role)):
                if (place := of_item.get(item)) is not None:
                    rows[place] = columns
        return rows

    def _audit_scores(self, path: Path) -> Float64:
        """The scores (N,) of the labels by an audit; NaN for those that it left out."""
        scores = read_scores(path)
        return np.array([scores.get((split.role, split.item_ids[item]), np.nan) for split, item in self._places])

    def _colours(self) -> dict[str, tuple[NDArray[Any], float | None]]:
        """The labels in columns to colour by, under the names that dataset.json gives them."""
        from cml.items.shown_columns import label_columns

        info = self.dataset.info
        columns = label_columns(info.label_column, [split.labels[item] for split, item in self._places], self._distance)
        names = info.details.get("label_columns")
        if isinstance(names, list) and len(names) == len(columns):
            return dict(zip(map(str, names), columns.values(), strict=True))
        return columns
