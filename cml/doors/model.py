"""A trained model for use from Python: embed, evaluate, search, save."""

import contextlib
import copy
import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from cml import distances
from cml.array_types import Bools, Float32, Float64, Int64, UInt64
from cml.checks.advice import advise, render_call
from cml.checks.audit_list import AuditList
from cml.checks.calibrate_items import KnownItems, calibrate_items
from cml.data.encode_image import describe_shown_bands
from cml.data.image_sources import number_both_groups, number_groups
from cml.data.images import Images, stored_size
from cml.data.input_form import AcceptedInputs, FieldNames, InputForm
from cml.data.input_sources import recognize_inputs
from cml.data.item_digests import MOST_DIGESTED, digest_items, find_known
from cml.data.judgement_questions import ItemLabels
from cml.distances import LabelDistance
from cml.distances.precomputed import Precomputed
from cml.doors.both_sides import BothSides, check_both_groups, read_excluded
from cml.doors.evaluate_items import Report, compute_vector_forms, evaluate_items, own_rows
from cml.errors import UserError
from cml.export.sentence_folder import write_sentence_folder
from cml.items import LabelledItems
from cml.items.label_inputs import label_inputs, open_at
from cml.items.labelled_items import Presentation
from cml.items.names import align_by_name, name_matrix_rows, names_of
from cml.models import has_published_weights
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.models.heads import shorten_head
from cml.models.weights import model_fingerprint
from cml.retrieval.calibration import LEVEL, Calibration
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.feature_forms import STANDARDISED, normalize_rows
from cml.retrieval.gallery import Gallery, predict_labels
from cml.retrieval.label_regression import LabelSignals, find_label_signal, fit_label_regression
from cml.retrieval.novelty import Novelty
from cml.retrieval.results import Evaluation
from cml.retrieval.saved_calibration import load_calibration, save_calibration
from cml.retrieval.search import nearest_embeddings
from cml.retrieval.verdict import Standing
from cml.searching.embedding_folder import EmbeddingFolder
from cml.storage.atomic import atomic_folder
from cml.storage.downloads import names_of_a_run
from cml.task import label_distance_of
from cml.training.history import History
from cml.training.learner import Selection
from cml.training.run_folder import load_training_items, save_training_items
from cml.training.saved_model import RunConfig, explain_missing_plugins, save_finished

if TYPE_CHECKING:
    from cml.explore.explorer import Explorer
    from cml.export.onnx_graph import OnnxExport
    from cml.protocols import Protocol, ProtocolResult

_OWN_DISTANCE = (
    "One that was registered in Python has to be registered here too: load the file that does it by --plugin FILE, or "
    "give it in Python as label_distance=..."
)
_COMPARED = 20  # inputs that tell whether rows of the matrix are those of the training

_SMALLEST_PUBLISHED = 32  # pixels of a side, which EfficientNet-Lite0 takes


class Model:
    """A trained embedding model, and what it was trained with.

    ``embed`` takes all that ``cml.fit`` takes. ``network`` is the ``torch.nn.Module`` from images (B, 3, h, w), uint8
    or float in 0..255, to embeddings (B, D), or from vectors (B, V) or tensors (B, ...) if it was trained on those.
    ``cml.fit`` and ``cml.load`` make it.

    Args:
        network: The trained ``EmbeddingModel``.
        run: The ``RunConfig`` that it was trained with.
        label_distance: The label distance that it was trained with, for one that has no registered name.
        allow_download: Whether models that the config names may be downloaded, such as that of ``sentences(...)``.
        references: The training inputs and their labels, among which ``predict`` finds neighbours. They are neither
            saved nor pickled.
        selection: How ``cml.fit(..., tune=True)`` chose the embedding; None for a model that was trained in steps or
            loaded.
        history: The ``History`` of the training, or the folder to read it from when it is asked for; None for none.
        folder: The folder that the model was loaded from, which may hold its calibration.

    Attributes:
        network: As given.
        run_config: As given.
        tuning: How ``cml.fit(..., tune=True)`` chose the embedding; None of others.
        allow_download: As given.

    Example:
        >>> import numpy as np
        >>> import cml
        >>> hues = np.linspace(0, 255, 40).round()
        >>> images = np.tile(hues[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
        >>> model = cml.fit(images, hues, backbone="small-cnn", weights="none", image_size=(16, 16), steps=2,
        ...                 sampler="random(batch_size=20)", workers=0, quiet=True)
        >>> model
        Model(small-cnn, 16 x 16 pixels -> 128 numbers, L2-normalised)
        >>> model.embed(images).shape
        (40, 128)
        >>> positions, distances = model.search(images[:3], images, k=1)
        >>> positions.ravel().tolist()
        [0, 1, 2]
        >>> list(model.evaluate(images, hues).rows)
        ['embedding', 'random', 'oracle']
    """

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

    def embed(self, inputs: Any, *, batch_size: int | None = None, bar: str = "") -> Float32:  # noqa: ANN401
        """Embed images of any sizes, or vectors or tensors of the model's shape.

        Args:
            inputs: N inputs, of any kind that ``cml.fit`` takes.
            batch_size: Inputs per pass; by default 64, or 4096 vectors.
            bar: Title of a progress bar; "" for none.

        Returns:
            Embeddings (N, D), in evaluation mode.

        Raises:
            UserError: The inputs are of another form than the model's, or hold numbers that are not finite.
        """
        return self.network.embed(inputs, batch_size=batch_size, bar=bar)

    def shorten(self, dimension: int) -> "Model":
        """A model of the first dimensions, for losses that train them to stand alone, such as ``matryoshka``.

        Args:
            dimension: How many of the D dimensions.

        Returns:
            A model of its own, to embed, index, search, save and export; it L2-normalises if this one does.

        Raises:
            UserError: ``dimension`` is not from 1 to D.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(60, 3))
            >>> model = cml.fit(rows, rows[:, 0], loss="matryoshka(dimensions=(2, 8))", dimension=8, steps=2,
            ...                 sampler="random(batch_size=30)", quiet=True)
            >>> model.shorten(2).embed(rows).shape
            (60, 2)
        """
        if not 1 <= dimension <= self.config.dimension:
            raise UserError(f"'dimension' must be from 1 to {self.config.dimension}. Got {dimension} instead.")
        network = copy.copy(self.network)
        network._modules = dict(self.network._modules)  # the backbone is shared
        network.head = shorten_head(self.network.head, dimension)  # type: ignore[arg-type]
        network.config = replace(self.config, dimension=dimension)
        run = replace(self.run_config, model=network.config)
        short = Model(
            network, run, self._label_distance, allow_download=self.allow_download, references=self._references
        )
        short._items_folder = self._items_folder
        return short

    def novelty(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        known: Any = None,  # noqa: ANN401
    ) -> Float64:
        """Tell whether inputs resemble those that the model was trained on, so that their embeddings can be trusted.

        Items are compared by features that leave out nothing, as an embedding leaves out what the labels do not depend
        on: of vectors the standardised numbers, of images the directions of the features of the published backbone, or
        of EfficientNet-Lite0. Of other inputs, and where the published weights are not here, they are those of the
        model's own backbone.

        Args:
            inputs: Q inputs.
            known: Inputs that the model is meant for, at least 40; None for those that it was trained on, which a
                model that was loaded, or trained on a stream, does not have.

        Returns:
            (Q,) the share of known items that are at least as far from other known ones. Of items like these, 5 % have
            a score of at most 0.05; items of another kind have small scores.

        Raises:
            UserError: There are too few known items, or none.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = cml.fit(rows, rows[:, 0], steps=2, sampler="random(batch_size=50)", quiet=True)
            >>> bool(model.novelty([[50.0, 50.0, 50.0]])[0] < 0.02)
            True
        """
        if known is None and self._references is None:
            raise UserError(
                "A model that was loaded, or trained on a stream, does not have its items: give 'known' inputs."
            )
        groups = None
        if known is None:
            assert self._references is not None
            known, groups = self._references.inputs, self._references.groups
        describe = self._find_features()
        return Novelty(describe(known), groups).score(describe(inputs))

    def _find_features(self) -> Callable[[Any], Float32]:
        """The features that tell familiar items from others; a backbone that was trained here tells them worse."""
        network = self.network
        if self.form.kind == "vectors":
            return network.standardize
        if self.form.kind == "images":
            with contextlib.suppress(UserError):  # the published weights are not here
                network = self.load_published()
        return lambda items: normalize_rows(_extract(network, items))

    @property
    def query_model(self) -> "Model":
        """The model that embeds what is searched for: this one, but in graded search with two networks."""
        return self

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
            return _extract(self.load_published(), inputs, bar)
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

    def evaluate(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
        gallery_groups: Any = None,  # noqa: ANN401
        label_distance: Any = None,  # noqa: ANN401 - as ``cml.fit`` takes it
        image: str | None = None,
        label: str | None = None,
        options: EvaluateOptions | None = None,
    ) -> Evaluation:
        """Evaluate how well inputs find others with near labels, beside chance and the best possible ranking.

        Args:
            inputs: The queries, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them. ``PairJudgements`` and
                ``TripletJudgements`` evaluate any model by what people judged of the inputs.
            gallery: The inputs that are ranked; None lets every query rank all other queries.
            gallery_labels: A label for each of them.
            groups: A name or number for each query, such as its subject: queries rank the items of other groups alone,
                and intervals count groups. Without it, the verdict names near copies in the gallery.
            gallery_groups: The same for each gallery item.
            label_distance: A label distance in place of that of the training. Of a matrix, labels are not needed: it
                has the distances of the queries, (Q, Q), or those from queries to gallery items, (Q, G), by the names
                of a frame or else in their order.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            options: What is measured, and how, a ``cml.retrieval.EvaluateOptions``; the defaults when not given.

        Returns:
            The rows "embedding", "random" and "oracle", each metric with its 95 % interval over items. Of a model of
            vectors also the vectors themselves, "vectors" as they are, "vectors, L2-normalised" and "vectors,
            standardised"; the verdict compares with the best of the three. Until the model is saved and loaded, there
            is also "ridge" or "ridge on label MDS": the prediction of a ridge regression of the training labels. Where
            the embedding is not better than each of these, the verdict says what would help.

        Raises:
            UserError: inputs and labels that do not fit each other, the model or the label distance.
        """
        sides = BothSides(inputs, labels, gallery, gallery_labels, groups, gallery_groups)
        queries, ranked = self._label_both(sides, image, label, label_distance)
        report = Report(self._baselines(queries, ranked), own_rows=own_rows(self.tuning))
        if queries.distance is self.label_distance:
            report = replace(report, advise=self._advise)
        evaluation = evaluate_items(self, queries, ranked, options, report)
        if self.tuning is None:
            return evaluation
        return evaluation.extend_verdict(self.tuning.describe_reference(), is_caution=True)

    def measure(
        self,
        protocol: "Protocol | str",
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
        gallery_groups: Any = None,  # noqa: ANN401
        label_distance: Any = None,  # noqa: ANN401 - as ``cml.fit`` takes it
    ) -> "ProtocolResult":
        """Measure inputs by a protocol of the field, such as the errors of a regression on the embedding.

        Args:
            protocol: "regression", "verification", "re-identification", "few-shot" or "compact-codes", also with
                settings, as in "regression(k=5)", or a ``cml.protocols.Protocol``.
            inputs: The queries, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them.
            gallery: The inputs that they are compared with, such as training items; None for the queries themselves.
            gallery_labels: A label for each of them.
            groups: A name or number for each query, such as its camera or patient.
            gallery_groups: The same for each gallery item.
            label_distance: A label distance in place of that of the training.

        Returns:
            The figures with their 95 % intervals; ``print`` shows a table.

        Raises:
            UserError: The protocol does not know the labels, or inputs and labels do not fit.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = cml.fit(rows, rows[:, 0], steps=50, sampler="random(batch_size=50)", quiet=True)
            >>> sorted(model.measure("regression", rows, rows[:, 0]).figures)
            ['knn', 'probe']
        """
        from cml.protocols.measure_items import as_protocol, measure_items

        sides = BothSides(inputs, labels, gallery, gallery_labels, groups, gallery_groups)
        return measure_items(self, as_protocol(protocol), *self._label_both(sides, None, None, label_distance))

    def predict(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
        gallery_groups: Any = None,  # noqa: ANN401
        k: int = 10,
    ) -> list[Any]:
        """Predict labels from those of the nearest neighbours; see ``cml.retrieval.gallery``.

        Args:
            inputs: N inputs.
            gallery: The inputs whose labels are known; None for those that the model was trained on, which one that
                was loaded, or trained on a stream, does not have.
            gallery_labels: A label for each of them.
            groups: A name or number for each input, such as its subject, whose own items are no neighbours.
            gallery_groups: The same for each gallery item.
            k: Neighbours of each input.

        Returns:
            N labels: weighted means of numbers, vectors, angles and places, else the label of the medoid.

        Raises:
            UserError: There is no gallery, or inputs or labels do not fit.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(200, 3))
            >>> model = cml.fit(rows, rows[:, 0], steps=50, sampler="random(batch_size=50)", quiet=True)
            >>> len(model.predict(rows[:5], k=5))
            5
        """
        known, own, theirs = self._references, None, None
        if gallery is not None or gallery_labels is not None:
            known = self._label(gallery, gallery_labels)
        if known is None:
            raise UserError(
                "A model that was loaded, or trained on a stream, does not have its items: give 'gallery' and "
                "'gallery_labels'."
            )
        if k < 1:
            raise UserError(f"'k' must be 1 or more. Got {k} instead.")
        check_both_groups(groups, gallery_groups)
        embeddings, rows = self.embed(known.inputs, bar="embed"), self.embed(inputs, bar="embed")
        if groups is not None:
            groups = align_by_name(inputs, groups, "groups")
            own, theirs = number_both_groups(groups, len(rows), gallery_groups, len(embeddings))
        labels, distance = known.given_labels, self.label_distance
        return predict_labels(rows, embeddings, labels, distance, k=k, groups=own, gallery_groups=theirs)

    def search(
        self,
        queries: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery: Any,  # noqa: ANN401
        k: int = 10,
        *,
        exclude: Any = None,  # noqa: ANN401 - positions
    ) -> tuple[Int64, Float32]:
        """Find the k gallery items nearest to each query by embedding distance (L2), exactly.

        Args:
            queries: Q inputs, or their embeddings (Q, D) float32. Of a model of vectors whose V is D, an array (Q, D)
                holds vectors; ``cml.retrieval.search.nearest_embeddings`` searches embeddings alone.
            gallery: G inputs, or their embeddings (G, D) float32, likewise. To search it more than once, give a
                ``cml.retrieval.gallery.Gallery`` of embeddings or a ``cml.EmbeddingFolder``, which keep what a search
                needs of them.
            k: Items found for each query, at most G.
            exclude: For each query the position in the gallery, or a list of positions, of what it is not to find, such
                as itself and others of its group. ``k`` items have to be left for each.

        Returns:
            Positions (Q, k) in the gallery, nearest first, and their embedding distances (Q, k).

        Raises:
            UserError: something is no input of the model, or k is out of range.
        """
        rows = self.as_embeddings(queries)
        if isinstance(gallery, EmbeddingFolder) and gallery.digest != self.digest:
            raise UserError(
                f"{gallery.folder} holds embeddings of another model: they cannot be compared. Embed again."
            )
        held = gallery.gallery if isinstance(gallery, EmbeddingFolder) else gallery
        if not isinstance(held, Gallery):
            held = self.as_embeddings(held)
        is_live = held.is_live if isinstance(held, Gallery) else np.ones(len(held), bool)
        left_out = [] if exclude is None else read_excluded(exclude, len(rows), is_live, k)
        take = min(k + max(map(len, left_out), default=0), max(k, int(is_live.sum())))
        if isinstance(held, Gallery):
            distances, positions = held.search(rows, take)
        else:
            distances, positions = nearest_embeddings(rows, held, take)
        if left_out:
            is_hidden = np.stack([np.isin(found, hidden) for found, hidden in zip(positions, left_out, strict=True)])
            first = np.argsort(is_hidden, axis=1, kind="stable")[:, :k]
            positions = np.take_along_axis(positions, first, 1)
            distances = np.take_along_axis(distances, first, 1)
        return positions, distances

    @property
    def calibration(self) -> Calibration | None:
        """What embedding distances mean as label distances; None before ``calibrate``.

        Raises:
            DataError: It was saved with the model, and is damaged or belongs to other weights.
        """
        if self._calibration is None and self._folder is not None:
            self._calibration = load_calibration(self._folder, self.network)
        return self._calibration

    def calibrate(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
        gallery_groups: Any = None,  # noqa: ANN401
        image: str | None = None,
        label: str | None = None,
        level: float = LEVEL,
        seed: int = 0,
    ) -> Calibration:
        """Learn from held-out items what label distance an embedding distance means; ``save`` keeps it.

        Args:
            inputs: N items, of any kind that ``cml.fit`` takes. Those that the model was trained on are left out; of
                the others, give 150 or more.
            labels: A label for each of them; None where ``inputs`` holds them.
            gallery: The items that will be searched, which may have been trained on; None if new items are searched
                among new items.
            gallery_labels: A label for each of them.
            groups: A name or number for each item, such as its subject, where searches leave out the query's own.
            gallery_groups: The same for each gallery item.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            level: The share of label distances that the intervals should contain.
            seed: Random seed of the split of the items into two halves.

        Returns:
            The calibration: ``expect(distances)`` gives the label distance of hits with an interval.

        Raises:
            UserError: Fewer than 30 items that the model was not trained on, or labels that do not differ.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(400, 3))
            >>> model = cml.fit(rows[:200], rows[:200, 0], steps=50, sampler="random(batch_size=50)", quiet=True)
            >>> calibration = model.calibrate(rows[200:], rows[200:, 0])
            >>> _, distances = model.search(rows[:1], rows[200:], k=5)
            >>> expected, low, high = calibration.expect(distances)
            >>> bool((low <= expected).all() and (expected <= high).all())
            True
        """
        sides = BothSides(inputs, labels, gallery, gallery_labels, groups, gallery_groups)
        items, ranked = self._label_both(sides, image, label)
        known = KnownItems(self.training_items, self.run_config.made_of.get("labels"))
        self._calibration = calibrate_items(self, items, ranked, known, level=level, seed=seed)
        return self._calibration

    def audit(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        *,
        names: Sequence[str] | None = None,
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
        image: str | None = None,
        label: str | None = None,
        seed: int = 0,
    ) -> AuditList:
        """Find the labels that disagree with those of similar items: perhaps wrong ones. See ``cml.checks.audit``.

        The model gives the label distance alone. Items are compared by features that do not depend on the labels: those
        of the published backbone, or vectors as they are standardised.

        Args:
            inputs: N items, 30 or more, also those of the training, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them.
            names: A name for each; their numbers by default.
            groups: A name or number for each, such as its subject: whole groups are held out.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            seed: Random seed.

        Returns:
            The list: ``suspects`` names the items, the label most likely to be wrong first.

        Raises:
            UserError: Fewer than 30 items, labels that do not differ, or inputs without such features.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(200, 3))
            >>> labels = rows[:, 0].copy()
            >>> labels[17] += 9
            >>> model = cml.fit(rows, labels, steps=2, sampler="random(batch_size=50)", quiet=True)
            >>> model.audit(rows, labels).suspects[0]
            '17'
        """
        from cml.checks.audit_list import audit_items

        items = self._label(inputs, labels, image=image, label=label, ids=names)
        groups = align_by_name(inputs, groups, "groups")
        items = items if groups is None else replace(items, groups=number_groups(groups, len(items)))
        return audit_items(self, items, Presentation.plain(items, items.distance), seed=seed)

    def propose(
        self,
        pool: Any,  # noqa: ANN401 - as cml.fit takes them
        count: int,
        *,
        labelled: Any,  # noqa: ANN401
        groups: Any = None,  # noqa: ANN401 - a sequence of any names
    ) -> Int64:
        """Choose the items of a pool that are worth labelling next.

        Each is the item that is farthest from all labelled and all chosen ones (farthest-first traversal; Sener,
        Savarese: Active learning for convolutional neural networks, a core-set approach, ICLR 2018). As in ``audit``,
        items are compared by features that do not depend on the labels: in the trained embedding, the farthest items
        are often those that it has not learned to place.

        Args:
            pool: N images or vectors without labels, of any kind that ``cml.fit`` takes.
            count: How many to choose, 1 to N.
            labelled: The inputs that have labels, such as those of the training. Items of the pool that are among them
                are never chosen, so that there may be fewer than ``count``.
            groups: A name or number for each item of the pool, such as its video: of each, one item at most is chosen,
                and none of those that hold a labelled item.

        Returns:
            (count,) positions in the pool, the first item to label first.

        Raises:
            UserError: ``count`` is out of range, or the model does not take images or vectors, or not such.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(60, 3))
            >>> model = cml.fit(rows, rows[:, 0], steps=2, sampler="random(batch_size=30)", quiet=True)
            >>> model.propose([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]], 1, labelled=rows)
            array([1])
        """
        from cml.checks.proposals import propose_items

        groups = align_by_name(pool, groups, "groups")
        numbers = None if groups is None else number_groups(groups, len(pool))
        return propose_items(self, pool, labelled, count, groups=numbers).items

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

    def explore(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        path: Path | str = "explorer.html",
        *,
        names: Sequence[str] | None = None,
        pictures: Sequence[Image.Image | Path | str] | None = None,
        maps: Sequence[str] = (),
        image: str | None = None,
        label: str | None = None,
    ) -> "Explorer":
        """Write a page to explore the embedding of any inputs; see docs/howto/explore.md.

        Args:
            inputs: N inputs, at least 4, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them.
            path: Where to write the page.
            names: A name for each; their numbers by default.
            pictures: A picture of each, or its file. By default images are shown as the model gets them, and vectors as
                curves of their standardised numbers; other inputs as curves of their embeddings.
            maps: Maps of the embedding: pca, tsne, umap; pca and, if it is installed, tsne if there are none.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.

        Returns:
            The page; as the last line of a notebook's cell it is shown in place.

        Raises:
            UserError: Inputs and labels do not fit each other, the model or the label distance; there are fewer than 4
                inputs, or another number of names or pictures; a map is unknown or its package not installed.

        Example:
            >>> import numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(60, 3))
            >>> model = cml.fit(rows, rows[:, 0], steps=5, sampler="random(batch_size=30)", quiet=True)
            >>> print(model.explore(rows, rows[:, 0], "explorer.html", maps=["pca"]))
            explorer.html
        """
        from cml.explore.explore_items import ExploreOptions, explore_items
        from cml.explore.picture_grid import open_pictures

        items = self._label(inputs, labels, image=image, label=label, ids=names)
        shown = replace(Presentation.plain(items, items.distance, "item"), title=Path(path).stem)
        if pictures is None:
            shown = replace(shown, note=describe_shown_bands(self.form.channels))
        else:
            shown = replace(shown, pictures=open_pictures(pictures, len(items)))
        if names is None:
            items = replace(items, given_ids=[f"{number:06d}" for number in range(len(items))])
        options = ExploreOptions(beside=("oracle",), maps=tuple(maps))
        return explore_items({"embedding": self}, items, shown, Path(path), options)

    def save(self, folder: Path | str) -> Path:
        """Write weights (safetensors), options, history and calibration into a new folder that ``cml.load`` reads.

        ``SentenceTransformer(folder)`` of sentence-transformers reads it too: of texts without cml, of other inputs
        with ``trust_remote_code=True``, see ``cml.sentence_transformers.Embedding``.

        Args:
            folder: The folder to create.

        Returns:
            The folder.

        Raises:
            UserError: The folder is taken.
        """
        with atomic_folder(Path(folder)) as temporary:
            self.save_into(temporary)
        return Path(folder)

    def save_into(self, folder: Path) -> None:
        """Write what ``save`` writes into a folder that is there.

        Args:
            folder: The folder.
        """
        save_finished(folder, self.network)
        write_sentence_folder(folder, self.network)
        self.history.save(folder)
        replace(self.run_config, model=self.config).save(folder)
        save_training_items(folder, self.training_items)
        if self.calibration is not None:
            save_calibration(folder, self.calibration, self.network)

    def export_onnx(self, out: Path | str) -> "OnnxExport":
        """Write the model as an ONNX graph, checked against torch; see docs/howto/onnx.md.

        Args:
            out: A file NAME.onnx, or a new folder.

        Returns:
            The file and the largest differences from torch.

        Raises:
            UserError: The model takes neither RGB images nor vectors, or its network has no graph.
        """
        from cml.export.onnx_graph import export_onnx

        return export_onnx(self.network, Path(out))

    def export_hub(self, out: Path | str, *, name: str = "", licence: str = "other", repository: str = "") -> list[str]:
        """Write a folder to share, with a model card, as ``cml export hub`` does of a run.

        Args:
            out: The new folder.
            name: Name of the model; by default that of the folder.
            licence: Licence of the weights, by its name on the hub.
            repository: Where the folder will be uploaded, ``user/name``; "" if it is not.

        Returns:
            What the card does not say.

        Raises:
            UserError: The folder is taken.
        """
        from cml.export.hub import export_hub

        with tempfile.TemporaryDirectory() as temporary:
            folder = self.save(Path(temporary) / (name or Path(out).name))
            return export_hub(folder, Path(out), name=name, licence=licence, repository=repository, model=self.network)

    def _baselines(self, queries: LabelledItems, gallery: LabelledItems | None) -> dict[str, tuple[Any, Any]]:
        """Embeddings of queries and gallery that need no training of this model, by the names of their rows."""
        if self.form.kind != "vectors":
            return {}
        rows = compute_vector_forms(self.network, queries.inputs, None if gallery is None else gallery.inputs)
        vectors, known = rows[STANDARDISED], self._references
        # a regression needs labels that can all be compared, as judged ones cannot
        if known is not None and not self.label_distance.is_partial:
            training = self.network.standardize_in_parts(known.inputs)
            name, predict = fit_label_regression(training, known.labels, self.label_distance)
            predicted = predict(vectors[0])
            rows[name] = predicted, predicted if gallery is None else predict(vectors[1])
        return rows

    def _advise(self, standing: Standing) -> list[str]:
        """The sentences of a verdict that say what would help a model of vectors that still has its training items."""
        if standing.is_good or self._references is None:
            return []
        if self.config.inputs.kind != "vectors" or self.label_distance.is_partial:
            return []
        labels = self._references.labels
        training = self.network.standardize_in_parts(self._references.inputs)
        signals = LabelSignals(find_label_signal(training, labels, self.label_distance), None)
        config = self.run_config.train
        advice = advise(config, len(labels), standing, signals, config)
        return advice.render(lambda options: render_call(config, options))

    def __getstate__(self) -> dict[str, Any]:
        # a data set of one's own may not pickle; the folder may not be where the pickle is read
        return {**vars(self), "_references": None, "_history": self.history}

    def _distance_of(self, labels: Any) -> LabelDistance:  # noqa: ANN401 - as cml.fit takes them
        """The label distance of judgements, which other label distances cannot read; else that of the model."""
        if isinstance(labels, ItemLabels) and labels.label_distance != self.label_distance.name:
            return distances.get(labels.label_distance)
        return self.label_distance

    def _label(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any,  # noqa: ANN401
        *,
        image: str | None = None,
        label: str | None = None,
        ids: Sequence[str] | None = None,
        distance: LabelDistance | None = None,
    ) -> LabelledItems:
        """Recognise inputs with their labels."""
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

    def _label_both(
        self,
        sides: BothSides,
        image: str | None,
        label: str | None,
        label_distance: Any = None,  # noqa: ANN401 - as cml.fit takes it
    ) -> tuple[LabelledItems, LabelledItems | None]:
        """Queries and gallery with their labels and groups; None for the gallery if neither of its parts is given."""
        sides, distance = sides.with_rows(label_distance)
        queries = self._label(sides.inputs, sides.labels, image=image, label=label, distance=distance)
        if sides.gallery is None and sides.gallery_labels is None:
            if sides.gallery_groups is not None:
                raise UserError("'gallery_groups' need a gallery: give 'groups' for the inputs.")
            groups = align_by_name(sides.inputs, sides.groups, "groups")
            return queries if groups is None else replace(queries, groups=number_groups(groups, len(queries))), None
        ranked = self._label(sides.gallery, sides.gallery_labels, image=image, label=label, distance=queries.distance)
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

    def __repr__(self) -> str:
        form = self.config.inputs
        taken = "{} x {} pixels".format(*self.config.image_size) if form.kind == "images" else str(form)
        ends = ", L2-normalised" if self.config.normalize else ""
        return f"Model({self.config.backbone}, {taken} -> {self.config.dimension} numbers{ends})"


def _extract(network: EmbeddingModel, inputs: Any, bar: str = "") -> Float32:  # noqa: ANN401 - as cml.fit takes them
    """Features (N, F) by a network with its own reading of images, as a published one takes RGB, whatever the bands."""
    return network.extract(inputs.source if isinstance(inputs, Images) else inputs, bar=bar)
