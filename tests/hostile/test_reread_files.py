"""Each file that cml reads again, damaged or signed again: refused in a line, or as before (reread_files.py)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from reread_files import FILES, FORMATS, find_faults

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[\w.-]+\.(jsonl?|npy|npz|pt|safetensors|csv|sqlite|faiss)")


def named_files() -> set[str]:
    """The names of files in the code of cml, but for docstrings and for sources of data and results of papers."""
    found = set()
    for path in (ROOT / "cml").rglob("*.py"):  # which follows no links: data_prep and tasks
        if path.is_relative_to(ROOT / "cml/tasks") or path.is_relative_to(ROOT / "cml/data_prep"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts)
        found |= {node.value for node in constants if isinstance(node.value, str) and NAME.fullmatch(node.value)}
    return found


def test_every_file_that_the_code_names_is_listed() -> None:
    assert named_files() - FILES.keys() == set(), "add the file to FILES, and its format to FORMATS"
    assert set(FORMATS) - set(FILES.values()) == {"embeddings"}  # whose files have names of other formats
    tests = {path.name for path in (ROOT / "tests").rglob("*.py")}
    assert {name for text in FILES.values() for name in re.findall(r"\w+\.py", text)} <= tests


@pytest.mark.parametrize("name", ["lists", "embeddings", "index", "audit"])
def test_damaged_files(name: str) -> None:
    assert [finding for _, finding in find_faults(name, 24) if finding] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files(name: str) -> None:
    outcomes = list(find_faults(name, 96, seed=1))
    assert [finding for _, finding in outcomes if finding] == []
    assert sum(told.startswith("signed") for told, _ in outcomes) >= 40
    assert sum(told == "damaged, refused" for told, _ in outcomes) >= 10
