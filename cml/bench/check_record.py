"""Which results ``cml bench check`` has checked on this computer: a small file for each in the cache, not beside it.

A record in the folder of the results would come with a stranger's results.
"""

import contextlib
import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

from cml.errors import DataError
from cml.storage.cache_folder import cache_folder
from cml.storage.json_file import write_json
from cml.storage.saved_options import read_record
from cml.version import __version__

_CHECKS = 1  # raise it with every new check: results that were checked before are then unchecked


@dataclass(frozen=True)
class CheckRecord:
    """What a check of a result left out.

    Attributes:
        columns: Scores whose metric was not computed again.
        ranks: Why the ranks of a row without trials were not computed again; "" if they were.
    """

    columns: list[str]
    ranks: str


def write_check_record(path: Path, record: CheckRecord) -> None:
    """Record that a result was checked.

    Args:
        path: The file of the result.
        record: What the check left out.
    """
    with contextlib.suppress(OSError):  # without a cache every result is as one that was not checked
        write_json(_record_path(path), asdict(record))


def read_check_record(path: Path) -> CheckRecord | None:
    """Read what the check of a result left out.

    Args:
        path: The file of the result.

    Returns:
        The record; None if this version of cml has not checked the result, or if its file has changed since.
    """
    try:
        return read_record(_record_path(path), CheckRecord, "the record of a check", "Delete it.")
    except (DataError, OSError):
        return None


def _record_path(path: Path) -> Path:
    digest = hashlib.sha256(f"{__version__} {_CHECKS} ".encode() + path.read_bytes()).hexdigest()
    return cache_folder() / "bench" / "checked" / f"{digest}.json"
