"""What is suspicious about a prepared dataset, by its values and by the label distance that its task takes."""

import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from cml import tasks
from cml.array_types import Float32
from cml.data.prepared import PreparedDataset
from cml.distances.label_distance import LabelDistance
from cml.errors import UserError
from cml.feature_store.frozen_features import with_features
from cml.feature_store.store import FeatureStore
from cml.items.label_inputs import open_at
from cml.plausibility.dataset_rules import find_in_dataset
from cml.plausibility.feature_duplicates import find_feature_duplicates
from cml.plausibility.finding import Finding, find_unknown_words
from cml.plausibility.image_rules import Thumbnails
from cml.retrieval.near_copies import GROUPS_OPTION, describe_groups, describe_larger_groups
from cml.retrieval.near_in_order import name_copies_in_order
from cml.task import label_distance_of
from cml.word_vectors.word_vectors import CountedWords

if TYPE_CHECKING:
    from cml.distances.captions.distance import Captions


def find_suspicious(
    dataset: PreparedDataset,
    thumbnails: Thumbnails | None = None,
    *,
    features: FeatureStore | None = None,
    skip: Collection[str] = (),
) -> list[Finding]:
    """Find what is suspicious about a prepared dataset."""
    findings = find_in_dataset(dataset, thumbnails, skip=skip)
    if features is not None and "feature-duplicates" not in skip and not dataset.info.queries_are_known:
        findings += _find_in_features(with_features(dataset, features))
    if "near-in-order" not in skip and (dataset.info.inputs.kind == "vectors" or thumbnails is not None):
        findings += _find_in_order(dataset)
    if "unknown-words" not in skip and (words := _count_words(dataset)) is not None:
        findings += find_unknown_words(words)
    return findings


def _find_in_features(dataset: PreparedDataset) -> list[Finding]:
    """Test items whose features are almost those of a training item."""
    ids: dict[str, list[str]] = {"train": [], "test": []}
    rows: dict[str, list[Float32]] = {"train": [], "test": []}
    for role in ("train", "query") if dataset.info.queries_are_gallery else ("train", "query", "gallery"):
        split, part = dataset.split(role), "train" if role == "train" else "test"
        assert split.vectors is not None
        ids[part] += split.item_ids
        rows[part].append(split.vectors.read(np.arange(len(split.vectors))))
    train, test = np.concatenate(rows["train"]), np.concatenate(rows["test"])
    return find_feature_duplicates(ids["train"], train, ids["test"], test)


def _find_in_order(dataset: PreparedDataset) -> Iterator[Finding]:
    """Queries that have near copies in the gallery, of another group if there are groups, by the order of the file."""
    distance = find_label_distance(dataset)
    queries, gallery = dataset.split("query"), dataset.split("gallery")
    if distance is None or has_classes(distance, queries.labels, default=True):
        return  # items of one class may be as near to each other as copies
    open_inputs, is_gallery, column = open_at((8, 8)), dataset.info.queries_are_gallery, dataset.info.group_column
    others = None if is_gallery else open_inputs(gallery.inputs)
    roles = ("query",) if is_gallery else ("query", "gallery")
    names = [name for role in roles if column for name in dataset.read_groups(role, column)]
    groups = np.unique(names, return_inverse=True)[1] if column else None
    what = name_copies_in_order(open_inputs(queries.inputs), others, dataset.places_of_test_items, groups)
    if what:
        mend = describe_larger_groups(GROUPS_OPTION) if column else describe_groups(GROUPS_OPTION)
        yield Finding("near-in-order", what, f"If these are near copies, give {mend}", len(queries), len(queries))


def has_classes(distance: LabelDistance, labels: Sequence[Any], *, default: bool = False) -> bool:
    """Whether labels are classes; the default where that is unknown: faults of labels are found elsewhere."""
    if not len(labels):
        return default
    try:
        with warnings.catch_warnings(action="ignore"):  # training warns of labels that are left out
            return distance.fit(labels[:1]).class_names(distance.encode(labels[:1])) is not None
    except UserError:
        return default


def find_label_distance(dataset: PreparedDataset) -> LabelDistance | None:
    """The label distance that the task of a dataset takes; None where it cannot be made here."""
    if dataset.info.task not in tasks.names():
        return None
    task = tasks.get(dataset.info.task)
    try:
        return label_distance_of(task.name, task.label_distance(task.recipe, dataset.info))
    except UserError:  # an extra is not installed
        return None


def _count_words(dataset: PreparedDataset) -> CountedWords | None:
    """Count the words of a dataset's captions; None of labels that are no captions, or without word vectors."""
    distance = find_label_distance(dataset)
    if distance is None or not _is_of_captions(distance):
        return None
    roles = ("train", "query") if dataset.info.queries_are_gallery else ("train", "query", "gallery")
    return count_words(distance, [label for role in roles for label in dataset.split(role).labels])


def count_words(
    distance: LabelDistance,
    labels: Sequence[Any],  # N labels that it accepts
) -> CountedWords | None:  # the counts; None where the label distance has no word vectors
    """Count the words of captions, and those that the word vectors do not know."""
    return distance.count_words(labels) if _is_of_captions(distance) else None


def _is_of_captions(distance: LabelDistance) -> "TypeGuard[Captions]":
    """Whether a label distance has word vectors."""
    from cml.distances.captions.distance import Captions  # it imports numba

    return isinstance(distance, Captions)
