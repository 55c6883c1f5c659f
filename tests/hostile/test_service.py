"""The search service of docs/tutorials/service.md lives on, whatever it is sent and whichever call in it fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from service_attacks import RIGHT, attack, make_place, running, service_code

import cml


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    """What the code of the page defines."""
    pytest.importorskip("fastapi")
    names: dict[str, Any] = {}
    exec(compile(service_code(), "service.py", "exec"), names)
    return names


class Index:
    """An index in which the n-th call fails, and one image always does."""

    def __init__(self, fails: int, error: BaseException) -> None:
        self.model, self.calls, self._fails, self._error = self, 0, fails, error

    def embed(self, images: list[bytes]) -> list[bytes]:
        self._count()
        if b"bad" in images:
            raise cml.UserError("It is no image.")
        return images

    def search(self, rows: list[bytes], k: int) -> list[bytes]:
        self._count()
        return rows

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._fails:
            raise self._error


@pytest.mark.parametrize(
    "error", [MemoryError("full"), OSError("gone"), RecursionError(), cml.errors.DataError("gone")]
)
def test_the_worker_goes_on_after_each_call_that_fails(
    service: dict[str, Any], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    async def ask(fails: int) -> int:
        index, queue = Index(fails, error), asyncio.Queue()
        worker = asyncio.create_task(service["answer"](index, queue))

        async def send(image: bytes) -> Any:  # noqa: ANN401
            future = asyncio.get_running_loop().create_future()
            queue.put_nowait((image, future))
            return await asyncio.wait_for(future, 5)

        first, bad, last = await asyncio.gather(*map(send, (b"a", b"bad", b"c")))
        assert isinstance(bad, Exception)
        after = await send(b"after")
        assert [isinstance(answer, Exception) for answer in (first, last, after)].count(True) <= 1
        if index.calls >= fails:
            assert await send(b"again") == b"again"
        assert not worker.done()
        worker.cancel()
        return index.calls

    service["PAUSE"] = 0.0
    fails = 1
    while asyncio.run(ask(fails)) >= fails:  # until none fails
        fails += 1
    assert fails >= 9


@pytest.mark.slow
def test_the_service_outlives_attacks_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    images = make_place(tmp_path)
    with running(tmp_path) as service:
        seen = attack(service, tmp_path, images, requests=200, clients=8, seconds=0)
        assert {key: count for key, count in seen.items() if key[1] not in RIGHT[key[0]]} == {}
        assert {what for what, _ in seen} == set(RIGHT)
        lines = service.log.read_text().splitlines()
        assert len([line for line in lines if "a search failed: DataError" in line]) == len(lines) == 1
        assert service.end() < 40
        assert service.process.returncode in (0, -15)
