"""The items of a data set dealt to its parts, by hashes of ids or groups. Not for drawn queries: ``graded_sets``."""

import contextlib
import functools
import hashlib
import io
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from cml import data_prep, distances, tasks
from cml.array_types import Float32
from cml.comparing.bench.bench_set import BenchSet, Part, digest_split, standardise_by
from cml.comparing.bench.graded_sets import deal_queries
from cml.comparing.bench.suite import SETS, SPLITS, SUITES, SetSpec, Suite, look_up
from cml.data.dataset_info import FOLDERS, INFO, METADATA
from cml.data.input_form import Missing
from cml.data.prepared import PreparedDataset
from cml.data.vectors import Vectors
from cml.distances.dataset_labels import encode_labels, unit_in_dataset
from cml.errors import UserError
from cml.feature_store.frozen_features import NETWORK_SHA256, with_features
from cml.feature_store.store import FeatureStore
from cml.storage.downloads import cache_folder
from cml.storage.work_folder import exclusive_lock
from cml.task import ReportedUnit
from cml.training.config import TrainConfig

_FEWEST = 20  # items of a part of the user's own dataset


@functools.lru_cache(maxsize=2)
def open_set(name: str, version: str) -> BenchSet:
    """Prepare a set in the cache if it is not there yet, and deal its items to the parts; an error says what lacks.

    A dataset of the user's own is there already.
    """
    spec, suite = look_up("set", name, SETS), look_up("suite", version, SUITES)
    if spec.folder:
        cache = cache_folder() / "bench" / f"{name}-cache"
        dataset = PreparedDataset.open(spec.folder)
        if spec.features:
            dataset = with_features(dataset, FeatureStore.open(spec.features))
        own = deal_items(name, spec, suite, dataset, cache)
        _check_sizes(own)
        return own
    if spec.graded:
        data = deal_queries(name, spec, suite, cache_folder() / "bench" / f"{name}-cache")
    else:
        data = _prepare_set(name, spec, suite)
    fixed = SPLITS.get(version, {}).get(name, data.split)
    if data.split != fixed:
        raise UserError(
            f"The split of {name} in suite {version} is {fixed}, but {data.folder} gives {data.split}: another version "
            "of cml or of a package made it. Delete it and run the command again."
        )
    return data


def _prepare_set(name: str, spec: SetSpec, suite: Suite) -> BenchSet:
    settings, drawn = spec.source_settings(), f"-{suite.count}" if "{count}" in spec.source else ""
    folder = cache_folder() / "bench" / f"{name}{drawn}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.parent / f".{name}.lock", f"the set {name}", wait=True):
        messages = io.StringIO() if (folder / INFO).is_file() else sys.stderr  # that it is prepared is no news
        with contextlib.redirect_stderr(messages):
            dataset = data_prep.registry.get(spec.source.format(count=suite.count), **settings).prepare(folder)
    return deal_items(name, spec, suite, dataset, folder.with_name(f"{name}-cache"))


def _check_sizes(own: BenchSet) -> None:
    """Refuse a dataset of the user's own on which scores mean nothing."""
    sizes = {"validation": len(own.validation), "gallery": len(own.test(0, 0)[1])}
    for part, size in sizes.items():
        if size < _FEWEST:
            raise UserError(
                f"The {part} part of {own.folder} has {size} items; the benchmark needs at least {_FEWEST}. Validation "
                "items are a fifth of the training items."
            )
    known = own.validation_distances[np.isfinite(own.validation_distances)]
    if not known.size or known.min() == known.max():
        raise UserError(f"The validation items of {own.folder} all lie at one label distance: nothing can be ranked.")


def deal_items(name: str, spec: SetSpec, suite: Suite, dataset: PreparedDataset, cache: Path) -> BenchSet:
    """Deal the items of a prepared dataset to the parts of a suite; the set's name is part of the split's digest."""
    task = tasks.get(dataset.info.task)
    text = task.label_distance(task.recipe, dataset.info)
    distance = distances.as_label_distance(text).fit(dataset.split("train").labels)
    ids, groups = dataset.split("train").item_ids, _groups(dataset, "train", spec)
    order = _by_hash(ids, groups if spec.whole else None)
    held = {row for row in order if _share(groups[row], "validation") < 0.2}
    queries, gallery = _test_items(dataset, spec, suite)

    def part(role: str, rows: list[int]) -> Part:
        split, chosen = dataset.split(role), np.array(rows, np.int64)
        some = encode_labels(distance, dataset, role)[chosen]
        ids = [split.item_ids[row] for row in rows]
        own_groups = [groups[row] for row in rows] if spec.group and role == "train" else []
        if split.vectors is not None:
            return Part(ids, [], some, standardize(split.vectors.subset(chosen)), own_groups)
        return Part(ids, [split.paths[row] for row in rows], some, groups=own_groups)

    training = [row for row in order if row not in held][: suite.train]
    standardize = _standardization(dataset, training)
    parts = {
        "train": part("train", training),
        "validation": part("train", [row for row in order if row in held][: suite.validation]),
        "query": part("query", queries[: suite.queries]),
        "gallery": part("gallery", gallery[: suite.gallery]),
    }
    digest = digest_split(suite, name, distance, parts, dataset.made_of.get(NETWORK_SHA256, ""))
    reported_unit = ReportedUnit(*task.report(unit_in_dataset(distance, dataset), dataset.info))
    train, validation, *test = parts.values()
    where = digest, dataset.fingerprint, cache, dataset.folder
    return BenchSet(name, spec, distance, text, reported_unit, train, validation, *where, (test[0], test[1]))


def _standardization(dataset: PreparedDataset, training: list[int]) -> Callable[[Vectors], Float32]:
    """How vectors are standardised by those of the training items; it is not asked for of images."""
    vectors = dataset.split("train").vectors
    if vectors is None:
        return lambda some: some.read(np.arange(len(some)))
    missing: Missing = "mean" if dataset.info.may_miss_numbers else "refuse"
    standardise = standardise_by(vectors.with_missing(missing).subset(np.array(training, np.int64)))
    return lambda some: standardise(some.with_missing(missing))


def compute_features(config: TrainConfig, part: Part) -> Float32:
    """Features (N, F) of the frozen backbone, from the cache if they are there; of vectors, these themselves."""
    if part.vectors is not None:
        return part.vectors
    return _features(config.backbone, config.weights, config.image_size, tuple(part.paths))


@functools.lru_cache(maxsize=8)
def _features(backbone: str, weights: str, image_size: tuple[int, int], paths: tuple[Path, ...]) -> Float32:
    return _network(backbone, weights, image_size)(paths)


@functools.lru_cache(maxsize=1)
def _network(backbone: str, weights: str, image_size: tuple[int, int]) -> Callable[[Sequence[Path]], Float32]:
    import torch

    from cml.feature_store.frozen_features import frozen_features
    from cml.models.embedding import EmbeddingModel, ModelConfig
    from cml.processes.own_generator import draw_from

    with draw_from(torch.Generator().manual_seed(0)):  # of one without weights
        model = EmbeddingModel(ModelConfig(backbone, weights, 2, False, image_size))
    return functools.partial(frozen_features, model)


def _test_items(dataset: PreparedDataset, spec: SetSpec, suite: Suite) -> tuple[list[int], list[int]]:
    """Rows of queries and of gallery items, of either in an order from which the first are taken."""
    ids = [dataset.split(role).item_ids for role in ("query", "gallery")]
    if not spec.whole:
        queries, gallery = map(_by_hash, ids)
        if dataset.info.queries_are_gallery:  # of few items, half are searched for
            asked = min(suite.queries, len(queries) // 2)
            queries, gallery = queries[:asked], queries[asked:]
        return queries, gallery
    of_queries = _groups(dataset, "query", spec)
    if dataset.info.queries_are_gallery:
        chosen = set(_by_hash(ids[0], of_queries)[: suite.queries + suite.gallery])
        queries = [row for row in _by_hash(ids[0]) if row in chosen]
        return queries, queries[suite.queries :]
    of_gallery = _groups(dataset, "gallery", spec)
    gallery = _by_hash(ids[1], of_gallery)[: suite.gallery]
    there = {of_gallery[row] for row in gallery}
    return [row for row in _by_hash(ids[0]) if of_queries[row] in there], gallery


def _groups(dataset: PreparedDataset, role: str, spec: SetSpec) -> list[str]:
    """The group of each item of a role: itself, if the set has no groups."""
    ids = dataset.split(role).item_ids
    if not spec.group:
        return list(ids)
    lines = (dataset.folder / FOLDERS[role] / METADATA).read_bytes().splitlines()
    column = {str(item["item_id"]): item[spec.group] for item in map(msgspec.json.decode, lines)}
    if spec.cell:
        column = {item: [math.floor(degrees / spec.cell) for degrees in place[:2]] for item, place in column.items()}
    return [item if column[item] == "" else str(column[item]) for item in ids]  # one without a group is its own


def _share(text: str, salt: str) -> float:
    """A number in 0..1 that depends on a text alone."""
    return int.from_bytes(hashlib.sha256(f"{salt}:{text}".encode()).digest()[:6]) / 2**48


def _by_hash(ids: Sequence[str], groups: Sequence[str] | None = None) -> list[int]:
    """Rows in the order of hashes of their ids; with groups, those of one group after another."""
    own = [_share(item, "order") for item in ids]
    first = own if groups is None else [_share(group, "group") for group in groups]
    return sorted(range(len(ids)), key=lambda row: (first[row], own[row]))
