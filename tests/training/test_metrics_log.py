"""metrics.jsonl: what is written comes back, also what is no number; what a stranger wrote is refused by its line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cml.errors import DataError
from cml.training.metrics_log import MetricsLog, read_metrics


def test_a_score_that_is_no_number_does_not_end_a_run_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path, 0).add([{"step": 4, "loss": 0.5}, {"step": 4, "validation": math.nan}, {"step": 5, "loss": 0.25}])
    assert json.loads(path.read_text().splitlines()[1]) == {"step": 4, "validation": None}  # JSON has no NaN
    resumed = MetricsLog(path, 4)
    assert resumed.records[0] == {"step": 4, "loss": 0.5}
    assert math.isnan(resumed.records[1]["validation"])
    assert len(resumed.records) == 2
    MetricsLog(path, 4)


NO_RECORDS = [
    '"text"',
    "null",
    "[1]",
    "{",
    '{"step": "4"}',
    '{"step": null}',
    '{"loss": 1}',
    '{"step": 1, "loss": "low"}',
]
NO_RECORDS += ['{"step": 1, "loss": [1]}', '{"step": 1, "loss": {}}', '{"step": 1, "loss": NaN}']


@pytest.mark.parametrize("line", NO_RECORDS)
def test_what_is_no_record_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": 1.0}}\n{line}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is not a metrics record"):
        read_metrics(path)
