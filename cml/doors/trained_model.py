"""A trained network, what it was trained with, and how it reads inputs and labels that it is given."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cml import distances
from cml.array_types import Bools, Float32, UInt64
from cml.data.image_sources import number_both_groups, number_groups
from cml.data.images import Images, stored_size
from cml.data.input_form import AcceptedInputs, FieldNames, InputForm
from cml.data.input_sources import recognize_inputs
from cml.data.item_digests import MOST_DIGESTED, digest_items, find_known
from cml.data.judgement_questions import ItemLabels
from cml.distances import LabelDistance
from cml.distances.precomputed import Precomputed
from cml.doors.both_sides import BothSides, check_both_groups
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.label_inputs import label_inputs, open_at
from cml.items.names import align_by_name, name_matrix_rows, names_of
from cml.models import has_published_weights
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.models.forward_pass import ForwardPass
from cml.models.weights import model_fingerprint
from cml.processes.exactness import Decode, Precision
from cml.retrieval.calibration import Calibration
from cml.retrieval.saved_calibration import load_calibration
from cml.searching.embed_stream import embed_items
from cml.storage.downloads import names_of_a_run
from cml.streams.labelled_stream import as_stream, is_stream
from cml.task import label_distance_of
from cml.training.history import History
from cml.training.learner import Selection
from cml.training.run_folder import load_training_items
from cml.training.saved_model import RunConfig, explain_missing_plugins

_OWN_DISTANCE = (
    "One that was registered in Python has to be registered here too: load the file that does it by --plugin FILE, or "
    "give it in Python as label_distance=..."
)
_COMPARED = 20  # inputs that tell whether rows of the matrix are those of the training
_SMALLEST_PUBLISHED = 32  # pixels of a side, which EfficientNet-Lite0 takes


class TrainedModel:
    """A trained network with the label distance and the items of its training: what all doors of ``Model`` rest on."""

    def __init__(
        self,
        network: EmbeddingModel,
        run: RunConfig,
        label_distance: LabelDistance | None = None,
        *,
        allow_download: bool = False,
        references: LabelledItems | None = None,
        selection: Selection | None = None,
        history: History | Path | None = None,
        folder: Path | None = None,
    ) -> None:
        if not isinstance(network, EmbeddingModel) or not isinstance(run, RunConfig):
            raise UserError(
                "cml.Model takes a trained network of cml and the config of its run: cml.fit and cml.load make it. "
                "cml.retrieval.evaluate_embeddings measures the embeddings of any network. "
                f"Got {type(network).__name__} and {type(run).__name__} instead."
            )
        self.network = network
        self.run_config = run
        self.allow_download = allow_download
        self._label_distance = label_distance
        self._references = references
        self.tuning = selection
        self._history = History.of([]) if history is None else history
        self._folder = folder
        self._items_folder = folder  # which says what it was trained on
        self._calibration: Calibration | None = None

    @property
    def config(self) -> ModelConfig:
        """The shape of the network."""
        return self.network.config

    @property
    def form(self) -> InputForm:
        """The form of the inputs."""
        return self.network.config.inputs

    @property
    def history(self) -> History:
        """Losses and validations of the training; of a loaded model, those that its folder holds.

        Raises:
            DataError: The folder's metrics.jsonl is damaged.
        """
        if isinstance(self._history, Path):
            self._history = History.load(self._history)
        return self._history

    @property
    def label_distance(self) -> LabelDistance:
        """The label distance that the model was trained with.

        Raises:
            UserError: It is not registered here; it has to be given to ``cml.load``.
        """
        if self._label_distance is None:
            with (
                explain_missing_plugins(self.run_config, advice=_OWN_DISTANCE),
                names_of_a_run(allow_download=self.allow_download),
            ):
                self._label_distance = label_distance_of(self.run_config.task, self.run_config.label_distance)
        return self._label_distance

    @property
    def digest(self) -> str:
        """A digest of the model's form and weights, by which an index tells its embeddings from those of others."""
        return model_fingerprint(self.network)

    def embed(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        *,
        batch_size: int | None = None,
        bar: str = "",
        decode: Decode = "exact",
        precision: Precision = "float32",
        compile: bool = False,
    ) -> Float32:
        """Embed images of any sizes, or vectors or tensors of the model's shape.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes; or a stream, which is read once, batch by batch.
            batch_size: Inputs per pass; by default 64, or 4096 vectors.
            bar: Title of a progress bar; "" for none.
            decode: "fast" decodes JPEGs at a half, a quarter or an eighth of their size where that is enough, which
                changes pixels and embeddings slightly.
            precision: "bfloat16" (autocast) or "tf32" (on GPUs) in place of "float32".
            compile: Compile the backbone by torch.compile, which takes a minute or more.

        Returns:
            Embeddings (N, D), in evaluation mode.

        Raises:
            UserError: The inputs are of another form than the model's, or hold numbers that are not finite.
        """
        with self.network.use_forward_pass(ForwardPass(decode, precision, compile)):
            if is_stream(inputs):
                parts = embed_items(self.network, as_stream(inputs), batch_size=batch_size, bar=bar)
                return np.concatenate([embeddings for _, embeddings in parts])
            return self.network.embed(inputs, batch_size=batch_size, bar=bar)

    @property
    def calibration(self) -> Calibration | None:
        """What embedding distances mean as label distances; None before ``calibrate``.

        Raises:
            DataError: It was saved with the model, and is damaged or belongs to other weights.
        """
        if self._calibration is None and self._folder is not None:
            self._calibration = load_calibration(self._folder, self.network)
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def as_embeddings(self, inputs: Any) -> Float32:  # noqa: ANN401 - inputs or embeddings
        """Embed inputs that are not embeddings already.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes, or embeddings (N, D). An array (N, D) holds inputs
                only if the model takes vectors of D numbers.

        Returns:
            Embeddings (N, D).

        Raises:
            UserError: As ``embed``.
        """
        return self.network.as_embeddings(inputs)

    def embed_by_reference(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401 - as ``cml.fit`` takes them
        """Compute features that do not depend on the labels: of the published backbone, or standardised vectors.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes.
            bar: Title of a progress bar; "" for none.

        Returns:
            Features (N, F).

        Raises:
            UserError: The model takes neither images nor vectors, or the published weights are not here.
        """
        if self.form.kind == "vectors":
            return self.network.standardize(inputs, bar=bar)
        if self.form.kind == "images":
            return extract_features(self.load_published(), inputs, bar)
        raise UserError(
            f"Items are compared by features that do not depend on the labels, which {self.form} do not have: "
            "compute vectors of the items by another network, and take a model of these."
        )

    def embed_stages(self, inputs: Any) -> dict[int, Float32]:  # noqa: ANN401 - as ``cml.fit`` takes them
        """Embed inputs by the models that were kept during training, of which a model in Python has none.

        Args:
            inputs: N inputs, as ``cml.fit`` takes them.

        Returns:
            Step to embeddings (N, D); none.
        """
        return {}

    def load_published(self) -> EmbeddingModel:
        """Load a network with published weights to compare with: the model's own backbone, or EfficientNet-Lite0.

        Weights that are not in the cache are downloaded only if the model allows that.
        """
        own = self.config.published
        if not has_published_weights(own.backbone):
            height, width = (max(side, _SMALLEST_PUBLISHED) for side in own.image_size)
            as_rgb = InputForm()
            own = replace(
                own, backbone="efficientnet-lite0", weights="imagenet", inputs=as_rgb, image_size=(height, width)
            )
        with names_of_a_run(allow_download=self.allow_download):
            return EmbeddingModel(replace(own, normalize=False)).to(self.network.mean.device)

    @property
    def reference_name(self) -> str:
        """What is compared with has no name of its own here, so that the explorer has no tab of it."""
        return ""

    @functools.cached_property
    def training_items(self) -> UInt64:
        """Digests of the items that it was trained on, 20,000 at most: they tell nothing of what an item is."""
        if self._references is not None:
            return digest_items(self._references.inputs, MOST_DIGESTED)
        return np.empty(0, np.uint64) if self._items_folder is None else load_training_items(self._items_folder)

    def find_training_items(self, inputs: Any) -> Bools:  # noqa: ANN401 - as cml.fit takes them
        """Tell which inputs the model is known to have been trained on.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes. An image counts as another item than its file.

        Returns:
            (N,) whether each has the content of one of at most 20,000 training items; none of embeddings, and of items
            from a data set of your own.

        Raises:
            UserError: The inputs are of another form than the model's.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(60, 3))
            >>> model = cml.fit(rows[:50], rows[:50, 0], steps=2, sampler="random(batch_size=30)", quiet=True)
            >>> int(model.find_training_items(rows).sum())
            50
        """
        if self.network.are_embeddings(inputs):
            return np.zeros(len(inputs), bool)
        opened = self.network.open(inputs)
        if not len(self.training_items):
            return np.zeros(len(opened), bool)
        digests = digest_items(opened)
        return find_known(digests, self.training_items) if len(digests) else np.zeros(len(opened), bool)

    def label_items(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any,  # noqa: ANN401
        *,
        image: str | None = None,
        label: str | None = None,
        ids: Sequence[str] | None = None,
        distance: LabelDistance | None = None,
    ) -> LabelledItems:
        """Recognise inputs with their labels.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them, or where they are rows of a matrix.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            ids: A name for each; None for those that the inputs have.
            distance: The label distance; None for the model's.

        Returns:
            The items.

        Raises:
            UserError: Inputs and labels do not fit each other, the model or the label distance.
        """
        form = self.form
        fields = FieldNames(image, form.columns or form.fields or None, label)
        accepted = AcceptedInputs(
            kind=form.kind,
            missing=form.missing,
            own_backbone=True,
            channels=form.channels,
            collate=self.network.collate,
        )
        distance = self._distance_of(labels) if distance is None else distance
        labels = align_by_name(inputs, labels, "labels")
        if labels is None and label is None and isinstance(distance, Precomputed):
            labels = self._find_rows(distance, inputs)
        known = recognize_inputs(inputs, labels, fields, accepted)
        size = stored_size(self.config.image_size, self.config.crop)
        items = label_inputs(known, distance, open_at(size, channels=form.channels), ids=names_of(inputs))
        if distance is self._label_distance and isinstance(distance, Precomputed):
            self._refuse_other_inputs(items)
        if ids is None:
            return items
        if len(ids) != len(items):
            raise UserError(f"'names' must be as many as the {len(items)} inputs. Got {len(ids)} instead.")
        return replace(items, given_ids=[str(name) for name in ids])

    def label_both(
        self,
        sides: BothSides,
        image: str | None = None,
        label: str | None = None,
        label_distance: Any = None,  # noqa: ANN401 - as cml.fit takes it
    ) -> tuple[LabelledItems, LabelledItems | None]:
        """Recognise queries and gallery with their labels and groups.

        Args:
            sides: What was given of both.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            label_distance: A label distance in place of the model's.

        Returns:
            Queries and gallery; None for the gallery if neither its inputs nor its labels are given.

        Raises:
            UserError: Inputs, labels and groups do not fit each other, the model or the label distance.
        """
        sides, distance = sides.with_rows(label_distance)
        queries = self.label_items(sides.inputs, sides.labels, image=image, label=label, distance=distance)
        if sides.gallery is None and sides.gallery_labels is None:
            if sides.gallery_groups is not None:
                raise UserError("'gallery_groups' need a gallery: give 'groups' for the inputs.")
            groups = align_by_name(sides.inputs, sides.groups, "groups")
            return queries if groups is None else replace(queries, groups=number_groups(groups, len(queries))), None
        ranked = self.label_items(
            sides.gallery, sides.gallery_labels, image=image, label=label, distance=queries.distance
        )
        check_both_groups(sides.groups, sides.gallery_groups)
        if sides.groups is None:
            return queries, ranked
        own, theirs = number_both_groups(
            align_by_name(sides.inputs, sides.groups, "groups"),
            len(queries),
            align_by_name(sides.gallery, sides.gallery_groups, "gallery_groups"),
            len(ranked),
        )
        return replace(queries, groups=own), replace(ranked, groups=theirs)

    def _distance_of(self, labels: Any) -> LabelDistance:  # noqa: ANN401 - as cml.fit takes them
        """The label distance of judgements, which other label distances cannot read; else that of the model."""
        if isinstance(labels, ItemLabels) and labels.label_distance != self.label_distance.name:
            return distances.get(labels.label_distance)
        return self.label_distance

    def _find_rows(self, distance: Precomputed, inputs: Any) -> Sequence[Any]:  # noqa: ANN401 - as cml.fit takes them
        """The rows of a matrix that inputs without labels have; of the training's own by their names alone."""
        if distance is self._label_distance and (distance.names is None or names_of(inputs) is None):
            raise UserError(
                "The model was trained with known label distances, whose rows are items of the training. Give those of "
                "these inputs, label_distance=..., or the rows that the inputs have in them, labels=..."
            )
        return name_matrix_rows(distance, inputs, len(inputs))

    def _refuse_other_inputs(self, items: LabelledItems) -> None:
        """Refuse inputs that are said to be rows of the training's matrix, but are not the inputs of these rows."""
        known = self._references
        if known is None:
            return
        rows, ours, theirs = np.intersect1d(
            items.labels.arrays["rows"], known.labels.arrays["rows"], return_indices=True
        )
        given, learned = items.inputs.subset(ours[:_COMPARED]), known.inputs.subset(theirs[:_COMPARED])
        if (
            isinstance(given, Images)
            and isinstance(learned, Images)
            and (given.paths is None) != (learned.paths is None)
        ):
            return  # a file and its pixels have other digests
        digests, trained = digest_items(given), digest_items(learned)
        if len(digests) and len(digests) == len(trained) and (digests != trained).all():
            raise UserError(
                f"The 'labels' name rows of the matrix of label distances, such as {rows[0]}, that the model was "
                "trained on with other inputs than these. Give the label distances of these, label_distance=..."
            )

    def __getstate__(self) -> dict[str, Any]:
        # a data set of one's own may not pickle; the folder may not be where the pickle is read
        return {**vars(self), "_references": None, "_history": self.history}


def extract_features(network: EmbeddingModel, inputs: Any, bar: str = "") -> Float32:  # noqa: ANN401 - as cml.fit takes them
    """Features (N, F) by a network with its own reading of images, as a published one takes RGB, whatever the bands."""
    return network.extract(inputs.source if isinstance(inputs, Images) else inputs, bar=bar)
