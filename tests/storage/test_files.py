from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cml.errors import UserError
from cml.storage.exclusive_lock import exclusive_lock


def test_a_second_holder_of_a_lock_is_refused_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from cml.storage.exclusive_lock import exclusive_lock\n"
            "with exclusive_lock(Path(sys.argv[1]), 'the job'):\n    print('held', flush=True); time.sleep(60)",
            str(lock),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="Another process is working on the job"), exclusive_lock(lock, "the job"):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with exclusive_lock(lock, "the job"):
        pass
    with exclusive_lock(lock, "the job"):
        pass
