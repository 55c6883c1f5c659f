"""Texts of strangers move no terminal and their numbers end in no traceback; see canaries.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from canaries import COMMANDS, find_faults


@pytest.mark.slow
@pytest.mark.usefixtures("short_audit")
def test_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    outcomes = list(find_faults(tmp_path, most=2))
    assert [finding for _, finding in outcomes if finding] == []
    assert len(outcomes) >= 2 * len(COMMANDS)
