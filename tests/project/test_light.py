"""Importing cml and asking for help must stay light: measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "torchvision", "gensim", "ot", "numba", "matplotlib", "sklearn", "scipy", "PIL", "jinja2", "tyro")
LIGHT = {
    "import cml": "import cml",
    "cml --help": "from cml.cli import main; main(['--help'])",
    "label distances": "import cml.distances; cml.distances.names()",
    "names of losses": "import cml.registry",
}
FAILING = (  # errors of arguments, which need nothing that is heavy but the parser
    ["evaluate", "NOWHERE"],
    ["audit", "NOWHERE"],
    ["calibrate", "NOWHERE"],
    ["report", "NOWHERE"],
    ["predict", "NOWHERE", "NOWHERE"],
    ["export", "hub", "NOWHERE", "--out", "OUT"],
    ["distances", "NOWHERE"],
    ["prepare", "folder", "--nothing"],
    ["check", "NOWHERE"],
    ["train", "value", "--nothing"],
    ["train", "value", "--data", "NOWHERE", "--out", "OUT"],
    ["compare", "value", "--data", "NOWHERE", "--out", "OUT"],
    ["demo", "--nothing"],
    ["explore", "NOWHERE"],
    ["reproduce", "nothing"],
    ["search", "NOWHERE", "IMAGE"],
    ["embed", "NOWHERE", "--nothing"],
    ["embed", "NOWHERE", "--images", "NOWHERE", "--out", "OUT"],
    ["index", "NOWHERE", "NOWHERE", "--out", "OUT"],
    ["features", "--images", "NOWHERE", "--out", "OUT"],
    ["serve", "NOWHERE"],
    ["losses", "nothing"],
    ["search", "NOWHERE", "--nothing"],
    ["bench", "--nothing"],
)


def test_errors_of_arguments_import_nothing_heavy() -> None:
    heavy = [name for name in HEAVY if name not in ("tyro", "PIL")]
    script = f"""
import json, sys
from cml.cli import main
found = []
for arguments in {list(FAILING)}:
    code = main(arguments)
    found.append([arguments[0], code, [name for name in {heavy} if name in sys.modules]])
print(json.dumps(found))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240)
    assert json.loads(result.stdout.splitlines()[-1]) == [[arguments[0], 2, []] for arguments in FAILING]


@pytest.mark.parametrize("code", LIGHT.values(), ids=LIGHT)
def test_no_heavy_import(code: str) -> None:
    script = f"import sys, json; {code}; print(json.dumps([n for n in {HEAVY} if n in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=240)
    assert json.loads(result.stdout.splitlines()[-1]) == []


def test_reader_that_stops_early_is_no_error() -> None:
    command = f"{sys.executable} -m cml train value --help | head -1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, timeout=240
    )
    assert result.stdout.startswith("usage: cml train value")
    assert "rror" not in result.stderr
