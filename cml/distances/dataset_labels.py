"""The labels of a prepared dataset for a label distance: encoded, with the item of a refused one; and their unit."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cml.data.columns import Numbers
from cml.data.images import native_size
from cml.data.masks import MaskFault, check_size
from cml.data.prepared import PreparedDataset
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels
from cml.errors import DataError
from cml.processes.cores import CORES

Mirror = Callable[[Any], Any]  # of a label


def encode_labels(
    distance: LabelDistance, dataset: PreparedDataset, role: str | Sequence[str], mirror: Mirror | None = None
) -> Labels:  # the encoded labels
    """Encode the labels of a prepared dataset; an error names the item."""
    splits = [dataset.split(name) for name in ([role] if isinstance(role, str) else role)]
    # of one role as they are: a million numbers are one array there
    labels = splits[0].labels if len(splits) == 1 else [label for split in splits for label in split.labels]

    def where(position: int) -> str:
        position %= len(labels)
        for split in splits:
            if position < len(split):
                break
            position -= len(split)
        return f"{dataset.folder}, role {split.role}, item {split.item_ids[position]!r}"

    try:
        encoded = distance.encode(labels if mirror is None else _WithMirrored(labels, mirror))
    except LabelError as error:
        raise DataError(f"{where(error.position)}: its label {error.fault}") from None
    masks = [] if isinstance(labels, Numbers) else [row for row, label in enumerate(labels) if isinstance(label, Path)]
    paths = [path for split in splits for path in split.paths] if masks else []  # of a dataset of images
    with ThreadPoolExecutor(CORES) as pool:
        checks = pool.map(lambda row: check_size(native_size(labels[row]), paths[row]), masks)
        for row in masks:
            try:
                next(checks)
            except MaskFault as fault:
                raise DataError(f"{where(row)}: its mask {labels[row]} {fault}.") from None
    return encoded


def unit_in_dataset(distance: LabelDistance, dataset: PreparedDataset) -> str:
    """Name the unit of a label distance; "label units" of plain numbers become the unit that the dataset names."""
    return distance.unit.replace("label units", dataset.info.label_unit or "label units")


def label_faults(distance: LabelDistance, dataset: PreparedDataset) -> list[str]:
    """List everything that a label distance refuses in a dataset."""
    faults = []
    for role in dataset.info.roles:
        try:
            encode_labels(distance, dataset, role)
        except DataError as error:
            split = dataset.split(role)
            alone = [(item, _fault(distance, label)) for item, label in zip(split.item_ids, split.labels, strict=True)]
            faults += [f"{role} item {item!r}: its label {fault}" for item, fault in alone if fault] or [str(error)]
    return faults


def _fault(distance: LabelDistance, label: Any) -> str:  # noqa: ANN401 - a label of any form
    """Encode a label alone and return why it is refused, or ""."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said of all of them together
            distance.encode([label])
    except LabelError as error:
        return error.fault
    return ""


class _WithMirrored(Sequence[Any]):
    """N labels, then the N mirrored ones, each made when it is read: masks are large."""

    def __init__(self, labels: Sequence[Any], mirror: Mirror) -> None:
        self._labels, self._mirror = labels, mirror

    def __len__(self) -> int:
        return 2 * len(self._labels)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - of an int a label, of a slice a list of them
        position, half = range(len(self))[place], len(self._labels)
        if isinstance(position, range):
            return [self[row] for row in position]
        return self._labels[position] if position < half else self._mirror(self._labels[position - half])
