"""``cml report RUN``: the retrieval report, a page of what a trained embedding retrieves beside oracle and baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, Run, StoreOfImages, show
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class Report:
    """Write a report of the images that a trained embedding retrieves, next to the oracle and a baseline."""

    run: Run
    against: Path | None = None
    """Run folder of a baseline on the same dataset; by default frozen ImageNet features."""
    queries: int = 48
    """Number of queries to show, evenly spaced from the worst to the best."""
    k: int = 5
    """Number of retrieved images per method."""
    thumbnail: int = 96
    """Size of an image on the page, in pixels."""
    data: Data = None
    features: StoreOfImages = None
    device: Device = "auto"
    allow_download: AllowDownload = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Write RUN/retrieval_report.html."""
    options = parse(Report, arguments, prog="cml report")
    check_run_folder(options.run)
    from cml.doors.run import open_run  # which imports torch

    folders = [options.run, *([] if options.against is None else [options.against])]
    run, *baseline = [
        open_run(
            folder,
            data=options.data,
            device=options.device,
            allow_download=options.allow_download,
            features=options.features,
        )
        for folder in folders
    ]
    path = run.retrieval_report(*baseline, queries=options.queries, k=options.k, thumbnail=options.thumbnail)
    show({"retrieval_report": str(path)}, f"retrieval report: {path}", as_json=options.json)
