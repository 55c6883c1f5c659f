"""sentence-transformers in other processes: two that train as one does, and one that loads models without cml."""

import subprocess
import sys
from pathlib import Path

import pytest
import saved_for_elsewhere
import sentence_gradients
import torch
from safetensors.torch import load_file
from start_two import run_two

pytestmark = pytest.mark.slow


def test_gradients_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    run_two(Path(sentence_gradients.__file__), str(tmp_path))
    one = sentence_gradients.train()
    for rank in "01":
        two = load_file(tmp_path / f"{rank}.safetensors")
        assert two.keys() == one.keys()
        whole, other = (torch.cat([found[name].flatten().double() for name in one]) for found in (one, two))
        assert whole.norm() > 1e-3
        assert (other - whole).norm() <= 1e-6 * whole.norm()  # single numbers of float32 differ by what they cancel


def test_texts_load_where_cml_is_not_installed(tmp_path: Path) -> None:
    saved_for_elsewhere.write(tmp_path)
    blocked = (
        "import runpy, sys; sys.modules['cml'] = None; sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", blocked, saved_for_elsewhere.__file__, "read", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "without cml" in done.stdout
    assert done.stdout.count("largest difference") == len(saved_for_elsewhere.TEXT_KINDS)
