"""A finished run opened in Python: evaluate it, write its retrieval report or explorer, export it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from torch import nn

from cml.checks.advice import advise, render_command
from cml.data.image_list import ImageList
from cml.distances import LabelDistance
from cml.doors import run_checks, run_explorer, run_predictions
from cml.doors.dataset_report import describe_held_out, published_recall_ks, published_recall_within, with_ceiling
from cml.doors.evaluate_items import Report, describe_selection, evaluate_items, own_rows
from cml.doors.judged_report import PAIRS, find_label_signals, with_pairs
from cml.doors.learners import learner_class
from cml.doors.retrieved import write_retrieval_report
from cml.doors.trained_run import TrainedRun
from cml.doors.training_run import track_evaluation
from cml.errors import DataError, UserError
from cml.items.label_inputs import label_split
from cml.models import Backbone
from cml.option_types import check_options
from cml.retrieval.embeddings import EMBEDDING
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.near_copies import GROUPS_OPTION
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import Standing, main_metric
from cml.storage.json_file import write_json
from cml.trackers import Tracker
from cml.training.metrics_log import METRICS, read_metrics
from cml.training.run_folder import EVALUATION
from cml.training.train_options import complete_options

if TYPE_CHECKING:
    from cml.export.captioning import CaptioningFeatures
    from cml.export.onnx_graph import OnnxExport
    from cml.protocols import Protocol, ProtocolResult


class Run(TrainedRun):
    """A finished run: its ``config``, ``model``, ``dataset`` and label ``distance``, and what can be done with it.

    ``cml.open_run`` makes it.

    Attributes:
        folder: The run folder.
        config: The options of the run, and the shape of its model.
        model: The trained model.
        data: Dataset path, if it moved since training.
        ranks: The processes that share the embedding of images; None for one.
        features: Folder of a feature store for the images; None for that of the config, if there is one.

    Example:
        >>> run = cml.open_run("runs/mine")
        >>> run.evaluate().rows["oracle"]["spearman_rho"].mean
        1.0
        >>> print(run.retrieval_report())
        runs/mine/retrieval_report.html
    """

    def evaluate(
        self,
        options: EvaluateOptions | None = None,
        *,
        pairs: Path | str | None = None,
        dimensions: Sequence[int] = (),
        references: bool = True,
        tracker: str | Tracker | None = None,
    ) -> Evaluation:
        """Measure how well the embedding retrieves, and keep the figures in evaluation.json of the run folder.

        Args:
            options: What is measured, and how; the defaults when not given. ``recall_within`` is in the unit in which
                label distances are reported; it and ``recall_ks`` come from the details of dataset.json by default.
            pairs: A CSV or JSONL file of pairs with their similarity as people see it, in the columns item, other and
                similarity: adds pair_spearman, the correlation with it. By default the dataset's own pairs.csv, if any.
            dimensions: Also measure the embedding cut to its first so many numbers, a row each.
            references: Add the rows that do not depend on the training: oracle, random, frozen features; of vectors,
                "vectors" as they are, "vectors, L2-normalised", "vectors, standardised", and a ridge regression.
            tracker: An experiment tracker, whose run of this folder gets the embedding's figures.

        Returns:
            A row a ranking, each metric with its 95 % interval over items.

        Raises:
            UserError: the run was trained on images given in Python, or its dataset or label distance is not here.
        """
        options = self._in_label_units(check_options(options or EvaluateOptions()))
        selection = learner_class(self.config.train).read_selection(self.folder)
        own_pairs = self.dataset.folder / PAIRS
        judged = Path(pairs or own_pairs) if pairs is not None or own_pairs.is_file() else None
        log = self.folder / METRICS
        records = read_metrics(log) if log.exists() else []  # a shared model has none
        trained = self._trained_classes()
        report = Report(
            self.frozen | self.ridge if references else {},
            references=references,
            dimensions=dimensions,
            unit=self.unit,
            reported=self.report,
            own_rows=own_rows(selection),
            losses=[record["loss"] for record in records if "loss" in record],
            advise=self._advise if self._is_first else None,
            judge=None if judged is None else lambda found, rows: with_pairs(found, self, rows, judged, options.seed),
            ranks=self.ranks,
            trained_classes=trained,
            places=self.dataset.places_of_test_items,
            groups_option=GROUPS_OPTION,
        )
        gallery = None if self.gallery is self.queries else self.gallery
        evaluation = evaluate_items(self, self.queries, gallery, options, report)
        evaluation = with_ceiling(evaluation.extend_verdict(describe_held_out(self.dataset.info)), self.dataset.info)
        evaluation = evaluation.extend_verdict(describe_selection(selection, trained, self.queries), is_caution=True)
        if self._is_first:
            main = main_metric(list(evaluation.rows[EMBEDDING]))
            write_json(self.folder / EVALUATION, evaluation.to_json(per_query=[main]))  # which comparisons pair
            if tracker:
                track_evaluation(tracker, self.folder, self.config.train, evaluation.rows[EMBEDDING])
        return evaluation

    def measure(self, protocol: Protocol | str) -> ProtocolResult:
        """Measure the queries by a protocol of the field; ``regression`` predicts them from the training items.

        Args:
            protocol: "regression", "verification", "re-identification", "few-shot" or "compact-codes", also with
                settings, as in "regression(k=5)", or a ``cml.protocols.Protocol``.

        Returns:
            The figures with their 95 % intervals, in label units; ``print`` shows a table.

        Raises:
            UserError: The protocol does not know the labels, or the dataset is not here.
        """
        from cml.protocols.measure_items import as_protocol, measure_items

        chosen = as_protocol(protocol)
        gallery = None if self.gallery is self.queries else self.gallery
        if chosen.uses_training_items and not self.dataset.info.queries_are_known:
            gallery = label_split(self.dataset, "train", self.distance, self.open_inputs)
        return measure_items(self, chosen, self.queries, gallery)

    def _trained_classes(self) -> list[str] | None:
        """The classes of the training items; None if labels are not classes."""
        if self.distance.class_names(self.query_labels) is None:
            return None
        names = self.distance.class_names(self.distance.encode(self.dataset.split("train").labels))
        return None if names is None else names.tolist()

    def _in_label_units(self, options: EvaluateOptions) -> EvaluateOptions:
        """The options with the dataset's K and radius of Recall@K as defaults, the radius in the unit of the labels."""
        recall_within = options.recall_within or published_recall_within(self.dataset.info)
        return replace(
            options,
            recall_ks=options.recall_ks or tuple(published_recall_ks(self.dataset.info)),
            recall_within=recall_within / self.report.factor,
        )

    def _advise(self, standing: Standing) -> list[str]:
        """The sentences of a verdict that say what would help an embedding that is not better than its references."""
        if standing.is_good or not self.frozen or self.distance.is_partial:
            return []
        try:
            signals = find_label_signals(self)
        except DataError:  # the training images are no longer there
            return []
        config, recipe = self.config.train, complete_options(self.task.recipe, {}, self.dataset.info.inputs)
        advice = advise(config, len(self.dataset.split("train")), standing, signals, recipe)
        return advice.render(
            lambda options: render_command(
                config, recipe, options, task=self.config.task, data=self.dataset.folder, run=self.folder
            )
        )

    def retrieval_report(
        self,
        against: Run | None = None,
        *,
        queries: int = 48,
        k: int = 5,
        thumbnail: int = 96,
        table: Sequence[Sequence[str]] = (),
    ) -> Path:
        """Write retrieval_report.html into the run folder: what queries retrieve, beside the oracle and a baseline.

        Args:
            against: A run on the same dataset as the baseline; frozen ImageNet features when not given, or the form of
                the vectors that retrieves best.
            queries: Queries shown, evenly spaced from the worst to the best.
            k: Pictures per method.
            thumbnail: Size of a picture on the page, in pixels.
            table: A table to print at the page's top, its first row the header.

        Returns:
            The page.

        Raises:
            UserError: the baseline was trained on another dataset.
        """
        baselines = self.frozen if against is None else {against.config.train.method: against.embeddings}
        if against is not None and against.dataset.fingerprint != self.dataset.fingerprint:
            why = against.config.other_data(self.dataset.fingerprint, self.dataset.made_of)
            raise UserError(f"{against.folder} was trained on another dataset than {self.folder} ({why}).")
        return write_retrieval_report(self, baselines, queries=queries, k=k, thumbnail=thumbnail, table=table)

    def export_onnx(self, out: Path | str) -> OnnxExport:
        """Write the model as an ONNX graph, checked against torch.

        Args:
            out: A file, such as model.onnx; its config is written beside it, in model.json.

        Returns:
            The file, and how far the graph's embeddings are from torch's.
        """
        from cml.export.onnx_graph import export_onnx

        return export_onnx(self.model.network.cpu(), Path(out))

    def export_hub(self, out: Path | str, *, name: str = "", licence: str = "other") -> list[str]:
        """Write a folder to share: weights, config, model card.

        Args:
            out: The new folder.
            name: Name of the model; by default that of the run folder.
            licence: Licence of the weights, as the Hugging Face hub calls it: mit, apache-2.0, ...

        Returns:
            What the card lacks, a sentence each.

        Raises:
            UserError: ``out`` exists.
        """
        from cml.export.hub import export_hub

        return export_hub(self.folder, Path(out), name=name, licence=licence, data=self.data)

    def export_captioning(
        self, images: Path | str, out: Path | str, features: CaptioningFeatures | None = None, *, skip_bad: bool = False
    ) -> dict[str, Any]:
        """Write the backbone's features of a folder of images for captioning models.

        Args:
            images: Folder of images named by their COCO ids, or a prepared dataset.
            out: Folder to write to; the same call continues it after a kill.
            features: Which features, in which layout.
            skip_bad: Leave out images that cannot be read; the manifest lists them.

        Returns:
            The manifest.
        """
        from cml.export.captioning import CaptioningFeatures, export_captioning
        from cml.export.trunk import open_trunk

        trunk = open_trunk(str(self.folder), device=str(self.model.network.mean.device))
        image_list, features = ImageList.open(Path(images)).with_coco_ids(None), features or CaptioningFeatures()
        return export_captioning(trunk.model, image_list, Path(out), features, trunk=trunk.title, skip_bad=skip_bad)

    # what capabilities add: each method stands in the file of its capability
    calibrate = run_checks.calibrate
    predict = run_predictions.predict
    audit = run_checks.audit
    propose = run_checks.propose
    explore = run_explorer.explore
    square = run_explorer.square

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.config.train.method}, {self.model!r})"


def open_run(
    folder: Path | str,
    *,
    data: Path | str | None = None,
    device: str = "auto",
    label_distance: LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
    backbone: nn.Module | Backbone | None = None,
    allow_download: bool = False,
    features: Path | str | None = None,
) -> Run:
    """Open a finished run.

    Args:
        folder: The run folder.
        data: Dataset path, if it moved since training.
        device: "auto", "cpu", "cuda" or another device of torch.
        label_distance: As for ``cml.load``.
        backbone: As for ``cml.load``.
        allow_download: Download what the run names, such as published weights for the row of frozen features, if it is
            not in the cache.
        features: Folder of a feature store for the images, if it is not that of the run or was moved.

    Returns:
        The run.

    Raises:
        UserError: It is not a finished run.

    Example:
        >>> run = cml.open_run("runs/mine")
        >>> run.config.train.steps
        20
        >>> run.model.embed(["photos/0.png"]).shape
        (1, 128)
    """
    return Run.open(
        folder,
        data=data,
        device=device,
        label_distance=label_distance,
        backbone=backbone,
        allow_download=allow_download,
        features=features,
    )
