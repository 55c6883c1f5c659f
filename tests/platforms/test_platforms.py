"""Other systems, as far as one system can tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform != "linux", reason="takes things away that Linux has")
def test_training_locks_and_jobs_do_without_what_windows_lacks(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "windows.py"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("cut off\nAnother process is working on the run")
