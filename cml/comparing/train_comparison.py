"""Trains the rows of a comparison with one network, one budget and several seeds, and writes table and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cml import distances, losses
from cml.comparing.protocol_table import MeasuredComparison, join_seeds
from cml.comparing.report import sheet_note, sheet_variants, write_pictures, write_report
from cml.comparing.rows import PlannedRun, Row, is_finished, kept_evaluation, plan_runs, row_folders
from cml.console.messages import resume_hint, say, say_each_once
from cml.data.prepared import PreparedDataset
from cml.doors.retrieved import RETRIEVAL_REPORT, write_retrieval_report
from cml.doors.run import Run
from cml.doors.train import train_task
from cml.doors.training_run import with_tracker
from cml.errors import UserError
from cml.option_types import check_options
from cml.protocols import Protocol, ProtocolResult
from cml.protocols.measure_items import as_protocol
from cml.reporting.visible_text import visible_text
from cml.retrieval.comparison import CUT, Comparison
from cml.retrieval.embeddings import EMBEDDING, cut_row
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.results import Evaluation
from cml.storage.atomic import atomic_file
from cml.storage.json_file import write_json
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.trackers import Tracker
from cml.training.config import TrainConfig
from cml.training.learner import Place


@dataclass(frozen=True)
class CompareOptions:
    """How the rows of a comparison are trained and evaluated."""

    seeds: int = 3  # runs per row, with seeds 0, 1, and so on
    # label distance up to which Recall@K counts an item as relevant, in the reported unit; 0 for what dataset.json
    # says, if anything
    recall_within: float = 0.0
    tracker: str | Tracker | None = None  # an experiment tracker that follows every run
    dimensions: Sequence[int] = ()  # further dimensions of the embedding to train every row at
    cut: bool = False  # also cut the embedding of the table to its first numbers, at ``dimensions``
    protocol: str = ""  # a protocol that also measures every row of the table; "" for none

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        if self.seeds < 1:
            raise UserError(f"'seeds' must be at least 1. Got {self.seeds} instead.")
        if (smallest := min(self.dimensions, default=1)) < 1:
            raise UserError(f"Each further 'dimension' must be 1 or more. Got {smallest} instead.")
        if self.protocol:
            as_protocol(self.protocol)


@dataclass(frozen=True)
class ComparisonResult:
    """A finished comparison."""

    comparison: Comparison  # its figures
    retrieval_report: Path  # the retrieval report of the rows that its sheet shows
    runs: Mapping[str, Path]  # title to run folder
    row_folders: Mapping[str, str]  # row to the name of its folder, which holds its runs


@resume_hint()
@say_each_once()  # runs on one dataset share most remarks
def run_comparison(
    task: Task,
    dataset: PreparedDataset,
    rows: Sequence[Row],  # the rows to compare, at least one
    out: Path,
    options: CompareOptions,
    *,
    dimension: int,
) -> ComparisonResult:
    """Train and evaluate all rows, and write the comparison into a folder."""
    options = check_options(options)
    sizes = [dimension, *(size for size in dict.fromkeys(options.dimensions) if size != dimension)]
    if options.cut and (len(sizes) < 2 or max(sizes) > dimension):
        got = f"Got {dimension} and {sizes[1:] or 'none'} instead."
        raise UserError(f"What is cut is the embedding of 'dimension', at smaller 'dimensions'. {got}")
    runs = plan_runs(rows, out, options.seeds, sizes, reserved=task.variants)
    unfinished = [run for run in runs if not is_finished(run, dataset)]
    check_labels(task, dataset, [run.options for run in unfinished])

    shown_rows = sheet_variants([row.name for row in rows])
    results = _Results(sizes, options, {size: {row.name: [] for row in rows} for size in sizes})
    for number, run in enumerate(runs, 1):
        check_no_link(out, *run.folder.relative_to(out).parts)
        if not is_finished(run, dataset):
            at_size = f", {run.dimension} dimensions" if len(sizes) > 1 else ""
            say(f"{number}/{len(runs)} {run.row}, seed {run.seed}{at_size}")
            callbacks = with_tracker((), options.tracker)
            train_task(task, dataset, run.options, Place(run.folder, resume=True, callbacks=callbacks))
        results.add(run, dataset, is_shown=run.row in shown_rows)

    comparison = results.comparison()
    if options.protocol:
        of_table = [run for run in runs if run.dimension == dimension]
        measured = _measure_runs(of_table, dataset, as_protocol(options.protocol), results.opened)
        comparison = MeasuredComparison.of(comparison, measured)
    folder_names = row_folders([row.name for row in rows], reserved=task.variants)
    write_tables(comparison, folder_names, out)
    write_pictures(comparison, results.opened, out)
    (_, first), *others = results.opened.items()
    beside = {name.partition(",")[0]: run.embeddings for name, run in others[:1]}
    note = sheet_note([row.name for row in rows])
    path = out / RETRIEVAL_REPORT
    page = write_retrieval_report(first, beside or first.frozen, table=comparison.table(), note=note, path=path)
    folders = {f"{visible_text(run.row)}, {run.dimension} dimensions, seed {run.seed}": run.folder for run in runs}
    write_report(comparison, folders, out, title=f"{dataset.info.name}: comparison of losses")
    return ComparisonResult(comparison, page, folders, folder_names)


def _measure_runs(
    runs: Sequence[PlannedRun],
    dataset: PreparedDataset,
    protocol: Protocol,
    opened: Mapping[str, Run],  # row to its first run, of some rows
) -> ProtocolResult:
    """Measure finished runs by a protocol, and join those of each row."""
    results: dict[str, list[ProtocolResult]] = {}
    for planned in runs:
        of_row = results.setdefault(planned.row, [])
        run = None if of_row else opened.get(planned.row)
        if run is None:
            run = Run.open(planned.folder, data=dataset.folder, device=planned.options.device, allow_download=True)
        of_row.append(run.measure(protocol))
    return join_seeds(results)


def check_labels(task: Task, dataset: PreparedDataset, runs: Iterable[TrainConfig]) -> None:
    """Check that the dataset has the labels that every loss needs, before the first of them is trained."""
    labels = dataset.split("train").labels
    for options in {(run.loss, run.label_distance): run for run in runs}.values():
        distance = distances.get(task.label_distance(options, dataset.info)).fit(labels)
        sample, kind = distance.encode(labels[:2]), losses.get(options.loss).labels
        of_kind = {"classes": distance.class_names, "vectors": distance.label_vectors}
        if kind in of_kind and of_kind[kind](sample) is None:
            raise UserError(
                f"The loss {options.loss!r} is over {kind}, which the label distance {distance.name!r} does not give. "
                "Leave it out, or take it through a rule, as in binary(loss=triplet, rule=nearest, k=5)."
            )


def write_tables(comparison: Comparison, folders: Mapping[str, str], out: Path) -> None:
    """Write comparison.json and table.md."""
    write_json(out / "comparison.json", {**comparison.to_json(), "folders": folders})
    with atomic_file(out / "table.md") as temporary:
        temporary.write_text(f"{comparison.markdown()}\n\n{comparison.notes()}\n", encoding="utf-8")


@dataclass
class _Results:
    """The evaluations of a comparison, run by run."""

    sizes: Sequence[int]  # the table's dimension, then the others
    options: CompareOptions
    by_size: dict[int, dict[str, list[Evaluation]]]  # dimension to method to one evaluation per seed
    opened: dict[str, Run] = field(default_factory=dict)  # row to its first run, of the rows that are shown
    references: Evaluation | None = None  # of the first run, with the rows that need no training

    def add(self, run: PlannedRun, dataset: PreparedDataset, *, is_shown: bool) -> None:
        """Evaluate a finished run, unless its folder holds the evaluation."""
        smaller = self.sizes[1:] if self.options.cut and run.dimension == self.sizes[0] else ()
        cut_rows = [cut_row(size) for size in smaller]
        evaluation = None
        if self.references is not None:
            evaluation = kept_evaluation(run.folder, self.references, cut_rows)
        opens = is_shown and run.row not in self.opened
        if evaluation is None or opens:
            trained = Run.open(run.folder, data=dataset.folder, device=run.options.device, allow_download=True)
            if opens:
                self.opened[run.row] = trained
            if evaluation is None:
                evaluation = trained.evaluate(
                    EvaluateOptions(recall_within=self.options.recall_within),
                    dimensions=smaller,
                    references=self.references is None,
                    tracker=self.options.tracker,
                )
        if self.references is None:
            whole = {name: row for name, row in evaluation.rows.items() if name not in cut_rows}
            self.references = replace(evaluation, rows=whole)
        self.by_size[run.dimension][run.row].append(evaluation)
        for size in smaller:
            part = replace(evaluation, rows={EMBEDDING: evaluation.rows[cut_row(size)]})
            self.by_size[size].setdefault(f"{run.row}{CUT}", []).append(part)

    def comparison(self) -> Comparison:
        """The figures of all runs."""
        assert self.references is not None
        main, *others = self.sizes
        return Comparison(
            self.by_size[main], self.references, EMBEDDING, main, {size: self.by_size[size] for size in others}
        )
