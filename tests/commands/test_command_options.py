"""Options of evaluations, exports and data sources are converted and checked where they enter, by their annotations."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from types import UnionType
from typing import Any, Literal

import numpy as np
import pytest

import cml
from cml import data_prep
from cml.comparing.train_comparison import CompareOptions
from cml.distances.jobs.job_options import JobOptions
from cml.errors import UserError
from cml.export.captioning import CaptioningFeatures
from cml.option_types import check_options
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.training.config import TrainConfig

TEXTS: list[Any] = [3, 2.5, True, ["a"], {"a": 1}]
WRONG: dict[Any, list[Any]] = {
    bool: ["no", "true", 1, 0, [True]],
    int: ["10", 2.5, True, [3], {"a": 1}],
    float: ["0.5", True, [0.5], {"a": 1}, b"1"],
    str: TEXTS,
    Path: TEXTS,
    tuple: [3, "a", True, [object()], {"a": 1}],
    Literal: ["no-such", "No-such", True, ["no-such"], {"a": 1}],
}


def _alternatives(kind: Any) -> list[Any]:  # noqa: ANN401 - a type
    if typing.get_origin(kind) is typing.Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return [one for part in typing.get_args(kind) for one in _alternatives(part)]
    return [kind]


def _wrong_values(kind: Any) -> list[Any]:  # noqa: ANN401 - a type
    """Five values of another type; none for what is left to the class."""
    kinds = [one for one in _alternatives(kind) if one is not type(None)]
    origin = typing.get_origin(kinds[0])
    if len(kinds) > 1 or kinds[0] is Any or "Callable" in str(kinds[0]) or origin is dict:
        return []
    if dataclasses.is_dataclass(kinds[0]):
        return [3, "a", True, ["a"], {"a": 1}]
    names = {tuple: tuple, Literal: Literal}
    return WRONG[names.get(origin, tuple if origin is not None else kinds[0])]


def _required(kind: type[Any]) -> dict[str, Any]:
    """Values of the options that have no default."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is field.default_factory is dataclasses.MISSING:
            needed = _alternatives(hints[field.name])[0]
            is_list = typing.get_origin(needed) is tuple
            values[field.name] = needed() if dataclasses.is_dataclass(needed) else ("a",) if is_list else "a"
    return values


OPTIONS = [
    *(EvaluateOptions, CaptioningFeatures, JobOptions, CompareOptions),
    *(data_prep.registry.entry(name) for name in data_prep.names()),
]


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}".removeprefix("cml."))
def test_wrong_types_are_refused_at_the_door(kind: type[Any]) -> None:
    hints = typing.get_type_hints(kind)
    checked = 0
    for field in dataclasses.fields(kind):
        for value in _wrong_values(hints[field.name]):
            with pytest.raises(UserError) as caught:
                check_options(kind(**{**_required(kind), field.name: value}))
            assert str(caught.value).startswith(f"'{field.name}' must be "), (field.name, value)
            assert "\n" not in str(caught.value)
            checked += 1
    assert checked >= 5


def test_numbers_lists_and_names_of_files_are_converted() -> None:
    given = EvaluateOptions(seed=np.int64(3), recall_within=np.float32(2), recall_ks=[1, np.int8(2)])  # type: ignore[arg-type]
    options = check_options(given)
    assert isinstance(given.recall_ks, list)  # what the user holds stays as it is
    assert (options.seed, options.recall_within, options.recall_ks) == (3, 2.0, (1, 2))
    assert (type(options.seed), type(options.recall_ks)) == (int, tuple)
    from cml.commands.evaluate import Evaluate
    from cml.commands.train import Train

    command = check_options(Evaluate("runs/mine", given, dimensions=[16, 32]))  # type: ignore[arg-type]
    assert (command.run, command.dimensions, command.measures) == (Path("runs/mine"), (16, 32), options)
    assert check_options(Train("data", "runs/a", TrainConfig())).out == Path("runs/a")  # type: ignore[arg-type]
    assert check_options(CaptioningFeatures(att_size=np.int64(14))).att_size == 14  # type: ignore[arg-type]


MISSES: list[tuple[Any, str]] = [
    (
        lambda: check_options(EvaluateOptions(recall_ks=5)),  # type: ignore[arg-type]
        "'recall_ks' must be a list of whole numbers. Got 5 instead. Did you mean (5,)?",
    ),
    (lambda: check_options(EvaluateOptions(gain="Rank")), "Got 'Rank' instead. Did you mean 'rank'?"),
    (lambda: check_options(JobOptions(threads="4")), "a whole number. Got '4' instead. Did you mean 4?"),  # type: ignore[arg-type]
    (lambda: check_options(CaptioningFeatures(dtype="half")), "float32 or float16. Got 'half' instead."),  # type: ignore[arg-type]
    (lambda: check_options(CompareOptions(cut="yes")), "Got 'yes' instead. Did you mean True?"),  # type: ignore[arg-type]
    (
        lambda: cml.prepare("people", "out", count="12"),
        "'count' must be a whole number. Got '12' instead. Did you mean 12?",
    ),
    (lambda: cml.prepare("folder", "out", images="a", label_columns="age"), "Did you mean ('age',)?"),
]


@pytest.mark.parametrize(("make", "said"), MISSES)
def test_a_near_miss_is_named(make: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError) as caught:
        make()
    assert str(caught.value).endswith(said)
