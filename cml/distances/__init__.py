"""Label distances, by name and by class: ``get("keypoints", normalization="torso")``, ``Keypoints("torso")``.

The classes are imported lazily.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels
from cml.distances.nearest import Neighbors
from cml.distances.sparse_distances import SparseDistances
from cml.errors import UserError, did_you_mean
from cml.registry import Choice, Registry

if TYPE_CHECKING:
    from cml.distances.boxes import Boxes
    from cml.distances.captions.distance import Captions
    from cml.distances.circular import Circular
    from cml.distances.classes import Classes
    from cml.distances.combined import Combined
    from cml.distances.cosine import Cosine
    from cml.distances.direction import Direction
    from cml.distances.emd import Emd
    from cml.distances.euclidean import Euclidean
    from cml.distances.hamming import Hamming
    from cml.distances.haversine import Haversine
    from cml.distances.jaccard import Jaccard
    from cml.distances.judged_pairs import JudgedPairs
    from cml.distances.judged_triplets import JudgedTriplets
    from cml.distances.layout.distance import Layout
    from cml.distances.place import Place
    from cml.distances.poses.keypoints import Keypoints
    from cml.distances.poses.oks import Oks
    from cml.distances.poses.procrustes import Procrustes
    from cml.distances.precomputed import Precomputed
    from cml.distances.rotation import Rotation
    from cml.distances.sentences import Sentences
    from cml.distances.sequences.dtw import Dtw
    from cml.distances.sequences.edit import Edit
    from cml.distances.sequences.frechet import Frechet
    from cml.distances.sets import Sets

Entry = TypeVar("Entry", bound=Callable[..., Any])

_ENTRIES = {
    "euclidean": "cml.distances.euclidean:Euclidean",
    "keypoints": "cml.distances.poses.keypoints:Keypoints",
    "procrustes": "cml.distances.poses.procrustes:Procrustes",
    "oks": "cml.distances.poses.oks:Oks",
    "circular": "cml.distances.circular:Circular",
    "rotation": "cml.distances.rotation:Rotation",
    "haversine": "cml.distances.haversine:Haversine",
    "place": "cml.distances.place:Place",
    "boxes": "cml.distances.boxes:Boxes",
    "layout": "cml.distances.layout.distance:Layout",
    "captions": "cml.distances.captions.distance:Captions",
    "sentences": "cml.distances.sentences:Sentences",
    "classes": "cml.distances.classes:Classes",
    "cosine": "cml.distances.cosine:Cosine",
    "direction": "cml.distances.direction:Direction",
    "emd": "cml.distances.emd:Emd",
    "jaccard": "cml.distances.jaccard:Jaccard",
    "hamming": "cml.distances.hamming:Hamming",
    "dtw": "cml.distances.sequences.dtw:Dtw",
    "frechet": "cml.distances.sequences.frechet:Frechet",
    "edit": "cml.distances.sequences.edit:Edit",
    "precomputed": "cml.distances.precomputed:Precomputed",
    "judged-pairs": "cml.distances.judged_pairs:JudgedPairs",
    "judged-triplets": "cml.distances.judged_triplets:JudgedTriplets",
    "sets": "cml.distances.sets:Sets",
    "combined": "cml.distances.combined:Combined",
}
registry: Registry[LabelDistance] = Registry("label distance", _ENTRIES, group="cml.distances")
get = registry.get
names = registry.names


def as_label_distance(
    distance: Any,  # noqa: ANN401 - checked here
    *,
    unit: str = "label units",
    metric: bool = False,
    symmetric: bool | None = None,
    version: str = "",
) -> LabelDistance:
    """Convert what a user gives as a label distance: a string, a function, a matrix, or a label distance.

    Args:
        distance: A string as on the command line, such as ``"keypoints(min_shared=2)"``. A ``LabelDistance``, which is
            returned as it is. A function of two labels, called once for each pair with the labels as they were given;
            it returns a number >= 0, 0 for equal labels, infinity for two labels that cannot be compared. Or
            distances of N items, where a label is the item's row number: all of them, an (N, N) array, tensor or memory
            map, or some of them, a sparse matrix of SciPy or ``SparseDistances``, where others cannot be compared. Of a
            data frame or a ``DistanceMatrix`` of scikit-bio a label is the name of a row.
        unit: The unit of the distances of a function or matrix.
        metric: True if a function or matrix satisfies the triangle inequality.
        symmetric: True if a function gives the same for (a, b) and (b, a), which takes half the time; None: ``fit``
            finds out from a sample of pairs. A matrix must equal its transpose but for rounding, which is averaged,
            and the entries of a sparse one hold both ways, unless ``symmetric`` is False.
        version: Of a function, as for ``register``.

    Returns:
        The label distance.

    Raises:
        UserError: ``distance`` is none of these, or a string names nothing. A matrix is no matrix of distances: it has
            NaN, numbers below 0 or a diagonal above 0, one triangle alone, or two numbers for a pair.

    Example:
        >>> hours = as_label_distance(lambda a, b: min(abs(a - b), 24 - abs(a - b)), unit="h")
        >>> times = hours.encode([1, 13, 23.5])
        >>> hours.pairwise(times[:1], times).tolist()
        [[0.0, 12.0, 1.5]]
        >>> friends = as_label_distance([[0, 1, 3], [1, 0, 2], [3, 2, 0]])
        >>> friends.is_symmetric, friends.pairwise(friends.encode([0]), friends.encode([1, 2])).tolist()
        (True, [[1.0, 3.0]])
    """
    if isinstance(distance, str):
        choice = Choice.parse(distance)
        if choice.name == "function" and "digest" in choice.settings:
            title = choice.settings.get("name")
            raise UserError(
                f"The label distance is the function {title!r}, which was given in Python; give it again "
                f"where the model is opened, as in cml.load(path, label_distance={title}), or register it under a name."
            )
        return registry.make(choice)
    if isinstance(distance, LabelDistance):
        return distance
    if isinstance(distance, type) and issubclass(distance, LabelDistance):
        raise UserError(f"The label distance is the class {distance.__name__}; give one made of it, with its settings.")
    if callable(distance):
        from cml.distances.pair_function import PairFunction

        title = getattr(getattr(distance, "func", distance), "__name__", type(distance).__name__).strip("<>")
        return PairFunction(distance, title, unit, metric, symmetric, version=version)
    from cml.distances.precomputed import Precomputed

    if hasattr(distance, "tocoo"):
        distance = SparseDistances.from_matrix(distance, symmetric=symmetric is not False)
    if isinstance(distance, SparseDistances):
        return Precomputed(distance, unit)
    return Precomputed(distance, unit, symmetric, metric)


def as_distance_of(
    # as ``as_label_distance`` takes it
    distance: Any,  # noqa: ANN401 - checked here
    labels: Any,  # noqa: ANN401 - checked here
    call: str,
) -> LabelDistance:
    """Convert the label distance of a call that takes it before the labels, as all do that take both by position."""
    if not hasattr(labels, "__len__") or isinstance(labels, str | LabelDistance):
        is_exchanged = isinstance(labels, str | LabelDistance) or callable(labels)
        got = f"{type(distance).__name__} and {'no labels' if labels is None else type(labels).__name__}"
        raise UserError(
            f"{call} takes the label distance, then the labels of the training set, as in {call}('euclidean', labels). "
            f"Got {got} instead{': exchange them.' if is_exchanged else '.'}"
        )
    return as_label_distance(distance)


def register(
    name: str, *, unit: str = "label units", metric: bool = False, symmetric: bool = False, version: str = ""
) -> Callable[[Entry], Entry]:
    """Register a label distance of your own under a name: a function of two labels, or a ``LabelDistance``.

    The function is called once for each pair, with labels as they were given (those of a prepared dataset are as JSON
    gives them); it returns a number >= 0, 0 for equal labels, infinity for two labels that cannot be compared. Its
    values are kept in the cache on disk for as long as neither its code nor anything of your own that it refers to
    changes; a function that reads files should be given the files' content. A class is the fast way for large data:
    it packs labels once and computes whole blocks; ``Cosine`` in ``cosine.py`` is a short model to follow.

    Args:
        name: The name, for ``get``, recipes and the command line.
        unit: The unit of a function's distances. A class declares its own, as it does the following.
        metric: True if the function satisfies the triangle inequality.
        symmetric: True if it gives the same for (a, b) and (b, a): a matrix then takes half the time.
        version: Any text. Values are then kept until you change it, whatever happens to the function's code, and
            unfinished computations continue: for a slow function that you mend on the way, or that counts its calls or
            fills a cache of its own. By default every change of the code counts, and of what it refers to.

    Returns:
        The decorator, which returns the function or class as it is.

    Raises:
        UserError: The name is taken by something else, or the class has another name.

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
            from cml.distances.pair_function import PairFunction

            def distance() -> LabelDistance:
                return PairFunction(entry, name, unit, metric, symmetric, registered=True, version=version)

            for word in ("__doc__", "__module__", "__qualname__"):  # whose definition it is
                setattr(distance, word, getattr(entry, word, None))
            registry.register(name)(distance)
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
    "Approximation",
    "Boxes",
    "Budget",
    "Captions",
    "Circular",
    "Classes",
    "Combined",
    "Cosine",
    "Direction",
    "Dtw",
    "Edit",
    "Emd",
    "Euclidean",
    "Frechet",
    "Hamming",
    "Haversine",
    "Jaccard",
    "JudgedPairs",
    "JudgedTriplets",
    "Keypoints",
    "LabelDistance",
    "LabelError",
    "Labels",
    "Layout",
    "Neighbors",
    "Oks",
    "Place",
    "Precomputed",
    "Procrustes",
    "RecallEstimate",
    "Rotation",
    "Sentences",
    "Sets",
    "SparseDistances",
    "Spent",
    "approximate",
    "as_label_distance",
    "get",
    "names",
    "register",
    "registry",
]
# It trains, and so lies far above label distances, but this is where it is looked for.
_ABOVE = {
    "approximate": "cml.approximate.approximate",
    "Approximation": "cml.approximate.result",
    "Budget": "cml.approximate.budget",
    "RecallEstimate": "cml.approximate.recall",
    "Spent": "cml.approximate.result",
}
_HOMES = _ABOVE | {name: module for module, _, name in (entry.rpartition(":") for entry in _ENTRIES.values())}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name not in _HOMES:
        raise AttributeError(f"module 'cml.distances' has no attribute {name!r}.{did_you_mean(name, _HOMES)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
