"""A finished run opened for looking at: model, embeddings; its dataset, what that brings to an evaluation."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml import tasks
from cml.console.messages import say
from cml.data.prepared import PreparedDataset, Split
from cml.data_prep.table import cell, number, read_rows
from cml.distances.dataset_labels import encode
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel, features_file, frozen_features
from cml.processes.ranks import Ranks
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.metrics.pair_spearman import compute_pair_spearman
from cml.retrieval.oracle_row import ORACLE
from cml.retrieval.random_row import RANDOM
from cml.retrieval.results import Evaluation
from cml.runs.model import Model, load, needs_plugins, published
from cml.task import Task
from cml.training.run_config import RunConfig
from cml.training.saved_model import kept_models, load_model

Embeddings = tuple[NDArray[np.float32], NDArray[np.float32]]  # of queries (Q, D) and of the gallery (G, D)
PAIRS = "pairs.csv"  # in the folder of a prepared dataset that comes with such pairs
_METRIC = "pair_spearman"


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished run: what is asked for first is read first. Made by ``open``."""

    folder: Path
    config: RunConfig
    model: Model
    data: Path | None = None  # where the dataset lies now, if not where it was at training
    ranks: Ranks | None = None  # the processes that share the embedding of images, all of which ask for it

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        data: Path | str | None = None,
        device: str = "auto",
        ranks: Ranks | None = None,
        **own: Any,  # noqa: ANN401 - of ``load``
    ) -> Self:
        """As ``cml.open_run``; of several processes, ``ranks``, each has its own device."""
        folder = Path(folder)
        model = load(folder, device=device if ranks is None else str(ranks.device), **own)
        return cls(folder, model.run_config, model, None if data is None else Path(data), ranks)

    @functools.cached_property
    def dataset(self) -> PreparedDataset:
        """The prepared dataset that it was trained on."""
        if not self.config.dataset and self.data is None:
            if self.config.task:  # as of a model that was shared
                raise UserError(f"{self.folder} does not say where its dataset lies; give it with --data.")
            there = f"evaluate it there: cml.load({str(self.folder)!r}).evaluate(images, labels)."
            raise UserError(f"{self.folder} was trained on images given in Python, not on a prepared dataset; {there}")
        dataset = PreparedDataset.open(self.data if self.data is not None else Path(self.config.dataset))
        if why := self.config.other_data(dataset.fingerprint, dataset.made_of):
            said = f"{self.folder} was trained on another dataset than {dataset.folder} is now ({why})."
            raise DataError(f"{said} Give the right one with --data, or train again.")
        return dataset

    @functools.cached_property
    def task(self) -> Task:
        """Its task."""
        with needs_plugins(self.config, self.folder):
            return tasks.get(self.config.task)

    @property
    def distance(self) -> LabelDistance:
        """Its label distance."""
        return self.model.label_distance

    @functools.cached_property
    def query_labels(self) -> Labels:
        """Labels of the queries."""
        return encode(self.distance, self.dataset, "query")

    @functools.cached_property
    def gallery_labels(self) -> Labels:
        """Labels of the gallery."""
        return encode(self.distance, self.dataset, "gallery")

    @property
    def unit(self) -> str:
        """Unit of the label distance; a distance of plain numbers is in the unit that the dataset gives them."""
        return self.distance.unit.replace("label units", self.dataset.info.label_unit or "label units")

    @property
    def report(self) -> tuple[float, str]:
        """What mean label distances are multiplied with to be reported, and their unit then."""
        return self.task.report(self.unit, self.dataset.info)

    @functools.cached_property
    def splits(self) -> tuple[Split, Split]:
        """Queries and gallery."""
        return self.dataset.split("query"), self.dataset.split("gallery")

    @functools.cached_property
    def embeddings(self) -> Embeddings:
        """Embeddings of queries and gallery by the trained model."""
        query = self._rows(self._embed, self.splits[0])
        return query, query if self.dataset.info.queries_are_gallery else self._rows(self._embed, self.splits[1])

    @functools.cached_property
    def frozen(self) -> tuple[str, Embeddings] | None:
        """Name and features of the network that ``published`` gives; None, said on stderr, where there is none."""
        try:
            model = self._published
            files = [features_file(model, split.paths) for split in self.splits]
            if not all(file is not None and file.exists() for file in files):
                say(f"features of the frozen {model.config.backbone}: computed once, kept for the next time")
            embed = functools.partial(frozen_features, model, bar=self._bar)
            query, gallery = (self._rows(embed, split) for split in self.splits)
        except UserError as error:  # no weights, or images too small for it
            say(f"no row of frozen ImageNet features: {error}")
            return None
        return f"frozen {model.config.backbone}", (query, gallery)

    @functools.cached_property
    def _published(self) -> EmbeddingModel:
        return published(self.model)

    def embed_files(self, paths: Sequence[Path], *, frozen: bool = False) -> NDArray[np.float32]:
        """Embeddings (N, D) of image files by the trained model, or the features of the frozen ImageNet network."""
        return frozen_features(self._published, paths, bar=self._bar) if frozen else self._embed(paths)

    def stages(self, paths: Sequence[Path]) -> dict[int, NDArray[np.float32]]:
        """Embeddings (N, D) of image files by the models that were kept during training, by their steps."""
        found = {}
        for step, file in kept_models(self.folder).items():
            early = load_model(self.folder, self.config.model, self.model.mean.device, file_name=file)
            found[step] = replace(self, model=Model(early, self.config)).embed_files(paths)
        return found

    def _embed(self, paths: Sequence[Path]) -> NDArray[np.float32]:
        """By the trained model; the features below a head on a frozen backbone are read from their cache."""
        if not self.config.train.freeze_backbone:
            return self.model.embed(paths, bar=self._bar)
        return self.model.embed_extracted(frozen_features(self.model, paths, bar=self._bar))

    @property
    def _bar(self) -> str:
        return "embed" if self.ranks is None or self.ranks.first else ""

    def _rows(self, embed: Callable[[Sequence[Path]], NDArray[np.float32]], split: Split) -> NDArray[np.float32]:
        """One row per image, (N, D); of several processes each embeds its share."""
        if self.ranks is None:
            return embed(split.paths)
        return self.ranks.compute_rows(len(split.paths), lambda rows: embed(split.paths[rows]))


def published_recall_ks(trained: TrainedRun) -> Sequence[int]:
    """The K of Recall@K that the dataset was published with, if any."""
    ks = trained.dataset.info.details.get("recall_ks")
    if ks is None:
        return ()
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        where = f"dataset.json of {trained.dataset.info.name!r}: details.recall_ks"
        raise DataError(f"{where} should list whole numbers of at least 1. Got {ks!r} instead.")
    return ks


def published_recall_within(trained: TrainedRun) -> float:
    """The label distance up to which the dataset's publishers count an item as relevant to Recall@K; 0 for none."""
    within = trained.dataset.info.details.get("recall_within", 0)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within < math.inf:
        where = f"dataset.json of {trained.dataset.info.name!r}: details.recall_within"
        raise DataError(f"{where} should be a label distance of at least 0. Got {within!r} instead.")
    return within


@dataclass(frozen=True)
class Pairs:
    """P pairs: places of both items among queries and, behind them, gallery; and how similar they are said to be."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    given: NDArray[np.float64]


def read_pairs(path: Path, places: Mapping[str, int]) -> Pairs:
    """Read a CSV or JSONL file with the columns item, other and similarity; pairs of other items are left out."""
    found: list[tuple[int, int, float]] = []
    total = 0
    for where, row in read_rows(path):
        if isinstance(row, DataError):
            raise row
        names = [str(cell(row, column, where, option="that name")) for column in ("item", "other")]
        similarity = number(cell(row, "similarity", where, option="that name"), "similarity", where)
        if names[0] == names[1]:
            raise DataError(f"{where}: {names[0]!r} is paired with itself; delete the line.")
        total += 1
        if all(name in places for name in names):
            found.append((places[names[0]], places[names[1]], similarity))
    if not found:
        raise DataError(f"{path}: of its {total} pairs none is of two items among queries and gallery, by item_id.")
    if len(found) < total:
        say(f"{path}: {total - len(found)} of {total} pairs are not of two items among queries and gallery, left out")
    first, second, given = zip(*found, strict=True)
    return Pairs(np.array(first), np.array(second), np.array(given, np.float64))


def with_pairs(
    evaluation: Evaluation, trained: TrainedRun, embeddings: Mapping[str, Embeddings], path: Path, seed: int
) -> Evaluation:
    """The evaluation with pair_spearman, a mean over resamples; ``embeddings``: of all rows but oracle and random."""
    splits = trained.splits[:1] if trained.dataset.info.queries_are_gallery else trained.splits
    ids = [item for split in splits for item in split.item_ids]
    labels = [label for split in splits for label in split.labels]
    pairs = read_pairs(path, {item: place for place, item in enumerate(ids)})

    rows = {}
    for name, metrics in evaluation.rows.items():
        if name == ORACLE:
            distances = np.empty(len(pairs.given))
            for place in np.unique(pairs.first):
                at = np.flatnonzero(pairs.first == place)
                some = trained.distance.encode([labels[place], *(labels[other] for other in pairs.second[at])])
                distances[at] = trained.distance.pairwise(some[:1], some[1:])[0]
        elif name == RANDOM:
            distances = np.random.default_rng(seed).random(len(pairs.given))
        else:
            every = np.concatenate(embeddings[name][: len(splits)]).astype(np.float64)
            distances = np.square(every[pairs.first] - every[pairs.second]).sum(axis=1)
        values = compute_pair_spearman(pairs.first.tolist(), -distances, pairs.given, seed=seed)
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else float("nan")
        low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (mean, mean)
        rows[name] = {**metrics, _METRIC: MetricResult(_METRIC, np.empty(0), mean, float(low), float(high))}
    return replace(evaluation, rows=rows)
