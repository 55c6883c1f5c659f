"""A user's own function of two labels as a label distance."""

from __future__ import annotations

import functools
import hashlib
import itertools
import numbers
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32
from cml.distances.content_hash import Content, content_digest
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.pair_cache import PairCache
from cml.errors import UserError
from cml.processes.memory import is_out_of_memory
from cml.storage.downloads import cache_folder

_SAMPLE, _SAMPLE_SECONDS = 24, 0.5  # labels whose pairs are asked for both ways, and for how long ...
_FEWEST = 10  # ... but so many pairs at least
_ROUNDING = 1e-5  # relative difference of the two ways that is rounding
_LARGEST = float(np.finfo(np.float32).max)
_in_use: weakref.WeakValueDictionary[str, PairCache] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class PairFunction(LabelDistance):
    """A function of two labels, called once for each pair of different content, with labels as they were given."""

    # returns a number >= 0, 0 for equal labels, infinity for two labels that cannot be compared
    function: Callable[[Any, Any], Any]
    title: str  # what the function is called
    unit: str = "label units"  # the unit of its values
    metric: bool = False  # True if the triangle inequality holds
    symmetric: bool | None = None  # True if it gives the same for (a, b) and (b, a); None if ``fit`` is to find out
    registered: bool = False  # True if the registry knows it by its title
    # a text that stands for the function's code and all that it refers to: values that were computed count as the
    # function's until it changes. "" for the code itself
    version: str = ""
    name: ClassVar[str] = "function"
    is_costly: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.registered:
            object.__setattr__(self, "name", self.title)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.function, self.title, self.unit, self.metric, self.symmetric, self.registered, self.version)
        return type(self), settings  # to another process without the values that are known here

    @property
    def is_metric(self) -> bool:
        """As declared."""
        return self.metric

    @property
    def is_symmetric(self) -> bool:
        """As declared, or found by ``fit``."""
        return bool(self.symmetric)

    @property
    def is_stored(self) -> bool:
        """True for a registered function with a version, or of which everything is known that it refers to."""
        return self.registered and self._content.complete

    def settings(self) -> dict[str, Any]:
        """Return no settings if it is registered; otherwise a description, from which no function can be built."""
        if self.registered:
            return {}
        declared = {"name": self.title, "unit": self.unit, "metric": self.metric, "symmetric": self.symmetric}
        return {**declared, "digest": self._content.digest}

    def fingerprint(self) -> str:
        """Return a hex digest of the name, the declarations, and the version, or the code with all it refers to."""
        text = f"{self.title}:{self.unit}:{self.metric}:{self.is_symmetric}:{self._content}"
        return hashlib.sha256(text.encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> Content:
        return content_digest(("version", self.version) if self.version else self.function)

    @functools.cached_property
    def _cache(self) -> PairCache:
        """The values that were computed in this process or one before."""
        key = self.fingerprint() if self._content.complete else f"{id(self)}"
        if self.version:
            key += f" {id(self.function)}"  # missing values are those of this function, not of another one's code
        cache = _in_use.get(key)
        if cache is None:
            path = cache_folder() / "distances" / "functions" / f"{key[:32]}.npz" if self.is_stored else None
            cache = PairCache(self.value, self.title, symmetric=self.is_symmetric, path=path)
            _in_use[key] = cache
        return cache

    def fit(self, labels: Sequence[Any]) -> PairFunction:  # the distance with ``symmetric`` set
        """Find out by a sample of pairs whether the function is symmetric, where that was not declared."""
        if self.symmetric is not None:
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:_SAMPLE]).tolist()
        until = time.monotonic() + _SAMPLE_SECONDS
        for count, (row, column) in enumerate(itertools.combinations(chosen, 2)):
            if count >= _FEWEST and time.monotonic() > until:
                break
            forward = self.value(labels[row], labels[column])
            backward = self.value(labels[column], labels[row])
            if not np.isclose(forward, backward, rtol=_ROUNDING, atol=0):
                return replace(self, symmetric=False)
        return replace(self, symmetric=True)

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``labels`` (N,) of objects, and ``digests`` (N,) uint64 of their content
        """Pack labels as they are."""
        packed = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            if isinstance(label, float) and label != label:  # NaN
                raise LabelError(position, "is nan: a missing label? Leave the item out.")
            packed[position] = label
        from_itself = self.value(packed[0], packed[0])
        if from_itself != 0:
            raise UserError(
                f"The label distance {self.title!r} gave {from_itself:g} for {short(packed[0])} and itself; "
                "it should give 0 there. Is it a similarity?"
            )
        digests = [int(content_digest(label).digest[:16], 16) for label in packed]
        return Labels({"labels": packed, "digests": np.array(digests, np.uint64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:  # a: A encoded labels; b: B encoded labels -> (A, B) float32
        """Compute the label distances between all labels of two sides."""
        return self._cache.block(a, b)

    def value(
        self,
        label: Any,  # noqa: ANN401 - labels of any form
        # the second label
        other: Any,  # noqa: ANN401 - labels of any form
    ) -> float:  # a number >= 0, or infinity
        """Call the function for two labels and check what it gives."""
        try:
            result = self.function(label, other)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            cause = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(
                f"The label distance {self.title!r} failed for {short(label)} and {short(other)} ({cause}); it should "
                "take two labels and give a number >= 0."
            ) from error
        value = result.item() if getattr(result, "shape", None) == () else result
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 <= number <= _LARGEST or number == np.inf):
            raise UserError(
                f"The label distance {self.title!r} gave {_describe_result(result)} for {short(label)} and "
                f"{short(other)}; it should give a number >= 0, or infinity for no comparison."
            )
        return number


def _describe_result(value: Any) -> str:  # noqa: ANN401 - whatever a function gave
    """Describe what a function gave, for a message."""
    if isinstance(value, numbers.Real):
        return str(float(value))
    shape = getattr(value, "shape", ())
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape else short(value)
