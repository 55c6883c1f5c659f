"""Checksums that a folder's record holds of its files and of itself: what is damaged is told from what was written.

They tell accidents: whoever changes a file on purpose can change its checksum too.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cml.errors import DataError
from cml.storage.json_file import read_json
from cml.storage.regular_file import digest_file

FILES, OWN = "sha256", "checksum"  # entries of a record: digests of files by their path, and its own


def digest_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Compute the SHA-256 of those files of a folder that exist, and of all files in the folders among them."""
    there = [folder / name for name in names]
    files = [path for name in there for path in ([name] if name.is_file() else sorted(name.rglob("*")))]
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files if path.is_file()}


def find_damaged(folder: Path, record: Mapping[str, Any], names: Iterable[str] | None = None) -> Path | None:
    """Find a file that is not as its folder's record says, of some or all that it names; None if all are."""
    digests = record.get(FILES)
    if not isinstance(digests, dict):
        return folder
    for name in digests if names is None else names:
        is_sound = False
        with contextlib.suppress(OSError, ValueError):
            is_sound = ".." not in name.split("/") and digest_file(folder / name) == digests.get(name)
        if not is_sound:
            return folder / name
    return None


def sign(record: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a record the checksum of all its other entries."""
    return {**record, OWN: _digest(record)}


def is_signed(record: Mapping[str, Any]) -> bool:
    """Whether a record has the checksum of its other entries."""
    return record.get(OWN) == _digest(record)


def check_beside(path: Path, records: Iterable[str], mend: str) -> None:
    """Compare a file with its checksum in a record beside it; nothing is compared where no such record names it."""
    for name in records:
        if (path.parent / name).is_file():
            record = read_json(path.parent / name, "the record of the files beside it")
            digests = record.get(FILES) if isinstance(record, dict) else None
            if isinstance(digests, dict) and path.name in digests and find_damaged(path.parent, record, [path.name]):
                raise DataError(f"{path} is damaged: its checksum is wrong. {mend}")


def _digest(record: Mapping[str, Any]) -> str:
    entries = {name: value for name, value in record.items() if name != OWN}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
