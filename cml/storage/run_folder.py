"""Whether a path can be a run at all; without torch, so that a command knows before it imports that."""

from pathlib import Path

from cml.errors import DataError

MADE_BY = "give a run folder that 'cml train' made."


def check_run_folder(run: Path) -> None:
    """Refuse what is no folder."""
    if not run.is_dir():
        raise DataError(f"{run} is not a folder; {MADE_BY}")
