"""The options of training as keyword arguments: the same as in TrainConfig, typed, and completed by interpreters."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import venv
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import jedi
import pytest

import cml
from cml.training.config import TrainConfig
from cml.training.own_functions import MakeOptimizer, MakeSchedule
from cml.training.train_options import FitOptions, TrainOptions

ROOT = Path(__file__).resolve().parents[2]
CALLS = [cml.fit, cml.train, cml.sklearn.CMLEmbedder]
SCRIPT = """import cml

images = [[[[0]]]]
cml.fit(images, [0], precision="half")
cml.fit(images, [0], step=5)
cml.fit(images, [0], steps="5")
cml.train("value", "data", "run", step=5)
cml.sklearn.CMLEmbedder(step=5)
cml.fit(images, [0], optimizer="sgd", steps=5, image_size=(16, 16), loss="log-ratio", clip_gradient=None)
cml.train("value", "data", "run", loss="log-ratio", flip="list")
cml.sklearn.CMLEmbedder(image_shape=(8, 8), steps=5, label_distance="classes")
"""


def test_the_options_are_those_of_the_dataclass_with_the_same_types() -> None:
    hints = get_type_hints(TrainConfig)
    names = {"MakeOptimizer": MakeOptimizer, "MakeSchedule": MakeSchedule}  # which are imported for type checkers alone
    given = get_type_hints(TrainOptions, localns=names)
    for name, function in (("optimizer", MakeOptimizer), ("schedule", MakeSchedule)):  # also functions
        assert given[name] == hints[name] | function
        given[name] = hints[name]
    assert given == {option.name: hints[option.name] for option in fields(TrainConfig)}
    assert not TrainOptions.__required_keys__
    objects = {"label_distance", "loss", "backbone", "features"}  # fit has arguments of these names
    assert FitOptions.__annotations__.keys() == TrainOptions.__annotations__.keys() - objects


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_signatures_list_every_option(call: Any) -> None:  # noqa: ANN401
    parameters = inspect.signature(call).parameters
    assert {option.name for option in fields(TrainConfig)} <= parameters.keys()
    assert parameters["steps"].default == TrainConfig.steps
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


@pytest.mark.parametrize("call", ["cml.fit(x, y, ", "cml.train('value', 'data', 'run', ", "cml.sklearn.CMLEmbedder("])
def test_an_interpreter_completes_the_options(call: str) -> None:
    def completed(start: str) -> list[str]:
        return [completion.name for completion in jedi.Interpreter(call + start, [{"cml": cml}]).complete()]

    for name in ("steps", "learning_rate", "freeze_backbone"):
        assert f"{name}=" in completed(name[:-2])


@pytest.mark.slow
def test_wrong_options_are_type_errors_in_the_documented_installation(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [*command, "--ignore-installed", "--prefix", str(environment), "--editable", str(ROOT)],
        check=True, capture_output=True, cwd=tmp_path, timeout=240,
    )  # fmt: skip
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    [python] = [path for path in environment.glob("*/python*") if path.stem == "python"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "--python-executable", python, script.name],
        check=False, capture_output=True, text=True, cwd=tmp_path, timeout=240,
        env={**os.environ, "PYTHONPATH": "", "MYPYPATH": ""},
    )  # fmt: skip
    errors = re.findall(r"^script.py:(\d+): error: (.*)$", checked.stdout, re.MULTILINE)
    assert [int(line) for line, _ in errors] == [4, 5, 6, 7, 8], checked.stdout + checked.stderr
    assert '"precision"' in errors[0][1]
    assert 'Unexpected keyword argument "step" for "fit"' in errors[1][1]
