"""Drawn time series as vectors: a wave of known shape, period and phase under noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.provenance import record_provenance

_STEPS = 32  # of the shape, of at least as many samples
_LABELS = {"frequency": ("cycles", ""), "phase": ("degrees", "circular"), "shape": ("units of the wave", "dtw(band=4)")}


@dataclass(frozen=True)
class Series(DatasetSource):
    """Drawn time series as vectors: a wave, a trend and noise; label: its frequency, its phase or the wave itself.

    Command: cml prepare series --count 2000 --label phase --out DIR

    Input: none; the series are drawn. Each is a wave of 2 to 8 cycles with a random phase, a second harmonic of random
    size, a linear trend and noise. The frequency is in cycles per series. The phase is in degrees and is compared by
    the shorter arc; a phase of 90 degrees starts at the maximum. The shape is the wave without trend and noise, as a
    sequence of 32 steps that is compared by dynamic time warping.

    Licence: public domain.
    """

    count: int = 2000
    """Number of series."""
    length: int = 128
    """Number of samples in a series."""
    label: Literal["frequency", "phase", "shape"] = "frequency"
    """Label of a series. With phase, all series have 3 cycles, since phases of different frequencies do not compare."""
    noise: float = 0.3
    """Standard deviation of the noise; the wave has the amplitude 1."""
    seed: int = 0
    """Random seed."""
    test_fraction: float = 0.3
    """Fraction of series held out for testing."""
    query_fraction: float = 0.3
    """Fraction of test series that are queries; the others form the gallery."""

    task = "value"
    published = "drawn time series"
    licence = "public domain"
    minimums: ClassVar[Mapping[str, float]] = {"count": 12, "length": 32, "noise": 0, "seed": 0}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        items = [self._item(number) for number in range(self.count)]
        details: dict[str, Any] = {"inputs": {"kind": "vectors", "size": self.length}, "label_columns": [self.label]}
        unit, distance = _LABELS[self.label]
        if distance:
            details["label_distance"] = distance
        return Content(items, details, {"label_unit": unit})

    def _item(self, number: int) -> Item:
        """A series that depends on its number and the seed alone."""
        rng = np.random.default_rng([self.seed, number])
        frequency = 3.0 if self.label == "phase" else rng.uniform(2, 8)
        phase, harmonic, slope = rng.uniform(0, 360), rng.uniform(0, 0.5), rng.uniform(-1, 1)
        time = np.arange(self.length) / self.length  # in lengths of the series
        angle = math.tau * frequency * time + math.radians(phase)
        wave = np.sin(angle) + harmonic * np.sin(2 * angle)
        vector = (wave + slope * (time - 0.5) + rng.normal(0, self.noise, self.length)).astype(np.float32)
        name = f"{number:06d}"
        role = split_by_hash(name, self.test_fraction, self.query_fraction)
        steps = wave[np.linspace(0, self.length - 1, _STEPS).round().astype(int)].round(6).tolist()
        labels = {
            "frequency": round(float(frequency), 6),
            "phase": round(float(phase), 6),
            "shape": list(map(repr, steps)),  # the form in which datasets hold the steps of a sequence
        }
        return Item(name, role, None, labels[self.label], vector=vector)
