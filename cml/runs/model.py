"""A trained model for use from Python: embed, evaluate, search, save."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from cml import distances, plugins
from cml.array_types import Float32, Int64, UInt64
from cml.data.accepted_inputs import AcceptedInputs
from cml.data.field_names import FieldNames
from cml.data.groups import number_groups
from cml.data.input_form import InputForm
from cml.data.input_sources import LabelledInputs, recognize_inputs
from cml.data.item_digests import MOST_DIGESTED, digest_items, find_known
from cml.data.item_labels import ItemLabels
from cml.data.items import Collate
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.models import Backbone, has_published_weights
from cml.models.embedding import EmbeddingModel
from cml.models.weights_fingerprint import model_fingerprint
from cml.processes.device import pick_device
from cml.retrieval.calibration import LEVEL, Calibration, calibrate_embeddings
from cml.retrieval.embeddings import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.farthest_first import choose_farthest
from cml.retrieval.feature_forms import STANDARDISED
from cml.retrieval.label_regression import fit_label_regression
from cml.retrieval.neighbor_labels import predict_labels
from cml.retrieval.results import Evaluation
from cml.retrieval.saved_calibration import load_calibration, save_calibration
from cml.retrieval.search import nearest_embeddings
from cml.retrieval.shuffled_labels import LabelSignals, find_label_signal
from cml.retrieval.verdict import Standing
from cml.runs.advice import advise, render_call
from cml.runs.audit_list import AuditList
from cml.runs.chosen_reference import chosen_rows, with_chosen_reference
from cml.runs.explorer import Explorer
from cml.runs.vector_forms import compute_vector_forms
from cml.storage.atomic import atomic_folder
from cml.storage.downloads import names_of_a_run
from cml.storage.hugging_face import resolve_run
from cml.task import label_distance_of
from cml.training.history import History
from cml.training.run_config import RunConfig
from cml.training.saved_model import MODEL, load_model, save_model
from cml.training.train_run import label_digest
from cml.training.training_items import load_training_items, save_training_items
from cml.training.tune import Tuning

_OWN_DISTANCE = (
    "One that was registered in Python has to be registered here too: load the file that does it by --plugin FILE, or "
    "give it in Python as label_distance=..."
)


class Model(EmbeddingModel):
    """A trained embedding model, and what it was trained with.

    It is the ``torch.nn.Module`` from images (B, 3, h, w), uint8 or float in 0..255, to embeddings (B, D), or from
    vectors (B, V) or tensors (B, ...) if it was trained on those; ``embed`` takes all that ``cml.fit`` takes.
    ``cml.fit`` and ``cml.load`` make it.

    Args:
        network: The trained ``EmbeddingModel``; the model shares its weights.
        run: The ``RunConfig`` that it was trained with.
        label_distance: The label distance that it was trained with, for one that has no registered name.
        allow_download: Whether models that the config names may be downloaded, such as that of ``sentences(...)``.
        references: The training inputs and their labels, among which ``predict`` finds neighbours. They are neither
            saved nor pickled.
        tuning: How ``cml.fit(..., tune=True)`` chose the embedding; None for a model that was trained in steps or
            loaded.
        history: The ``History`` of the training, or the folder to read it from when it is asked for; None for none.
        folder: The folder that the model was loaded from, which may hold its calibration.

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
        references: LabelledInputs | None = None,
        tuning: Tuning | None = None,
        history: History | Path | None = None,
        folder: Path | None = None,
    ) -> None:
        if not isinstance(network, EmbeddingModel) or not isinstance(run, RunConfig):
            raise UserError(
                "cml.Model takes a trained network of cml and the config of its run: cml.fit and cml.load make it. "
                "cml.retrieval.evaluate_embeddings measures the embeddings of any network. "
                f"Got {type(network).__name__} and {type(run).__name__} instead."
            )
        vars(self).update(vars(network))  # parameters, buffers and settings: one network, seen with more methods
        self.run_config = run
        self.allow_download = allow_download
        self._label_distance = label_distance
        self._references = references
        self.tuning = tuning
        self._history = History.of([]) if history is None else history
        self._folder = folder
        self._calibration: Calibration | None = None

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
        return model_fingerprint(self)

    def evaluate(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
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
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            options: What is measured, and how, a ``cml.retrieval.EvaluateOptions``; the defaults when not given.

        Returns:
            The rows "embedding", "random" and "oracle", each metric with its 95 % interval over queries. Of a model of
            vectors also the vectors themselves, "vectors" as they are, "vectors, L2-normalised" and "vectors,
            standardised"; the verdict compares with the best of the three. Until the model is saved and loaded, there
            is also "ridge" or "ridge on label MDS": the prediction of a ridge regression of the training labels, see
            ``cml.retrieval.label_regression``. Where the embedding is not better than each of these, the verdict says
            what would help.

        Raises:
            UserError: inputs and labels that do not fit each other, the model or the label distance.
        """
        queries = self._recognize(inputs, labels, image, label)
        ranked = self._recognize_gallery(gallery, gallery_labels, image, label)
        others = self._baselines(queries.inputs, None if ranked is None else ranked.inputs)
        distance = self._distance_of(labels)
        evaluation = evaluate_embeddings(
            self.embed(queries.inputs, bar="embed"),
            queries.labels,
            None if ranked is None else self.embed(ranked.inputs, bar="embed"),
            None if ranked is None else ranked.labels,
            label_distance=distance,
            options=options,
            others=others,
            own_rows=chosen_rows(self.tuning),
            advise=self._advise if distance is self.label_distance else None,
        )
        return with_chosen_reference(evaluation, self.tuning)

    def predict(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        k: int = 10,
    ) -> list[Any]:
        """Predict labels from those of the nearest neighbours; see ``cml.retrieval.neighbor_labels``.

        Args:
            inputs: N inputs.
            gallery: The inputs whose labels are known; None for those that the model was trained on, which a loaded
                model does not have.
            gallery_labels: A label for each of them.
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
        known = self._recognize_gallery(gallery, gallery_labels) or self._references
        if known is None:
            raise UserError("A loaded model does not have its training items: give 'gallery' and 'gallery_labels'.")
        if k < 1:
            raise UserError(f"'k' must be 1 or more. Got {k} instead.")
        embeddings = self.embed(known.inputs, bar="embed")
        return predict_labels(self.embed(inputs, bar="embed"), embeddings, known.labels, self.label_distance, k=k)

    def search(
        self,
        queries: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery: Any,  # noqa: ANN401
        k: int = 10,
    ) -> tuple[Int64, Float32]:
        """Find the k gallery items nearest to each query by embedding distance (L2), exactly.

        Args:
            queries: Q inputs, or their embeddings (Q, D) float32. Of a model of vectors whose V is D, an array (Q, D)
                holds vectors; ``cml.retrieval.search.nearest_embeddings`` searches embeddings alone.
            gallery: G inputs, or their embeddings (G, D) float32, likewise.
            k: Items found for each query, at most G.

        Returns:
            Positions (Q, k) in the gallery, nearest first, and their embedding distances (Q, k).

        Raises:
            UserError: something is no input of the model, or k is out of range.
        """
        distances, positions = nearest_embeddings(
            self.embed_unless_embedded(queries), self.embed_unless_embedded(gallery), k
        )
        return positions, distances

    @property
    def calibration(self) -> Calibration | None:
        """What embedding distances mean as label distances; None before ``calibrate``.

        Raises:
            DataError: It was saved with the model, and is damaged or belongs to other weights.
        """
        if self._calibration is None and self._folder is not None:
            self._calibration = load_calibration(self._folder, self)
        return self._calibration

    def calibrate(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any = None,  # noqa: ANN401
        gallery: Any = None,  # noqa: ANN401
        gallery_labels: Any = None,  # noqa: ANN401
        *,
        image: str | None = None,
        label: str | None = None,
        level: float = LEVEL,
        seed: int = 0,
    ) -> Calibration:
        """Learn from held-out items what label distance an embedding distance means; ``save`` keeps it.

        Args:
            inputs: N items that the model was not trained on, 150 or more, of any kind that ``cml.fit`` takes.
            labels: A label for each of them; None where ``inputs`` holds them.
            gallery: The items that will be searched, which may have been trained on; None if new items are searched
                among new items.
            gallery_labels: A label for each of them.
            image: Name of the column of images, where images come as a data frame.
            label: Name of its column of labels.
            level: The share of label distances that the intervals are to hold.
            seed: Random seed of the split of the items into two halves.

        Returns:
            The calibration: ``expect(distances)`` gives the label distance of hits with an interval.

        Raises:
            UserError: Items that the model was trained on, fewer than 30 items, or labels that do not differ.

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
        queries = self._recognize(inputs, labels, image, label)
        ranked = self._recognize_gallery(gallery, gallery_labels, image, label)
        distance = self._distance_of(labels)
        encoded = distance.encode(queries.labels)
        self._refuse_training_items(queries.inputs, encoded)
        self._calibration = calibrate_embeddings(
            self.embed(queries.inputs, bar="embed"),
            encoded,
            distance,
            None if ranked is None else self.embed(ranked.inputs, bar="embed"),
            None if ranked is None else distance.encode(ranked.labels),
            level=level,
            seed=seed,
        )
        return self._calibration

    def _refuse_training_items(self, inputs: Any, labels: Labels) -> None:  # noqa: ANN401 - recognised inputs
        """Refuse items whose content, or whose labels together, are those of training items."""
        is_known = find_known(digest_items(inputs), self._training_items)
        if is_known.any():
            raise UserError(
                f"A calibration needs items that the model was not trained on. {is_known.sum()} of the {len(labels)} "
                f"items are training items, the first is item {int(is_known.argmax())}. Leave them out."
            )
        if label_digest(labels) == self.run_config.made_of.get("labels"):
            raise UserError(
                "A calibration needs items that the model was not trained on, but the labels are those of the training "
                "items. Give other items."
            )

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
        """Find the labels that disagree with those of similar items: perhaps wrong ones. See ``cml.training.audit``.

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
        from cml.runs.audit_inputs import audit_inputs

        known = self._recognize(inputs, labels, image, label)
        features = self._published_features(known.inputs)
        numbers = None if groups is None else number_groups(groups, len(known.labels))
        return audit_inputs(features, known.labels, self._distance_of(labels), names=names, groups=numbers, seed=seed)

    def propose(
        self,
        pool: Any,  # noqa: ANN401 - as cml.fit takes them
        count: int,
        *,
        labelled: Any,  # noqa: ANN401
    ) -> Int64:
        """Choose the items of a pool that are worth labelling next.

        Each is the item that is farthest from all labelled and all chosen ones (farthest-first traversal; Sener,
        Savarese: Active learning for convolutional neural networks, a core-set approach, ICLR 2018). As in ``audit``,
        items are compared by features that do not depend on the labels: in the trained embedding, the farthest items
        are often those that it has not learned to place.

        Args:
            pool: N images or vectors without labels, of any kind that ``cml.fit`` takes.
            count: How many to choose, 1 to N.
            labelled: The inputs that have labels, such as those of the training.

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
        known = self._published_features(labelled)
        return choose_farthest(self._published_features(pool), known, count).items

    def _published_features(self, inputs: Any) -> Float32:  # noqa: ANN401 - as ``cml.fit`` takes them
        """Features (N, F) that do not depend on the labels: of the published backbone, or standardised vectors."""
        kind = self.config.inputs.kind
        if kind == "vectors":
            return self.standardize(inputs, bar="features")
        if kind == "images":
            return load_published(self).extract(inputs, bar="features")
        raise UserError(
            f"Items are compared by features that do not depend on the labels, which {self.config.inputs} do not have: "
            "compute vectors of the items by another network, and take a model of these."
        )

    @property
    def _training_items(self) -> UInt64:
        """Digests of training items."""
        if self._references is not None:
            return digest_items(self._references.inputs, MOST_DIGESTED)
        return np.empty(0, np.uint64) if self._folder is None else load_training_items(self._folder)

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
    ) -> Explorer:
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
        from cml.runs.explore_inputs import explore_inputs

        known = self._recognize(inputs, labels, image, label)
        distance = self._distance_of(labels)
        return explore_inputs(self, known, distance, Path(path), names=names, pictures=pictures, maps=maps)

    def save(self, folder: Path | str) -> Path:
        """Write weights (safetensors), options, history and calibration into a new folder that ``cml.load`` reads.

        Args:
            folder: The folder to create.

        Returns:
            The folder.

        Raises:
            UserError: The folder is taken.
        """
        with atomic_folder(Path(folder)) as temporary:
            save_model(temporary / MODEL, self)
            self.history.save(temporary)
            replace(self.run_config, model=self.config).save(temporary)
            save_training_items(temporary, self._training_items)
            if self.calibration is not None:
                save_calibration(temporary, self.calibration, self)
        return Path(folder)

    def _baselines(self, query: Any, gallery: Any) -> dict[str, tuple[Any, Any]]:  # noqa: ANN401 - recognised inputs
        """Embeddings of queries and gallery that need no training of this model, by the names of their rows."""
        if self.config.inputs.kind != "vectors":
            return {}
        rows = compute_vector_forms(self, query, gallery)
        vectors = rows[STANDARDISED]
        # a regression needs labels that can all be compared, as judged ones cannot
        if self._references is not None and not self.label_distance.is_partial:
            labels = self.label_distance.encode(self._references.labels)
            training = self.standardize_in_parts(self._references.inputs)
            name, predict = fit_label_regression(training, labels, self.label_distance)
            predicted = predict(vectors[0])
            rows[name] = predicted, predicted if gallery is None else predict(vectors[1])
        return rows

    def _advise(self, standing: Standing) -> list[str]:
        """The sentences of a verdict that say what would help a model of vectors that still has its training items."""
        if standing.is_good or self._references is None:
            return []
        if self.config.inputs.kind != "vectors" or self.label_distance.is_partial:
            return []
        labels = self.label_distance.encode(self._references.labels)
        training = self.standardize_in_parts(self._references.inputs)
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

    def _recognize(
        self,
        inputs: Any,  # noqa: ANN401 - as cml.fit takes them
        labels: Any,  # noqa: ANN401
        image: str | None,
        label: str | None,
    ) -> LabelledInputs:
        form = self.config.inputs
        fields = FieldNames(image, form.columns or form.fields or None, label)
        accepted = AcceptedInputs(
            kind=form.kind, missing=form.missing, own_backbone=True, channels=form.channels, collate=self.collate
        )
        return recognize_inputs(inputs, labels, fields, accepted)

    def _recognize_gallery(
        self,
        gallery: Any,  # noqa: ANN401 - as cml.fit takes them
        gallery_labels: Any,  # noqa: ANN401
        image: str | None = None,
        label: str | None = None,
    ) -> LabelledInputs | None:
        """The gallery with its labels; None if neither is given."""
        if gallery is None and gallery_labels is None:
            return None
        return self._recognize(gallery, gallery_labels, image, label)

    def __repr__(self) -> str:
        form = self.config.inputs
        taken = "{} x {} pixels".format(*self.config.image_size) if form.kind == "images" else str(form)
        ends = ", L2-normalised" if self.config.normalize else ""
        return f"Model({self.config.backbone}, {taken} -> {self.config.dimension} numbers{ends})"


def load_published(model: Model) -> EmbeddingModel:
    """Load a network with published weights to compare a model with: its own backbone, or else EfficientNet-Lite0.

    Weights that are not in the cache are downloaded only if the model allows that.

    Args:
        model: The trained model.

    Returns:
        The network, on the model's device, with the model's image size.

    Raises:
        UserError: The weights are not in the cache, or do not fit.
    """
    own = model.config.published
    if not has_published_weights(own.backbone):
        own = replace(own, backbone="efficientnet-lite0", weights="imagenet", inputs=InputForm())  # bands as RGB
    with names_of_a_run(allow_download=model.allow_download):
        return EmbeddingModel(replace(own, normalize=False)).to(model.mean.device)


def load(
    folder: Path | str,
    *,
    device: str = "auto",
    label_distance: LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
    backbone: nn.Module | Backbone | None = None,
    collate: Collate | None = None,
    allow_download: bool = False,
) -> Model:
    """Load the trained model of a run folder, or of a folder that ``model.save`` or ``cml export hub`` wrote.

    Args:
        folder: The folder, or ``hf:user/name@revision``, as ``cml.storage.hugging_face.resolve_run`` takes it.
        device: "auto", "cpu", "cuda" or another device of torch.
        label_distance: The label distance of the run, where it was the user's own and has no registered name; only
            ``evaluate`` needs it.
        backbone: The module that the run was trained with, where that was the user's own; it gets the trained weights.
        collate: The function that the run joined items to batches with, if it did.
        allow_download: Download what the run itself names, such as the model of ``sentences(...)``, if it is not in the
            cache; otherwise that is an error where it is needed. ``hf:user/name`` is downloaded in both cases.

    Returns:
        The model.

    Raises:
        UserError: not a finished run folder, no such device, or the hub has no such model.

    Example:
        >>> model = cml.load("runs/mine")
        >>> model.embed(["photos/0.png", "photos/1.png"]).shape
        (2, 128)
    """
    folder = resolve_run(folder)
    run = RunConfig.load(folder)
    with explain_missing_plugins(run, folder):
        with names_of_a_run(allow_download=allow_download):
            network = load_model(folder, run.model, pick_device(device), backbone)
        _check_collate(network, collate)
        network.set_collate(collate)
        own_distance = None if label_distance is None else distances.as_label_distance(label_distance)
        return Model(network, run, own_distance, allow_download=allow_download, history=folder, folder=folder)


def _check_collate(network: EmbeddingModel, collate: Collate | None) -> None:
    """Check that a function that joins items is there for a model of items, and for no other."""
    form = network.config.inputs
    if form.kind == "items" and collate is None:
        raise UserError(
            "The inputs of this model are items that a function of its author's own joins to batches, which was not "
            "saved. Give it: cml.load(path, backbone=module, collate=function)."
        )
    if form.kind != "items" and collate is not None:
        raise UserError(f"The model takes {form}, which need no 'collate': leave it out.")
    if collate is not None and not callable(collate):
        raise UserError(f"'collate' must be a function of a list of inputs. Got {type(collate).__name__} instead.")


@contextlib.contextmanager
def explain_missing_plugins(run: RunConfig, folder: Path | None = None, *, advice: str = "") -> Iterator[None]:
    """Name the plugins that are not loaded where something is unknown in the block; warn of plugins that have changed.

    Args:
        run: The config of the run.
        folder: Its folder, for the messages.
        advice: What to do instead if no plugin is missing.

    Raises:
        UserError: As in the block, with the plugins that are missing, or else the advice.
    """
    changed = plugins.explain_changes(run.plugins)
    if changed:
        warnings.warn(f"{folder or 'The run'}: {changed}", stacklevel=3)
    try:
        yield
    except UserError as error:
        remedy = plugins.explain_missing(run.plugins) or advice
        if remedy:
            raise UserError(f"{folder or 'The run'} cannot be opened: {error} {remedy}") from None
        raise
