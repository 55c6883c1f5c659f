"""What several tests of feature stores start from."""

from __future__ import annotations

from pathlib import Path

import pytest

import cml


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty drawn people, in a folder of their own beside which stores and runs may lie."""
    folder = tmp_path_factory.mktemp("stores") / "people"
    cml.prepare("people", folder, count=60, size=32)
    return folder
