"""The worker of the service: it answers the requests that wait, in batches, and outlives each fault."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from cml.serving.answer import Result
from cml.serving.query import Limits, Query, Refusal

log = logging.getLogger("cml.serving")
Answer = Callable[[Sequence[Query]], list[list[Result]]]
_PAUSE = 0.004  # seconds for others to join a batch
_AGAIN = 0.1  # seconds until a worker that failed starts again


class Worker:
    """Answers requests in batches, in a thread of its own: those that arrive meanwhile form the next batch."""

    def __init__(self, answer: Answer, limits: Limits, note_batch: Callable[[int], object] = lambda size: None) -> None:
        self._answer, self._limits, self._note = answer, limits, note_batch
        self._queue: asyncio.Queue[tuple[Query, asyncio.Future[list[Result]]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._busy_since: float | None = None

    def start(self) -> None:
        """Start, in the running loop."""
        self._task = asyncio.create_task(self._supervise())

    async def end(self) -> None:
        """End; who still waits is not answered."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def is_alive(self) -> bool:
        """Whether it works, and no batch takes much longer than a request may."""
        is_stuck = self._busy_since is not None and time.monotonic() - self._busy_since > 2 * self._limits.seconds
        return self._task is not None and not self._task.done() and not is_stuck

    async def ask(self, query: Query) -> list[Result]:
        """Wait for the results of a query.

        Raises:
            Refusal: Its inputs are refused.
            Exception: The search failed.
        """
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((query, future))
        return await future

    async def _supervise(self) -> None:
        while True:
            batch: list[tuple[Query, asyncio.Future[list[Result]]]] = []
            try:
                while True:
                    batch.clear()
                    await self._collect(batch)
                    await self._answer_batch(batch)
            except Exception as error:  # a fault of this code; who waits for this batch is told
                log.error("the worker failed and starts again: %s: %s", type(error).__name__, error)
                for _, future in batch:
                    if not future.done():
                        future.set_exception(RuntimeError("the worker failed"))
                await asyncio.sleep(_AGAIN)

    async def _collect(self, batch: list[tuple[Query, asyncio.Future[list[Result]]]]) -> None:
        """Wait for a request, and take those that follow it at once and have room beside it."""
        batch.append(await self._queue.get())
        await asyncio.sleep(_PAUSE)
        room, pixels = self._limits.batch - len(batch[0][0]), self._limits.pixels - batch[0][0].pixels
        while room > 0 and pixels > 0 and not self._queue.empty():
            batch.append(self._queue.get_nowait())
            room, pixels = room - len(batch[-1][0]), pixels - batch[-1][0].pixels

    async def _answer_batch(self, batch: list[tuple[Query, asyncio.Future[list[Result]]]]) -> None:
        waiting = [(query, future) for query, future in batch if not future.done()]  # the others' clients have gone
        if not waiting:
            return
        self._note(sum(len(query) for query, _ in waiting))
        self._busy_since = time.monotonic()
        try:
            answers = await self._compute([query for query, _ in waiting])
        finally:
            self._busy_since = None
        for (_, future), answer in zip(waiting, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _compute(self, queries: Sequence[Query]) -> list[list[Result] | Exception]:
        """The results of each query, or its fault: if a batch fails, its queries are answered one by one."""
        try:
            return list(await asyncio.to_thread(self._answer, queries))
        except Exception as error:  # also MemoryError
            if len(queries) > 1:
                return [(await self._compute([query]))[0] for query in queries]
            if not isinstance(error, Refusal):
                log.error("a search failed: %s: %s", type(error).__name__, error)
            return [error]
