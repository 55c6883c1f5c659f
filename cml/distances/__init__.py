"""Label distances by name: ``cml.distances.get("keypoints", normalization="torso")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cml.distances.label_distance import LabelDistance, LabelError, Labels, Neighbors
from cml.errors import UserError
from cml.registry import Choice, Registry

Entry = TypeVar("Entry", bound=Callable[..., Any])

registry: Registry[LabelDistance] = Registry(
    "label distance",
    {
        "euclidean": "cml.distances.euclidean:Euclidean",
        "keypoints": "cml.distances.keypoints.distance:Keypoints",
        "layout": "cml.distances.layout.distance:Layout",
        "captions": "cml.distances.captions.distance:Captions",
        "captions-rwmd": "cml.distances.captions.distance:CaptionsRwmd",
        "classes": "cml.distances.classes:Classes",
        "cosine": "cml.distances.cosine:Cosine",
        "jaccard": "cml.distances.jaccard:Jaccard",
        "hamming": "cml.distances.hamming:Hamming",
        "precomputed": "cml.distances.precomputed:Precomputed",
        "sets": "cml.distances.sets:Sets",
        "combined": "cml.distances.combined:Combined",
    },
)
get = registry.get
names = registry.names


def made(distance: str | LabelDistance) -> LabelDistance:
    """The label distance that a text like ``keypoints(min_shared=2)`` names; one that is made already as it is."""
    return distance if isinstance(distance, LabelDistance) else registry.make(Choice.parse(distance))


def register(
    name: str, *, unit: str = "label units", metric: bool = False, symmetric: bool = False
) -> Callable[[Entry], Entry]:
    """Decorator that gives a label distance of one's own a name: a function of two labels, or a ``LabelDistance``.

    The function is called once for each pair, with labels as JSON gives them (an array arrives as a list); it returns
    a number >= 0, 0 for equal labels, infinity for two labels that cannot be compared. A class is the fast way for
    large data: it packs labels once and computes whole blocks; ``cosine.py`` is a short model to follow.

    Args:
        name: The name, for ``get``, recipes and the command line.
        unit: The unit of a function's distances. A class says it itself, as it does the following.
        metric: True if the function satisfies the triangle inequality.
        symmetric: True if it gives the same for (a, b) and (b, a): a matrix then takes half the time.

    Raises:
        UserError: the name is taken by something else.

    Example:
        >>> import cml.distances
        >>> @cml.distances.register("hours", unit="h", metric=True, symmetric=True)
        ... def hours(a: float, b: float) -> float:
        ...     return min(abs(a - b), 24 - abs(a - b))
        >>> clock = cml.distances.get("hours")
        >>> times = clock.encode([1, 13, 23.5])
        >>> clock.pairwise(times[:1], times).tolist()
        [[0.0, 12.0, 1.5]]
    """

    def add(entry: Entry) -> Entry:
        if not isinstance(entry, type):
            from cml.distances.pair_function import pair_function

            registry.register(name)(pair_function(name, entry, unit=unit, metric=metric, symmetric=symmetric))
        elif not issubclass(entry, LabelDistance) or getattr(entry, "name", name) != name:
            raise UserError(
                f"The class {entry.__name__} cannot be registered as {name!r}: it should be a LabelDistance whose "
                f"'name' is {name!r} or left out."
            )
        else:
            entry.name = name
            registry.register(name)(entry)
        return entry

    return add


__all__ = [
    "LabelDistance",
    "LabelError",
    "Labels",
    "Neighbors",
    "get",
    "made",
    "names",
    "register",
    "registry",
]
