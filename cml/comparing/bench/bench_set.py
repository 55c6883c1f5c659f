"""A data set of the benchmark: its parts with their label distances. Not for how items are dealt to the parts."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.comparing.bench.suite import NO_BACKBONE, SetSpec, Suite
from cml.data.vectors import Vectors
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import map_array
from cml.task import ReportedUnit


@dataclass(frozen=True)
class Part:
    """Items of a set: N ids, images and encoded labels; in place of images (N, F) vectors, standardised."""

    item_ids: Sequence[str]
    paths: Sequence[Path]
    labels: Labels
    vectors: Float32 | None = None
    groups: Sequence[str] = ()  # of each item, if the set has groups

    def __len__(self) -> int:
        return len(self.item_ids)


@dataclass(frozen=True)
class BenchSet:
    """A data set of the suite, opened."""

    name: str
    spec: SetSpec
    distance: LabelDistance
    label_distance: str  # as a text
    reported_unit: ReportedUnit  # in which results state label distances
    train: Part
    validation: Part  # each item is searched among all others
    split: str  # sha256 of all parts
    data: str  # sha256 of what the parts are made of
    cache: Path  # where its label distances are kept
    folder: Path  # the prepared dataset; of a set without one, that of its cache
    _test: tuple[Part, Part]

    def test(self, trials: int, wanted: int) -> tuple[Part, Part]:
        """Queries and gallery, for the final runs of a method that had all of its wanted trials."""
        if trials < wanted:
            done = f"only {trials} of {wanted} trials are done"
            raise UserError(f"The test part of {self.name} is for final runs: {done}.")
        return self._test

    @functools.cached_property
    def train_distances(self) -> Float32:
        """Label distances among training items (N, N)."""
        return self._load_distances("train", self.train, self.train)

    @functools.cached_property
    def validation_distances(self) -> Float32:
        """Label distances among validation items (V, V), infinite from an item to itself."""
        distances = np.array(self._load_distances("validation", self.validation, self.validation))
        np.fill_diagonal(distances, np.inf)
        return distances

    @functools.cached_property
    def test_distances(self) -> Float32:
        """Label distances of queries and gallery (Q, G), which rankings are scored with."""
        return self._load_distances("test", *self._test)

    @functools.cached_property
    def vectors(self) -> Float32 | None:
        """Training labels as vectors (N, V), None where they are none."""
        return self.distance.label_vectors(self.train.labels)

    def _load_distances(self, name: str, rows: Part, columns: Part) -> Float32:
        path = self.cache / f"distances-{self.split[:16]}-{name}.npy"
        if not path.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as temporary:
                np.save(temporary, self.distance.pairwise(rows.labels, columns.labels), allow_pickle=False)
        return map_array(path)


def digest_split(suite: Suite, name: str, distance: LabelDistance, parts: Mapping[str, Part], network: str = "") -> str:
    """The SHA-256 of the parts of a set; ``network`` is that of one whose features take the place of the items."""
    digest = hashlib.sha256(f"{suite.version} {name} {distance.fingerprint()}".encode())
    if network:  # features of another network are another set
        digest.update(f"\n{network}".encode())
    for role, items in parts.items():
        digest.update(f"\n{role} {items.labels.fingerprint()} ".encode())
        digest.update(hashlib.sha256("\n".join(items.item_ids).encode()).digest())
    return digest.hexdigest()


def standardise_by(vectors: Vectors) -> Callable[[Vectors], Float32]:
    """How vectors are standardised by those of the training items."""
    from cml.models.embedding import EmbeddingModel, ModelConfig

    model = EmbeddingModel(ModelConfig(NO_BACKBONE, "none", 1, False, (1, 1), inputs=vectors.form))
    model.fit_standardization(vectors)
    return model.standardize
