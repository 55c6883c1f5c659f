"""What the tests share: where the real data lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Give the folder of a real data set by name; skip with the reason where it is missing."""
    base = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))

    def folder(name: str) -> Path:
        path = base / name
        if not path.exists():
            pytest.skip(f"real data {name!r} is not at {base} (set CML_DATA)")
        return path

    return folder
