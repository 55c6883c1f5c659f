"""The worker of ``cml serve``: it forms batches, and goes on after each call that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import cml
from cml.serving.query import Limits, Query, Refusal
from cml.serving.worker import Worker


def ask_all(worker: Worker, inputs: Sequence[list[str]]) -> Any:  # noqa: ANN401
    """Results or faults of queries that come at the same time."""

    async def run() -> list[Any]:
        worker.start()
        asked = asyncio.gather(*(worker.ask(Query(one, 1, None)) for one in inputs), return_exceptions=True)
        answers = await asyncio.wait_for(asked, 30)
        assert worker.is_alive
        await worker.end()
        assert not worker.is_alive
        return answers

    return asyncio.run(run())


def echo(queries: Sequence[Query]) -> list[list[Any]]:
    return [[{"of": one} for one in query.inputs] for query in queries]


def test_queries_that_wait_are_answered_together() -> None:
    sizes: list[int] = []
    inputs = [[str(number)] * (1 + number % 3) for number in range(20)]
    answers = ask_all(Worker(echo, Limits(batch=10), sizes.append), inputs)
    assert answers == [[{"of": one} for one in part] for part in inputs]
    assert sum(sizes) == sum(map(len, inputs))
    assert len(sizes) < len(inputs)
    assert max(sizes) <= 10 + 2  # the last one of a batch may have several inputs


@pytest.mark.parametrize(
    "error", [MemoryError("full"), OSError("gone"), RecursionError(), cml.errors.DataError("gone")]
)
def test_it_goes_on_after_each_call_that_fails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    fails, calls = 0, 0

    def answer(queries: Sequence[Query]) -> list[list[Any]]:
        nonlocal calls
        calls += 1
        if calls == fails:
            raise error
        if any("bad" in query.inputs for query in queries):
            raise Refusal(400, "It is no image.")
        return echo(queries)

    while fails <= calls:  # until none fails
        fails, calls = fails + 1, 0
        first, bad, last = ask_all(Worker(answer, Limits()), [["a"], ["bad"], ["c"]])
        assert isinstance(bad, Refusal | type(error))
        assert [isinstance(one, Exception) for one in (first, last)].count(True) <= 1
    assert fails >= 4


def test_a_fault_of_the_worker_itself_is_told_to_who_waits_and_it_starts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def note(size: int) -> None:
        noted.append(size)
        if len(noted) == 1:
            raise ValueError("a fault")

    noted: list[int] = []
    worker = Worker(echo, Limits(batch=1), note)
    first, second = ask_all(worker, [["a"], ["b"]])
    assert isinstance(first, RuntimeError)
    assert second == [{"of": "b"}]
    assert "the worker failed and starts again: ValueError: a fault" in caplog.text


def test_who_has_gone_is_not_answered() -> None:
    asked: list[str] = []

    def answer(queries: Sequence[Query]) -> list[list[Any]]:
        asked.extend(one for query in queries for one in query.inputs)
        return echo(queries)

    async def run() -> None:
        worker = Worker(answer, Limits())
        gone = asyncio.create_task(worker.ask(Query(["gone"], 1, None)))
        await asyncio.sleep(0)
        gone.cancel()
        worker.start()
        assert await asyncio.wait_for(worker.ask(Query(["here"], 1, None)), 30) == [{"of": "here"}]
        await worker.end()

    asyncio.run(run())
    assert asked == ["here"]
