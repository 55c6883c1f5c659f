"""A finished run opened for looking at: model, dataset, label distance, embeddings of queries and gallery."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cml import tasks
from cml.command_line.options import say
from cml.data.prepared import PreparedDataset, Split
from cml.distances.dataset_labels import encode
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel
from cml.models.frozen import features_file, frozen_features
from cml.runs.model import Model, load, needs_plugins, published
from cml.task import Task
from cml.training.run_folder import kept_models, load_model

if TYPE_CHECKING:
    from torch import nn

    from cml.models import Backbone
    from cml.processes.ranks import Ranks
    from cml.training.run_config import RunConfig

Embeddings = tuple[NDArray[np.float32], NDArray[np.float32]]  # of queries (Q, D) and of the gallery (G, D)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished run, read from its folder: what is asked for first is read first. Made by ``open``.

    Attributes:
        folder: The run folder.
        config: What it was trained on, and how.
        model: The trained model.
        data: Where the dataset lies now, if not where it was at training.
        ranks: The processes that share the embedding of images, all of which ask for it; None for this one alone.
    """

    folder: Path
    config: RunConfig
    model: Model
    data: Path | None = None
    ranks: Ranks | None = None

    @classmethod
    def open(
        cls,
        folder: Path | str,
        *,
        data: Path | str | None = None,
        device: str = "auto",
        ranks: Ranks | None = None,
        label_distance: LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
        backbone: nn.Module | Backbone | None = None,
    ) -> Self:
        """Open a run.

        Args:
            folder: The run folder.
            data: Where the dataset lies now, if not where it was.
            device: Where to put the model.
            ranks: The processes that share the work; each has its own device.
            label_distance: The label distance, where it was the user's own and has no registered name.
            backbone: The module that the run was trained with, where that was the user's own.
        backbone: The module that the run was trained with, where that was the user's own.

        Raises:
            UserError: not a finished run.
        """
        folder = Path(folder)
        device = device if ranks is None else str(ranks.device)
        model = load(folder, device=device, label_distance=label_distance, backbone=backbone)
        return cls(folder, model.run_config, model, None if data is None else Path(data), ranks)

    @functools.cached_property
    def dataset(self) -> PreparedDataset:
        """The prepared dataset that it was trained on.

        Raises:
            UserError: there is none, or it is not the one that the run was trained on.
        """
        if not self.config.dataset and self.data is None:
            if self.config.task:  # as of a model that was shared
                raise UserError(f"{self.folder} does not say where its dataset lies; give it with --data.")
            raise UserError(
                f"{self.folder} was trained on images given in Python, not on a prepared dataset; evaluate it there: "
                f"cml.load({str(self.folder)!r}).evaluate(images, labels)."
            )
        dataset = PreparedDataset.open(self.data if self.data is not None else Path(self.config.dataset))
        if why := self.config.other_data(dataset.fingerprint, dataset.made_of):
            raise DataError(
                f"{self.folder} was trained on another dataset than {dataset.folder} is now ({why}). "
                "Give the right one with --data, or train again."
            )
        return dataset

    @functools.cached_property
    def task(self) -> Task:
        """Its task.

        Raises:
            UserError: it is a plugin's, which is not loaded.
        """
        with needs_plugins(self.config, self.folder):
            return tasks.get(self.config.task)

    @functools.cached_property
    def distance(self) -> LabelDistance:
        """Its label distance.

        Raises:
            UserError: it is not registered here.
        """
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
        query, gallery = self.splits
        if self.dataset.info.queries_are_gallery:
            return (both := self._rows(self._embed, query)), both
        return self._rows(self._embed, query), self._rows(self._embed, gallery)

    @functools.cached_property
    def frozen(self) -> tuple[str, Embeddings] | None:
        """Name and features of a frozen ImageNet network: the run's own backbone if it has published weights.

        Otherwise the packaged EfficientNet-Lite0; None, said on stderr, where that is not installed either.
        """
        try:
            model = self._published
            files = [features_file(model, split.paths) for split in self.splits]
            if not all(file is not None and file.exists() for file in files):
                say(f"features of the frozen {model.config.backbone}: computed once, kept for the next time")
            query, gallery = (
                self._rows(functools.partial(frozen_features, model, bar=self._bar), split) for split in self.splits
            )
        except UserError as error:  # no weights, or images too small for it
            say(f"no row of frozen ImageNet features: {error}")
            return None
        return f"frozen {model.config.backbone}", (query, gallery)

    @functools.cached_property
    def _published(self) -> EmbeddingModel:
        """A network with its published weights: the run's own backbone if it has some."""
        return published(self.model)

    def embed_files(self, paths: Sequence[Path], *, frozen: bool = False) -> NDArray[np.float32]:
        """Embeddings (N, D) of image files by the trained model, or the features of the frozen ImageNet network."""
        return frozen_features(self._published, paths, bar=self._bar) if frozen else self._embed(paths)

    def stages(self, paths: Sequence[Path]) -> dict[int, NDArray[np.float32]]:
        """Embeddings (N, D) of image files by the models that were kept during training, by their steps."""
        found = {}
        for step, file in kept_models(self.folder).items():
            early = load_model(self.folder, self.config.model, self.model.mean.device, which=file)
            found[step] = replace(self, model=Model(early, self.config)).embed_files(paths)
        return found

    def _embed(self, paths: Sequence[Path]) -> NDArray[np.float32]:
        """By the trained model; the features below a head on a frozen backbone are read from their cache."""
        if not self.config.train.freeze_backbone:
            return self.model.embed(paths, bar=self._bar)
        return self.model.embed_extracted(frozen_features(self.model, paths, bar=self._bar))

    @property
    def _bar(self) -> str:
        """Title of the progress bar of this process."""
        return "embed" if self.ranks is None or self.ranks.first else ""

    def _rows(self, embed: Callable[[Sequence[Path]], NDArray[np.float32]], split: Split) -> NDArray[np.float32]:
        """One row per image, (N, D); of several processes each embeds its share."""
        if self.ranks is None:
            return embed(split.paths)
        return self.ranks.rows(len(split.paths), lambda rows: embed(split.paths[rows]))
