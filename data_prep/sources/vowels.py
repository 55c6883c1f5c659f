"""Spoken vowels of nine men, as sequences of cepstrum coefficients: a classic set of sequences of unequal length."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.provenance import record_provenance
from cml.data_prep.readers import read_labels
from cml.data_prep.row_errors import read_each
from cml.errors import DataError, UserError

_PARTS = {"train": "TRAIN", "query": "TEST"}  # role to what the file of a part is called after
_NUMBERS = 12  # cepstrum coefficients of a step
_STEPS = 24  # of the curves that vectors hold


@dataclass(frozen=True)
class Vowels(DatasetSource):
    """640 utterances of the vowels /ae/ by nine men, as vectors; label: the sequence of cepstrum coefficients.

    Command: cml prepare vowels --out DIR

    Input: none if the package aeon is installed (pip install --no-deps aeon), which is read and not imported; --source
    names another folder with the files JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts of the UEA archive. An
    utterance has 7 to 29 steps of 12 LPC cepstrum coefficients, and is compared by dynamic time warping. A vector has
    the curves of the coefficients, each at 24 evenly spaced steps, and the number of steps.

    Split: as published, with 270 utterances for training. Each of the 370 test utterances is a query that is searched
    among the others.

    Licence: CC BY 4.0 (UCI Machine Learning Repository).
    """

    source: Path | None = None
    """Folder with the two files; by default that of the installed package."""

    task = "value"
    label_unit = "units of the coefficients"
    published = "Japanese vowels: Kudo, Toyama and Shimbo, Pattern Recognition Letters 1999, in the package aeon"
    licence = "CC BY 4.0"

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, files=[self._file(part) for part in _PARTS.values()])

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        items = list(read_each(self._rows(), _make_item))
        inputs = {"kind": "vectors", "size": _STEPS * _NUMBERS + 1}
        details = {"gallery": "queries", "inputs": inputs, "label_columns": ["sequence"], "label_distance": "dtw"}
        return Content(items, details)

    def _rows(self) -> Iterator[tuple[str, tuple[str, str, Any]]]:
        """Yield each utterance with its place in the file, its role and its name."""
        for role, part in _PARTS.items():
            for number, (where, row) in enumerate(read_labels(self._file(part), "numbers", format="ucr")):
                yield where, (role, f"{part.lower()}-{number:03d}", row)

    def _file(self, part: str) -> Path:
        folder = self.source
        if folder is None:
            found = importlib.util.find_spec("aeon")
            if found is None or not found.submodule_search_locations:
                raise UserError(
                    "The vowels travel inside the package aeon: pip install --no-deps aeon, or name the folder of its "
                    "files with --source."
                )
            folder = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "JapaneseVowels"
        return folder / f"JapaneseVowels_{part}.ts"


def _make_item(where: str, utterance: tuple[str, str, Any]) -> Item:
    role, name, row = utterance
    if isinstance(row, DataError):
        raise row
    columns = [values for column, values in row.items() if column != "class"]
    if len(columns) != _NUMBERS or len({len(values) for values in columns}) != 1:
        raise DataError(f"{where}: an utterance should have {_NUMBERS} coefficients in each step.")
    track = np.array(columns, np.float64).T  # (T, 12)
    if not np.isfinite(track).all():
        raise DataError(f"{where}: the coefficients should be finite.")
    steps = [" ".join(map(repr, step)) for step in track.tolist()]  # the form in which datasets hold sequences
    return Item(name, role, None, steps, where=where, vector=_describe(track))


def _describe(track: Float64) -> Any:  # noqa: ANN401 - (289,) float32
    places = np.linspace(0, len(track) - 1, _STEPS)
    curves = [np.interp(places, np.arange(len(track)), column) for column in track.T]
    return np.concatenate([*curves, [len(track)]]).astype(np.float32)
