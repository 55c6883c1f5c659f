"""The loops that the pages show, in two processes against one."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import page_examples
import pytest
from start_two import run_two

pytestmark = pytest.mark.slow

LIGHTNING = ' accelerator="cpu",'


def last_number(printed: str, pattern: str) -> float:
    found = re.findall(pattern, printed)
    assert len(found) == 1, printed
    return float(found[0])


def run_here(code: str) -> str:
    """Run code in this process, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "example.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@pytest.mark.parametrize("name", ["plain_ddp.py", "with_accelerate.py"])
def test_loops_of_the_page_on_several_processes(name: str, tmp_path: Path) -> None:
    files = page_examples.read_files("howto/several_processes.md")
    (tmp_path / name).write_text(files[name])
    alone = last_number(run_here(files["with_accelerate.py"]), r"last loss ([\d.]+)")
    assert last_number(run_two(tmp_path / name), r"last loss ([\d.]+)") == pytest.approx(alone, rel=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_lightning_page_in_two_processes(tmp_path: Path) -> None:
    page = (page_examples.DOCS / "tutorials" / "lightning.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```\{code-cell\}\n(?::[^\n]*\n)*(.*?)^```", page, re.DOTALL | re.MULTILINE))
    assert code.count(LIGHTNING) == 1
    (tmp_path / "two.py").write_text(code.replace(LIGHTNING, f'{LIGHTNING} devices=2, strategy="ddp",'))
    two, one = run_two(tmp_path / "two.py"), run_here(code)
    first = last_number(two, r"([\d.]+) before")
    assert first == last_number(one, r"([\d.]+) before")
    for printed in (two, one):  # Adam has made more of the rounding
        assert last_number(printed, r"([\d.]+) after 90 steps") < 0.5 * first
