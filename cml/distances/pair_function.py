"""A user's own function of two labels as a label distance.

It calls the function once for each pair, so it is for small data or a first try; a ``LabelDistance`` of one's own that
computes whole blocks is the fast way. Not for: registering, which ``cml.distances.register`` does.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.distances.label_distance import Float32, LabelDistance, LabelError, Labels, short
from cml.errors import UserError


@dataclass(frozen=True)
class PairFunction(LabelDistance):
    """Base of the classes that ``pair_function`` makes: ``function(a, b) -> float`` on labels as JSON gives them.

    Labels are packed as JSON texts, so the function gets numbers, texts, lists and dicts; a tuple or an array arrives
    as a list.
    """

    function: ClassVar[Callable[[Any, Any], float]]
    metric: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False

    @property
    def is_metric(self) -> bool:
        """What the user said."""
        return self.metric

    @property
    def is_symmetric(self) -> bool:
        """What the user said."""
        return self.symmetric

    def fingerprint(self) -> str:
        """Hex digest of the name, what was said of the function, and its source text (not of what that calls)."""
        function = type(self).function
        try:
            text = inspect.getsource(function)
        except (OSError, TypeError):  # typed into an interpreter
            code = function.__code__
            text = f"{code.co_code.hex()} {code.co_consts} {code.co_names}"
        said = f"{self.name}:{self.unit}:{self.metric}:{self.symmetric}:{text}"
        return hashlib.sha256(said.encode()).hexdigest()

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N labels as JSON texts, array ``json`` (N,).

        Raises:
            LabelError: a label cannot be written as JSON.
            UserError: there is no label, or the function does not give 0 for the first label and itself.
        """
        if len(labels) == 0:
            raise UserError("There are no labels to encode.")
        texts = []
        for position, label in enumerate(labels):
            try:
                texts.append(json.dumps(label, sort_keys=True, allow_nan=False, default=_as_list).encode())
            except (TypeError, ValueError) as error:
                raise LabelError(position, f"cannot be written as JSON: {error}.") from None
        first = json.loads(texts[0])
        itself = self._distance(first, first)
        if itself != 0:
            raise UserError(
                f"The label distance {self.name!r} gave {itself:g} for {short(first)} and itself; "
                "it should give 0 there. Is it a similarity?"
            )
        return Labels({"json": np.array(texts)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """The function's values (len(a), len(b)) float32.

        Raises:
            UserError: the function gave NaN or a negative number.
        """
        left, right = ([json.loads(text) for text in side.arrays["json"]] for side in (a, b))
        values = [[self._distance(one, other) for other in right] for one in left]
        return np.array(values, np.float32).reshape(len(a), len(b))

    def _distance(self, one: Any, other: Any) -> float:  # noqa: ANN401 - labels of any form
        value = float(type(self).function(one, other))
        if math.isnan(value) or value < 0:
            raise UserError(
                f"The label distance {self.name!r} gave {value} for {short(one)} and {short(other)}; "
                "it should give a number >= 0, or infinity for no comparison."
            )
        return value


def pair_function(
    name: str, function: Callable[[Any, Any], float], *, unit: str, metric: bool, symmetric: bool
) -> type[PairFunction]:
    """The label distance class of ``function``; for the arguments see ``cml.distances.register``."""
    said = {"name": name, "unit": unit, "metric": metric, "symmetric": symmetric}
    body = {**said, "function": staticmethod(function), "__doc__": function.__doc__, "__module__": function.__module__}
    made: type[PairFunction] = type(name, (PairFunction,), body)
    return made


def _as_list(value: Any) -> Any:  # noqa: ANN401 - whatever json does not know
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{short(value)} is neither a number, a text, a list nor a dict")
