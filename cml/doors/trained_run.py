"""A finished run with its dataset: its model, labels, and embeddings of queries and gallery."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cml import tasks
from cml.array_types import Float32, Int64
from cml.console.messages import say
from cml.data.image_sources import number_both_groups
from cml.data.images import Images, stored_size
from cml.data.input_form import InputForm, Inputs
from cml.data.prepared import PreparedDataset, Split
from cml.data.vectors import ComputedRows, Vectors
from cml.distances.dataset_labels import encode_labels, unit_in_dataset
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.doors.dataset_items import DatasetItems
from cml.doors.evaluate_items import compute_vector_forms
from cml.doors.load import load
from cml.doors.model import Model
from cml.errors import DataError, UserError
from cml.feature_store.frozen_features import NETWORK, cached_store, check_network, frozen_rows, with_features
from cml.feature_store.manifest import MANIFEST
from cml.feature_store.networks import BackboneNetwork
from cml.feature_store.store import FeatureStore
from cml.items import LabelledItems
from cml.items.label_inputs import Open, label_split, open_at
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel
from cml.models.weights import name_frozen
from cml.processes.ranks import Ranks
from cml.retrieval.feature_forms import STANDARDISED
from cml.retrieval.item_units import groups_hold_classes
from cml.retrieval.label_regression import fit_label_regression
from cml.task import ReportedUnit, Task
from cml.training.saved_model import RunConfig, explain_missing_plugins, kept_models, load_model

Rows = Float32 | ComputedRows
Embeddings = tuple[Rows, Rows]  # of queries (Q, D) and of the gallery (G, D)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished run, made by ``open``. Dataset, labels and embeddings are read or computed at their first use."""

    folder: Path
    config: RunConfig
    model: Model
    data: Path | None = None  # dataset path, if it moved since training
    # the processes that share the embedding of images, each of which has to ask for it; None for one process
    ranks: Ranks | None = None
    # folder of a feature store for the images; None for that of the config, if there is one
    features: Path | None = None

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
        allow_download: bool = False,
        features: Path | str | None = None,
    ) -> Self:
        """Open a finished run.

        Args:
            folder: The run folder.
            data: Dataset path, if it moved since training.
            device: auto, cpu, cuda, ...; ignored with ``ranks``, of which each has its own.
            ranks: Several processes that share the embedding of images.
            label_distance: As for ``cml.load``.
            backbone: As for ``cml.load``.
            allow_download: As for ``cml.load``; it holds for the frozen features of ``evaluate`` too.
            features: Folder of a feature store for the images, if it is not that of the run or was moved.

        Raises:
            UserError: It is not a finished run.
        """
        folder = Path(folder)
        device = device if ranks is None else str(ranks.device)
        model = load(
            folder, device=device, label_distance=label_distance, backbone=backbone, allow_download=allow_download
        )
        moved, store = (None if path is None else Path(path) for path in (data, features))
        return cls(folder, model.run_config, model, moved, ranks, store)

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
            fault = f"{self.folder} was trained on another dataset than {dataset.folder} is now ({why})."
            raise DataError(f"{fault} Give the right one with --data, or train again.")
        network = self.config.made_of.get(NETWORK)
        return dataset if network is None else with_features(dataset, self._store_of(network))

    @functools.cached_property
    def task(self) -> Task:
        """Its task."""
        with explain_missing_plugins(self.config, self.folder):
            return tasks.get(self.config.task)

    @property
    def distance(self) -> LabelDistance:
        """Its label distance."""
        return self.model.label_distance

    @property
    def label_distance(self) -> LabelDistance:
        """Its label distance, as ``Embedder`` calls it."""
        return self.model.label_distance

    @property
    def form(self) -> InputForm:
        """The form of its inputs."""
        return self.model.form

    @functools.cached_property
    def queries(self) -> LabelledItems:
        """The queries of the dataset, in the groups that the run held out together, if any."""
        items = label_split(self.dataset, "query", self.distance, self.open_inputs)
        return items if self._groups is None else replace(items, groups=self._groups[0])

    @functools.cached_property
    def gallery(self) -> LabelledItems:
        """The items that queries rank: the queries themselves, where these are the gallery."""
        if self.dataset.info.queries_are_gallery:
            return self.queries
        items = label_split(self.dataset, "gallery", self.distance, self.open_inputs)
        return items if self._groups is None else replace(items, groups=self._groups[1])

    @functools.cached_property
    def _groups(self) -> tuple[Int64, Int64] | None:
        """Numbers of the groups of queries and gallery items, by the column of the run; None where it has none."""
        column = self.config.train.groups
        if not column:
            return None
        try:
            query, gallery = (self.dataset.read_groups(role, column) for role in ("query", "gallery"))
        except UserError:  # a column of the training items alone
            return None
        if len({*gallery}) == 1 and {*gallery} <= {*query}:  # which leaves nothing to rank
            return None
        numbers = number_both_groups(query, len(query), gallery, len(gallery))
        labels = [label for role in ("query", "gallery") for label in self.dataset.split(role).labels]
        if self.distance.class_names(self.distance.encode(labels[:1])) is None:  # others may take long to encode
            return numbers
        if groups_hold_classes(np.concatenate(numbers), self.distance.class_names(self.distance.encode(labels))):
            return None  # of classes, which queries are to find
        return numbers

    @property
    def query_labels(self) -> Labels:
        """Labels of the queries."""
        return self.queries.labels

    @property
    def gallery_labels(self) -> Labels:
        """Labels of the gallery."""
        return self.gallery.labels

    @property
    def open_inputs(self) -> Open:
        """Opens inputs at the size at which the model reads images."""
        config = self.model.config
        return open_at(stored_size(config.image_size, config.crop), channels=config.inputs.channels)

    def items(self, splits: Sequence[str] = (), *, count: int | None = None, seed: int = 0) -> DatasetItems:
        """Some items of the dataset, see ``DatasetItems``."""
        return DatasetItems(self.dataset, self.distance, splits, count=count, seed=seed)

    @property
    def unit(self) -> str:
        """Unit of the label distance, see ``unit_in_dataset``."""
        return unit_in_dataset(self.distance, self.dataset)

    @property
    def report(self) -> ReportedUnit:
        """The unit in which label distances are reported, and the factor that converts them to it."""
        return ReportedUnit(*self.task.report(self.unit, self.dataset.info))

    @functools.cached_property
    def splits(self) -> tuple[Split, Split]:
        """Queries and gallery."""
        return self.dataset.split("query"), self.dataset.split("gallery")

    @functools.cached_property
    def embeddings(self) -> tuple[Float32, Float32]:
        """Embeddings of queries and gallery by the trained model."""
        query = self._rows(self._embed, self.queries.inputs)
        is_gallery = self.gallery is self.queries
        return query, query if is_gallery else self._rows(self._embed, self.gallery.inputs)

    @functools.cached_property
    def frozen(self) -> dict[str, Embeddings]:
        """The features of the network that ``Model.load_published`` gives, by the name of their row.

        Empty, with a message, if there is no such network. Of a dataset of vectors, these are the vectors themselves,
        in each of the forms that ``compute_vector_forms`` gives.
        """
        if self.model.config.inputs.kind == "vectors":
            is_gallery = self.gallery is self.queries
            return compute_vector_forms(
                self.model.network, self.queries.inputs, None if is_gallery else self.gallery.inputs
            )
        try:
            model = self._published
            embed = functools.partial(self._frozen_features, model)
            if not isinstance(self.queries.inputs, Images):
                query, gallery = (self._rows(embed, items.inputs) for items in (self.queries, self.gallery))
                return {f"frozen {model.config.backbone}": (query, gallery)}
            stores = [cached_store(model, split.paths) for split in self.splits]
            is_stored = self._store is not None and self._store.is_made_by(BackboneNetwork(model).made_by)
            if not is_stored and not all(store is not None and store.exists() for store in stores):
                say(f"features of the frozen {model.config.backbone}: computed once, kept for the next time")
            query, gallery = (self._rows(embed, items.inputs) for items in (self.queries, self.gallery))
        except UserError as error:  # no weights, or images too small for it
            say(f"no row of frozen ImageNet features: {error}")
            return {}
        return {name_frozen(model.config.backbone, model.config.image_size): (query, gallery)}

    @functools.cached_property
    def ridge(self) -> dict[str, Embeddings]:
        """The predictions of a ridge regression of the training labels on the vectors, by the name of their row.

        Empty for images, and for labels of which few can be compared, as judged ones.
        """
        if self.model.config.inputs.kind != "vectors" or self.distance.is_partial:
            return {}
        train = self.dataset.split("train").inputs
        labels = encode_labels(self.distance, self.dataset, "train")
        name, predict = fit_label_regression(self.model.network.standardize_in_parts(train), labels, self.distance)
        query, gallery = self.frozen[STANDARDISED]
        return {name: (predict(query), predict(gallery))}

    @functools.cached_property
    def _published(self) -> EmbeddingModel:
        return self.model.load_published()

    def embed(self, inputs: Inputs, *, bar: str = "") -> Float32:
        """Embeddings (N, D) of inputs; those of queries and gallery are computed once."""
        opened = {"queries": 0, "gallery": 1}.items()
        known = (place for name, place in opened if name in vars(self) and getattr(self, name).inputs is inputs)
        place = next(known, None)
        return self._embed(inputs) if place is None else self.embeddings[place]

    def embed_by_reference(self, inputs: Inputs, *, bar: str = "") -> Float32:
        """Features (N, F) of inputs that do not depend on the labels: of a frozen network, or standardised vectors."""
        if isinstance(inputs, Vectors):
            return self.model.network.standardize(inputs)
        return self._frozen_features(self._published, inputs)

    def embed_stages(self, inputs: Inputs) -> dict[int, Float32]:
        """Embeddings (N, D) of inputs by the models that were kept during training, by their steps."""
        embeddings = {}
        for step, file in kept_models(self.folder).items():
            early = load_model(self.folder, self.config.model, self.model.network.mean.device, file_name=file)
            embeddings[step] = replace(self, model=Model(early, self.config))._embed(inputs)
        return embeddings

    @property
    def reference_name(self) -> str:
        """The row of the frozen features; of vectors, of the standardised ones."""
        return list(self.frozen)[-1] if self.frozen else ""

    def _embed(self, inputs: Inputs) -> Float32:
        """By the trained model; the features below a head on a frozen backbone are read from their cache."""
        if isinstance(inputs, Vectors) or not self.config.train.freeze_backbone:
            return self.model.embed(inputs, bar=self._bar)
        return self.model.network.embed_feature_rows(self._frozen_features(self.model.network, inputs))

    def _frozen_features(self, model: EmbeddingModel, images: Inputs) -> Float32:
        """Backbone features (N, F): of image files from the store if it is of this backbone, or from the cache."""
        paths, store = (images.paths, self._store) if isinstance(images, Images) else (None, None)
        if paths is None or store is None or not store.is_made_by(BackboneNetwork(model).made_by):
            return frozen_rows(model, images, bar=self._bar)
        return store.select(store.find(paths)).read(np.arange(len(paths)))

    @functools.cached_property
    def _store(self) -> FeatureStore | None:
        """The feature store of the images; None, said on stderr, where that of the run is gone."""
        if self.features is not None:
            store = FeatureStore.open(self.features)
            if self.config.train.freeze_backbone:
                store.check_made_by(BackboneNetwork(self.model.network).made_by, f"the features of {self.folder}")
            return store
        folder = self.config.train.features
        if not folder:
            return None
        if not (Path(folder) / MANIFEST).exists():
            say(f"The feature store {folder} of the run is gone: features are computed. --features names another one.")
            return None
        return FeatureStore.open(folder)

    def _store_of(self, network: str) -> FeatureStore:
        """The store whose features the run was trained on, in place of the dataset's items."""
        folder = self.features or Path(self.config.train.features)
        if not (folder / MANIFEST).exists():
            raise DataError(
                f"{self.folder} takes features of {network}, but their store {folder} is gone: compute them again, and "
                "name the store with --features."
            )
        store = FeatureStore.open(folder)
        check_network(store, self.config.made_of, str(self.folder))
        return store

    @property
    def _is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.ranks is None or self.ranks.first

    @property
    def _bar(self) -> str:
        return "embed" if self._is_first else ""

    def _rows(self, embed: Callable[[Inputs], Float32], inputs: Inputs) -> Float32:
        """One row per item, (N, D); of several processes each embeds its share."""
        if self.ranks is None:
            return embed(inputs)
        return self.ranks.compute_rows(len(inputs), lambda rows: embed(inputs.subset(rows)))
