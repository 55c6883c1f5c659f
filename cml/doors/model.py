"""A trained model for use from Python: embed, evaluate, search, save."""

import contextlib
import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.checks.advice import advise, render_call
from cml.data.image_sources import number_both_groups
from cml.doors import model_checks, model_explorer, model_streams
from cml.doors.both_sides import BothSides, check_both_groups, read_excluded
from cml.doors.evaluate_items import Report, compute_vector_forms, describe_selection, evaluate_items, own_rows
from cml.doors.trained_model import TrainedModel, extract_features
from cml.errors import UserError
from cml.export.sentence_folder import write_sentence_folder
from cml.items import LabelledItems
from cml.items.names import align_by_name
from cml.models.heads import shorten_head
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.feature_forms import STANDARDISED, normalize_rows
from cml.retrieval.gallery import Gallery
from cml.retrieval.label_regression import LabelSignals, find_label_signal, fit_label_regression
from cml.retrieval.neighbor_labels import predict_labels
from cml.retrieval.novelty import Novelty
from cml.retrieval.results import Evaluation
from cml.retrieval.saved_calibration import save_calibration
from cml.retrieval.search import nearest_embeddings
from cml.retrieval.verdict import Standing
from cml.searching.embedding_folder import EmbeddingFolder
from cml.storage.atomic import atomic_folder
from cml.training.run_folder import save_training_items
from cml.training.saved_model import save_finished

if TYPE_CHECKING:
    from cml.export.onnx_graph import OnnxExport
    from cml.protocols import Protocol, ProtocolResult


class Model(TrainedModel):
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
            (Q,) the share of known items that are at least as far from other known ones. Of items like these, at
            most 5 % have a score of 0.05 or less; items of another kind have small scores.

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
        return lambda items: normalize_rows(extract_features(network, items))

    @property
    def query_model(self) -> "Model":
        """The model that embeds what is searched for: this one, but in graded search with two networks."""
        return self

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
        queries, ranked = self.label_both(sides, image, label, label_distance)
        report = Report(self._baselines(queries, ranked), own_rows=own_rows(self.tuning))
        if queries.distance is self.label_distance:
            report = replace(report, advise=self._advise)
        evaluation = evaluate_items(self, queries, ranked, options, report)
        return evaluation.extend_verdict(
            describe_selection(self.tuning, self._trained_classes(queries), queries), is_caution=True
        )

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
        return measure_items(self, as_protocol(protocol), *self.label_both(sides, None, None, label_distance))

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
            known = self.label_items(gallery, gallery_labels)
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

    # what capabilities add: each method stands in the file of its capability
    embed_stream = model_streams.embed_stream
    calibrate = model_checks.calibrate
    audit = model_checks.audit
    propose = model_checks.propose
    explore = model_explorer.explore

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

    def _trained_classes(self, queries: LabelledItems) -> list[str] | None:
        """The classes of the training items; None if labels are not classes, or the items are not here any more."""
        if self._references is None or queries.distance is not self.label_distance:
            return None
        names = self.label_distance.class_names(self._references.labels)
        return None if names is None else names.tolist()

    def _advise(self, standing: Standing) -> list[str]:
        """The sentences of a verdict that say what would help a model of vectors that still has its training items."""
        if standing.is_good or self._references is None:
            return []
        if self.config.inputs.kind != "vectors" or self.label_distance.is_partial:
            return []
        labels, groups = self._references.labels, self._references.groups
        training = self.network.standardize_in_parts(self._references.inputs)
        signals = LabelSignals(find_label_signal(training, labels, self.label_distance, groups), None)
        config = self.run_config.train
        advice = advise(config, len(labels), standing, signals, config)
        return advice.render(lambda options: render_call(config, options))

    def __repr__(self) -> str:
        form = self.config.inputs
        taken = "{} x {} pixels".format(*self.config.image_size) if form.kind == "images" else str(form)
        ends = ", L2-normalised" if self.config.normalize else ""
        return f"Model({self.config.backbone}, {taken} -> {self.config.dimension} numbers{ends})"
