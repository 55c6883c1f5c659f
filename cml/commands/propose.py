"""``cml propose RUN POOL``: which items of a pool to label next."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, Run, show
from cml.storage.downloads import check_run_folder

_SHOWN = 10


@dataclass(frozen=True)
class ProposeOptions:
    """List the items of a pool that are worth labelling next: those that are far from all labelled items."""

    run: Run
    pool: Annotated[Path, Positional, arg(metavar="POOL")]
    """Folder of images without labels, a .npy file of vectors, or a prepared dataset, whose labels are not read."""
    count: int = 50
    """Number of items to choose."""
    out: Path | None = None
    """CSV file to write the list to."""
    data: Data = None
    device: Device = "auto"
    allow_download: AllowDownload = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Choose the items, write the list if asked to, and print its first items."""
    options = parse(ProposeOptions, arguments, prog="cml propose")
    check_run_folder(options.run)
    from cml.doors.run import open_run

    opened = open_run(options.run, data=options.data, device=options.device, allow_download=options.allow_download)
    listed = opened.propose(options.pool, options.count)
    lines = [listed.table(_SHOWN)]
    if options.out is not None:
        lines.append(f"all items: {listed.save(options.out)}")
    result = {"items": list(listed.names), "distances": list(listed.distances)}
    show(result, *lines, as_json=options.json)
