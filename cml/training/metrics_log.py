"""metrics.jsonl of a run folder, one record a line, and the progress that it and the progress bar show."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cml.console.progress_bar import ProgressBar
from cml.errors import DataError
from cml.storage.atomic import atomic_file
from cml.storage.json_file import parse_json
from cml.storage.regular_file import open_regular
from cml.storage.saved_options import Count, record
from cml.training.config import TrainConfig

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


LOG_EVERY = 10  # steps whose losses are fetched from the device together


class Progress:
    """The losses of the steps, which are recorded together, and a progress bar."""

    def __init__(self, config: TrainConfig, first: int, log: MetricsLog, *, shown: bool) -> None:
        self._log = log
        self.bar = ProgressBar(total=config.steps, initial=first, unit="step", desc=config.loss, disable=not shown)
        self._waiting: list[tuple[int, Tensor]] = []  # for each step (loss, whether the embeddings are finite)
        self._began = time.perf_counter()
        self._images = 0

    def step(
        self,
        step: int,
        value: Tensor,
        embeddings: Tensor,  # (B, D)
    ) -> None:
        """Count a step, whose loss and embeddings stay on the device for now."""
        self._images += len(embeddings)
        self._waiting.append((step, torch.stack([value, embeddings.isfinite().all().float()])))
        if step % LOG_EVERY == 0:
            self.catch_up()
        self.bar.update()

    def catch_up(self) -> None:
        """Record the waiting steps."""
        if not self._waiting:
            return
        pairs = torch.stack([pair for _, pair in self._waiting]).tolist()
        _check_finite(self._waiting[0][0], pairs)
        steps = zip(self._waiting, pairs, strict=True)
        self._log.add([{"step": step, "loss": value} for (step, _), (value, _) in steps])
        self._waiting.clear()
        rate = self._images / (time.perf_counter() - self._began)
        self.bar.set_postfix_str(f"loss {pairs[-1][0]:.4f}, {rate:.0f} items/s", refresh=False)


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    for step, (value, is_finite) in enumerate(pairs, first):
        if not is_finite or not math.isfinite(value):
            fault = f"The loss is {value}" if is_finite else "The embeddings hold NaN or infinity"
            mend = "lower the learning_rate or set clip_gradient, then start again"
            if step == 1 and not is_finite:  # nothing was learned yet
                mend = "the inputs hold NaN or numbers too large for float32, or the backbone makes them. Mend those"
            raise FloatingPointError(f"{fault} at step {step}: {mend}.")
