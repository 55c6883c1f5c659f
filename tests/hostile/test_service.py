"""``cml serve`` lives on, whatever it is sent, and ends when it is told to. Its worker alone: tests/serving."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_attacks import RIGHT, attack, make_place, running


@pytest.mark.slow
def test_the_service_outlives_attacks_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    images = make_place(tmp_path)
    with running(tmp_path) as service:
        seen = attack(service, tmp_path, images, requests=200, clients=8, seconds=0)
        assert {key: count for key, count in seen.items() if key[1] not in RIGHT[key[0]]} == {}
        assert {what for what, _ in seen} == set(RIGHT)
        lines = service.log.read_text().splitlines()
        assert len([line for line in lines if "a search failed: DataError" in line]) == len(lines) == 1
        assert service.end() < 40
        assert service.process.returncode == 0
