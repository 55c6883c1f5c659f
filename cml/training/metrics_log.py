"""metrics.jsonl of a run folder: a record a line of what a step's loss and a validation's score were.

A run that was killed leaves at most one unfinished line, which nobody reads. Not for: the other files (run_folder.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.errors import DataError
from cml.storage.atomic import atomic_file, open_regular
from cml.storage.saved_options import Count, record
from cml.storage.strict_json import parse_json

METRICS = "metrics.jsonl"


class MetricsLog:
    """metrics.jsonl: one record a line. A continued run drops what lies after its checkpoint, then appends.

    Args:
        path: The file; None keeps records in memory.
        step: Global step to continue at.
    """

    def __init__(self, path: Path | None, step: int) -> None:
        self._records: list[dict[str, Any]] = []
        self._path = path
        if path is None:
            return
        records = [record for record in read_metrics(path) if record["step"] <= step] if path.exists() else []
        with atomic_file(path) as temporary:
            temporary.write_text("".join(map(_line, records)))

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records; of a run of days they would fill memory, and are read from the file again."""
        return self._records if self._path is None else read_metrics(self._path)

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Append records."""
        if self._path is None:
            self._records += records
            return
        with self._path.open("a") as file:
            file.write("".join(map(_line, records)))
            file.flush()
            os.fsync(file.fileno())


def _line(record: Mapping[str, Any]) -> str:
    plain = {key: value if math.isfinite(value) else None for key, value in record.items()}  # JSON has no NaN
    return json.dumps(plain, allow_nan=False) + "\n"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl; an unfinished last line of a killed run is left out.

    Returns:
        Numbers by name in each; what is ``null`` in the file was no number, and is NaN.

    Raises:
        DataError: another line is broken.
    """
    with open_regular(path) as file:
        lines = file.read().split(b"\n")
    records = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            value = parse_json(line)
            numbers = record(value, dict[str, float | None], "", "")
            found: dict[str, Any] = {key: math.nan if one is None else one for key, one in numbers.items()}
            found["step"] = record(value["step"], Count, "", "")
        except (ValueError, KeyError, DataError):
            raise DataError(f"{path}:{number} is not a metrics record: {line[:80]!r}.") from None
        records.append(found)
    return records
