"""``cml evaluate RUN``: how well a trained embedding retrieves, beside oracle, random and frozen features."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import (
    AllowDownload,
    AsJson,
    Data,
    Device,
    Run,
    StoreOfImages,
    print_json,
    print_text,
)
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained embedding against the oracle, a random ranking and frozen features."""

    run: Run
    measures: EvaluateOptions
    data: Data = None
    features: StoreOfImages = None
    pairs: Path | None = None
    """Also compute Spearman's correlation with human similarity ratings of pairs: a CSV or JSONL file with the columns
    item, other (item_id of two images among queries and gallery) and similarity. By default the dataset's pairs.csv."""
    dimensions: tuple[int, ...] = ()
    """Also evaluate the embedding truncated to its first dimensions, such as 16 32 64: one row per size."""
    protocol: str = ""
    """Evaluation protocol whose metrics are printed instead: regression, verification, re-identification, few-shot or
    compact-codes, with settings as in "regression(k=5)"."""
    device: Device = "auto"
    allow_download: AllowDownload = False
    details: bool = False
    """Print all metrics and the full verdict instead of a summary."""
    tracker: str = ""
    """Experiment tracker to which the results are added; see cml train."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Evaluate, write evaluation.json, print the table."""
    default = Evaluate(tyro.MISSING, EvaluateOptions())
    command = parse(Evaluate, arguments, prog="cml evaluate", default=default)
    check_run_folder(command.run)
    from cml.doors.run import Run
    from cml.processes.init_processes import init_processes

    with init_processes(command.device) as ranks:
        run = Run.open(
            command.run,
            data=command.data,
            device=command.device,
            ranks=ranks,
            allow_download=command.allow_download,
            features=command.features,
        )
        if command.protocol:
            measured = run.measure(command.protocol)
            if ranks.first:
                if command.json:
                    print_json(measured.to_json())
                else:
                    print_text(str(measured))
            return
        evaluation = run.evaluate(
            command.measures, pairs=command.pairs, dimensions=command.dimensions, tracker=command.tracker
        )
    if not ranks.first:
        return
    if command.json:
        print_json(evaluation.to_json())
        return
    table = evaluation.table() if command.details else evaluation.summary("--details")
    print_text(table, f"all figures: {command.run}/evaluation.json")
