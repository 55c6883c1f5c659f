"""Training loops of one's own in two processes against one: plain PyTorch, Lightning and Accelerate."""

from __future__ import annotations

import doctest
import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import own_loops
import pytest
import torch
from safetensors.torch import load_file
from start_two import run_two
from torch import Tensor

from cml.distributed import gather
from cml.errors import UserError

WAYS = [f"{name}.{way}" for name in own_loops.CASES for way in ("whole", "cached")]


class Ranks(NamedTuple):
    """What each of two processes has found."""

    tensors: list[dict[str, Tensor]]
    facts: list[dict[str, Any]]


LOOPS = [pytest.param(name, marks=pytest.mark.slow) for name in ("plain", "lightning", "accelerate")]  # two processes


@pytest.fixture(scope="module", params=LOOPS)
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Ranks]:
    folder = tmp_path_factory.mktemp(request.param)
    run_two(Path(own_loops.__file__), request.param, str(folder))
    names = [f"{request.param}.rank{rank}" for rank in range(2)]
    facts = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    return request.param, Ranks([load_file(folder / name) for name in names], facts)


@cache
def one_process() -> own_loops.Found:
    return own_loops.plain()


def test_gradients_are_those_of_one_process(two: tuple[str, Ranks]) -> None:
    alone = {f"{way}/{key}": value for way, record in one_process().items() for key, value in record.tensors.items()}
    for tensors in two[1].tensors:
        assert tensors.keys() == alone.keys()
        for way in WAYS:
            name = way.partition(".")[0]
            for step in range(own_loops.STEPS):
                for part in ("network", "loss", "memory"):
                    keys = [key for key in alone if key.startswith(f"{way}/{name}.{step}.{part}")]
                    if not keys:
                        continue
                    true, found = (torch.cat([side[key].flatten() for key in keys]) for side in (alone, tensors))
                    assert true.norm() > 1e-3, (way, step, part)  # none is 0 by mistake
                    assert float((found - true).norm() / true.norm()) < 1e-6, (way, step, part)
    assert any(".loss." in key for key in alone)
    assert any(key.endswith(".memory") for key in alone)


def test_both_processes_have_the_same_bits(two: tuple[str, Ranks]) -> None:
    first, second = two[1].tensors
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_each_process_gets_its_part_of_the_batches_of_one(two: tuple[str, Ranks]) -> None:
    first, second = (facts["items"] for facts in two[1].facts)
    for way, record in one_process().items():
        for one, other, whole in zip(first[way], second[way], record.items, strict=True):
            assert (len(one), len(other)) == (7, 6)
            assert one + other == whole


def test_what_would_split_batches_again_is_refused_in_one_line(two: tuple[str, Ranks]) -> None:
    kind, ranks = two
    for facts in ranks.facts:
        said = facts.get("refused", "")
        assert "\n" not in said
        if kind == "lightning":
            assert "set use_distributed_sampler=False in the Trainer" in said
        if kind == "accelerate":
            assert said == "Each process gets its part of these batches already: leave split_batches=True out."


@pytest.mark.parametrize("two", LOOPS[:1], indirect=True)
def test_rows_of_any_kind_are_gathered(two: tuple[str, Ranks]) -> None:
    rows = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    for rank, facts in enumerate(two[1].facts):
        for name, (dtype, found) in facts["types"].items():
            assert dtype == name
            assert found == (torch.tensor(rows).bool().tolist() if name == "torch.bool" else rows)
        assert facts["array"] == [0, 1, 2, 3]
        assert facts["texts"] == ["a", "bc", "d", "e"]
        assert facts["list"] == [{"text": text} for text in "abcd"]
        assert facts["tuple"] == list("abcd")
        assert facts["labels"]
        assert facts["none of one"] == [2, 3]
        assert facts["not a number"]
        own = rows[:3] if rank == 0 else rows[3:]
        assert facts["slope"] == [[2 * 3 * x**2 for x in row] for row in own]  # both processes ask for it
        assert facts["curvature"] == [[2 * 6 * x for x in row] for row in own]
        assert facts["quiet"] is False


@pytest.mark.parametrize("two", LOOPS[:1], indirect=True)
def test_rows_that_do_not_fit_are_one_line_on_every_rank(two: tuple[str, Ranks]) -> None:
    begin = "All processes must gather rows of one type and shape. Rank 0 has"
    row, wide_row = "a tensor torch.float32 (2,)", "a tensor torch.float32 (3,)"
    for facts in two[1].facts:
        shapes, gradients = facts["other shape"], facts["no gradient"]
        assert shapes == f"{begin} {row} without a gradient, but rank 1 has {wide_row} without a gradient."
        assert gradients == f"{begin} {row} with a gradient, but rank 1 has {row} without a gradient."
        assert facts["other type"] == f"{begin} an array <f8 (), but rank 1 has a list."


@pytest.mark.parametrize("two", LOOPS[:1], indirect=True)
def test_batches_in_a_process(two: tuple[str, Ranks]) -> None:
    for facts in two[1].facts:
        assert facts["batches"]["sizes"] == [6, 4]
        assert facts["batches"]["state"] == {"epoch": 0, "batch": 1, "seed": 3, "steps": 4, "batch_size": 13}
        assert facts["batches"]["too small"].startswith("A batch of 1 items cannot be split over 2 processes: set the")


def test_one_process_gathers_what_it_has() -> None:
    for rows in (torch.ones(3), [1, 2], own_loops.ENCODED):
        assert gather(rows) is rows
    for wrong, got in ((3, "int"), ("abc", "str"), (torch.tensor(1.0), "a number"), ({"a": 1}, "dict")):
        with pytest.raises(UserError, match=f"gather takes a row for each item .* Got {got} instead"):
            gather(wrong)
    with pytest.raises(UserError, match="real numbers"):
        gather(torch.ones(3, dtype=torch.complex64))


def test_examples() -> None:
    for name in ("gather", "cached_backward"):
        failed, tried = doctest.testmod(importlib.import_module(f"cml.distributed.{name}"))
        assert tried > 0
        assert failed == 0
