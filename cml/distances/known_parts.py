"""Labels of which parts are unknown, and weights of parts: what both labels know is compared, scaled to the whole."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from cml.array_types import Bools, Float32, Float64
from cml.errors import UserError
from cml.settings import check_word

Unknown = Literal["refuse", "skip"]
_ROWS = 256  # labels whose parts are compared at a time


def check_parts(missing: str, weights: Sequence[float] | None) -> None:
    """Check the settings ``missing`` and ``weights``."""
    check_word("missing", missing, ("refuse", "skip"))
    for place, weight in enumerate(weights or ()):
        if isinstance(weight, bool) or not 0 < weight < np.inf:
            raise UserError(f"The 'weights' must be numbers above 0. Got {weight!r} at place {place} instead.")


def weigh_places(weights: Sequence[float] | None, places: int) -> Float64:
    """The weights (P,) of the places of a label; 1 each without weights."""
    if weights is None:
        return np.ones(places)
    if len(weights) != places:
        raise UserError(f"There must be a weight for each of the {places} places of a label. Got {len(weights)}.")
    return np.array(weights, np.float64)


def is_unknown(value: Any) -> bool:  # noqa: ANN401 - a part of a label
    """Whether a part says that it is not known: None or NaN."""
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def sum_known_places(
    a: Bools,  # (A, P) which places each label knows
    b: Bools,  # (B, P)
    weights: Float64,  # (P,)
    apart: Callable[[slice, int], Float64],  # of some rows (R) of one side and a place: (R, B) how far the values are
) -> Float32:  # (A, B), infinite where nothing is known of both
    """Sum over the places that both know of weight * apart, times what all places weigh by what these do.

    Places are added one after another, so that equal labels give exactly 0.
    """
    total, result = weights.sum(), np.empty((len(a), len(b)), np.float32)
    for start in range(0, len(a), _ROWS):
        rows = slice(start, start + _ROWS)
        sums, known = (np.zeros((len(a[rows]), len(b))) for _ in range(2))
        for place, weight in enumerate(weights.tolist()):
            both = a[rows, place, None] & b[:, place]
            known += weight * both
            sums += np.where(both, weight * apart(rows, place), 0)
        result[rows] = np.divide(sums * total, known, out=np.full_like(sums, np.inf), where=known > 0)
    return result


def leave_out_defaults(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """Settings without those of these names that are not used, so that distances without them are called as ever."""
    return {name: value for name, value in settings.items() if name not in names or value not in (None, "refuse")}
