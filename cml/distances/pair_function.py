"""A user's own function of two labels as a label distance.

It calls the function once for each pair of different labels and keeps the values (kept_pairs.py), so it is for small
data or a first try; a ``LabelDistance`` of your own that computes whole blocks is the fast way. Not for: registering
(``cml.distances.register``), or making one of a function (``cml.distances.made``).
"""

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

from cml.distances.content import Content, content
from cml.distances.kept_pairs import KeptPairs
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError
from cml.storage.atomic import cache_folder

_SAMPLE, _SAMPLE_SECONDS = 24, 0.5  # labels whose pairs are asked for both ways, and for how long ..
_FEWEST = 10  # .. but so many pairs at least
_ROUNDING = 1e-5  # relative difference of the two ways that is rounding
_LARGEST = float(np.finfo(np.float32).max)
_in_use: weakref.WeakValueDictionary[str, KeptPairs] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class PairFunction(LabelDistance):
    """``function(a, b) -> float``, called once for each pair of labels in a process.

    Labels reach the function as they were given. Those of equal content count as one label. Where the two ways are
    the same, each pair is asked for in one direction alone.

    Args:
        function: As for ``cml.distances.made``; so are ``unit``, ``metric`` and ``symmetric``.
        title: What the function is called.
        registered: True if it is known to the registry by its title.
    """

    function: Callable[[Any, Any], Any]
    title: str
    unit: str = "label units"
    metric: bool = False
    symmetric: bool | None = None
    registered: bool = False
    name: ClassVar[str] = "function"
    is_costly: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.registered:
            object.__setattr__(self, "name", self.title)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process without the values that are known here."""
        return type(self), (self.function, self.title, self.unit, self.metric, self.symmetric, self.registered)

    @property
    def is_metric(self) -> bool:
        """What the user said."""
        return self.metric

    @property
    def is_symmetric(self) -> bool:
        """What the user said or ``fit`` found."""
        return bool(self.symmetric)

    @property
    def is_stored(self) -> bool:
        """True for a registered function of which everything is known that it refers to."""
        return self.registered and self._content.complete

    def settings(self) -> dict[str, Any]:
        """None if it is registered; otherwise what there is to say of it, which makes no function."""
        if self.registered:
            return {}
        said = {"name": self.title, "unit": self.unit, "metric": self.metric, "symmetric": self.symmetric}
        return {**said, "digest": self._content.digest}

    def fingerprint(self) -> str:
        """Hex digest of the name, what was said of the function, and its code with all that it refers to."""
        said = f"{self.title}:{self.unit}:{self.metric}:{self.is_symmetric}:{self._content}"
        return hashlib.sha256(said.encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> Content:
        return content(self.function)

    @functools.cached_property
    def _kept(self) -> KeptPairs:
        """The values known in this process, or a process before."""
        key = self.fingerprint() if self._content.complete else f"{id(self)}"
        known = _in_use.get(key)
        if known is None:
            path = cache_folder() / "distances" / "functions" / f"{key[:32]}.npz" if self.is_stored else None
            known = KeptPairs(self.value, self.title, symmetric=self.is_symmetric, path=path)
            _in_use[key] = known
        return known

    def fit(self, labels: Sequence[Any]) -> PairFunction:
        """This distance, declared symmetric or not by a sample of pairs of ``labels`` where that was not said."""
        if self.symmetric is not None:
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:_SAMPLE]).tolist()
        until = time.monotonic() + _SAMPLE_SECONDS
        for asked, (row, column) in enumerate(itertools.combinations(chosen, 2)):
            if asked >= _FEWEST and time.monotonic() > until:
                break
            there, back = self.value(labels[row], labels[column]), self.value(labels[column], labels[row])
            if not np.isclose(there, back, rtol=_ROUNDING, atol=0):
                return replace(self, symmetric=False)
        return replace(self, symmetric=True)

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N labels as they are, array ``labels`` (N,), with a digest of each, ``digests`` (N,) uint64.

        Raises:
            LabelError: a label is NaN.
            UserError: the function does not give 0 for the first label and itself.
        """
        packed = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            if isinstance(label, float) and label != label:  # NaN
                raise LabelError(position, "is nan: a missing label? Leave the item out.")
            packed[position] = label
        itself = self.value(packed[0], packed[0])
        if itself != 0:
            raise UserError(
                f"The label distance {self.title!r} gave {itself:g} for {short(packed[0])} and itself; "
                "it should give 0 there. Is it a similarity?"
            )
        digests = [int(content(label).digest[:16], 16) for label in packed]
        return Labels({"labels": packed, "digests": np.array(digests, np.uint64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """The function's values (len(a), len(b)) float32.

        Raises:
            UserError: the function failed, or gave something else than a number >= 0: names the two labels.
        """
        return self._kept.block(a, b)

    def value(self, one: Any, other: Any) -> float:  # noqa: ANN401 - labels of any form
        """What the function gives for two labels, checked."""
        try:
            given = self.function(one, other)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(
                f"The label distance {self.title!r} failed for {short(one)} and {short(other)} ({what}); it should "
                "take two labels and give a number >= 0."
            ) from error
        value = given.item() if getattr(given, "shape", None) == () else given
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 <= number <= _LARGEST or number == np.inf):
            raise UserError(
                f"The label distance {self.title!r} gave {_said(given)} for {short(one)} and {short(other)}; "
                "it should give a number >= 0, or infinity for no comparison."
            )
        return number


def _said(value: Any) -> str:  # noqa: ANN401 - whatever a function gave
    """What a function gave, for an error message."""
    if isinstance(value, numbers.Real):
        return str(float(value))
    shape = getattr(value, "shape", ())
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape else short(value)
