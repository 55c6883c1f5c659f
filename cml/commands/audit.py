"""``cml audit RUN``: the labels of a dataset that disagree with those of similar items, perhaps wrong ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, Run, Split, StoreOfImages, show
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class AuditOptions:
    """List the labels that disagree with those of similar items and may be wrong, the most suspicious first."""

    run: Run
    count: int = 10
    """Number of items to print; audit.csv in the run folder lists all items."""
    splits: tuple[Split, ...] = ()
    """Splits to audit; by default all, or train if the queries are the training items."""
    seed: int = 0
    """Random seed."""
    data: Data = None
    features: StoreOfImages = None
    device: Device = "auto"
    allow_download: AllowDownload = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Write RUN/audit.csv, and print its first items."""
    options = parse(AuditOptions, arguments, prog="cml audit")
    check_run_folder(options.run)
    from cml.checks.audit_list import AUDIT
    from cml.doors.run import open_run
    from cml.errors import UserError

    if options.count < 1:
        raise UserError(f"'--count' must be 1 or more. Got {options.count} instead.")
    opened = open_run(
        options.run,
        data=options.data,
        device=options.device,
        allow_download=options.allow_download,
        features=options.features,
    )
    listed = opened.audit(splits=options.splits, seed=options.seed)
    path, count = opened.folder / AUDIT, min(options.count, len(listed.names))
    result = {"list": str(path), "items": len(listed.names), "wrong": listed.audit.wrong._asdict()}
    first = [{"item_id": name, "score": float(score)} for _, name, _, _, score, *_ in listed.rows(count)]
    lines = [
        *listed.audit.lines(),
        "",
        listed.table(count),
        "",
        f"all items: {path}",
        "Look at the first items. Correct wrong labels where they come from, then prepare and train again.",
        f"next: cml explore {options.run}",
    ]
    show({**result, "first": first}, *lines, as_json=options.json)
