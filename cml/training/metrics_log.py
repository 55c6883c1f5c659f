"""metrics.jsonl of a run folder: one record per line, a step with its loss or with its validation's score."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.errors import DataError
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular
from cml.storage.saved_options import Count, record
from cml.storage.strict_json import parse_json

METRICS = "metrics.jsonl"


class MetricsLog:
    """The records of a run, in a file or in memory."""

    def __init__(self, path: Path | None, step: int) -> None:
        self._records: list[dict[str, Any]] = []
        self._path = path
        if path is not None:
            records = [record for record in read_metrics(path) if record["step"] <= step] if path.exists() else []
            with atomic_file(path) as temporary:
                temporary.write_text("".join(map(_line, records)))

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, read from the file again, since those of a long run would fill the memory."""
        return self._records if self._path is None else read_metrics(self._path)

    def add(
        self,
        records: Sequence[dict[str, Any]],  # numbers by name, ``step`` among them
    ) -> None:
        """Append records; they are on the disk when this returns."""
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


def read_metrics(path: Path) -> list[dict[str, Any]]:  # a record a line; ``null`` becomes NaN
    """Read metrics.jsonl, without the unfinished last line of a killed run."""
    with open_regular(path) as file:
        lines = file.read().split(b"\n")
    records: list[dict[str, Any]] = []
    for line_number, line in enumerate(lines[:-1], 1):
        try:
            value = parse_json(line)
            numbers = record(value, dict[str, float | None], "", "")
            step = record(value["step"], Count, "", "")
        except (ValueError, KeyError, DataError):
            raise DataError(f"{path}:{line_number} is not a metrics record: {line[:80]!r}.") from None
        records.append(
            {key: math.nan if number is None else number for key, number in numbers.items()} | {"step": step}
        )
    return records
