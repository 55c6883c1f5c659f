"""The journey with few photographs, at a small size; tests/scenarios/small_data.py goes through all sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import small_data

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:A batch takes")
@pytest.mark.parametrize("count", [28, 12])
def test_the_printed_steps_run_and_the_validation_tells(
    count: int, real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    photographs = sorted((real_data("coco_mini") / "train2017").glob("*.jpg"))[:count]
    way = small_data.journey(photographs, tmp_path, small_data.in_this_process, steps=15)
    assert way.faults == []
    assert sum(line.startswith("Verdict: ") for line in way.said) >= 3
