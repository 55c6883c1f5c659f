"""The client of a Dask cluster: its workers are watched and get calls. It sends pickles: use one that you trust."""

import contextlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Self

from cml.console.messages import say
from cml.errors import UserError, require_extra

with require_extra("cluster", "A scheduler"):
    import distributed
    from distributed.diagnostics.plugin import WorkerPlugin

PATIENCE = 15  # seconds for the scheduler to answer and for a first worker
QUIET = 30  # seconds without a worker before that is said, and said again
AHEAD = 2  # calls given out for each thread of the workers, so that none waits for this process
Call = tuple[Any, ...]  # a function of a module, and its arguments


class Workers:
    """The workers of a Dask scheduler; leaving the context cancels what they are doing."""

    def __init__(self, address: str) -> None:
        self._address, self._over = address, threading.Event()
        try:
            self.client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(
                f"No Dask scheduler answers at {address!r} ({str(error).strip() or type(error).__name__}). Start one "
                "with 'dask scheduler' and give its address, such as tcp://127.0.0.1:8786."
            ) from None
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
            specs = {"The scheduler": self.client.run_on_scheduler(find_spec, "cml")}
            worker_specs = self.client.run(find_spec, "cml", on_error="ignore")  # of one that dies now
            specs |= {f"The worker {address}": spec for address, spec in worker_specs.items()}
            if without := next((name for name, spec in specs.items() if spec is None), ""):
                raise UserError(f"{without} has no cml: install the same packages for the scheduler and all workers.")
        except BaseException as error:
            self.client.close()
            if not isinstance(error, TimeoutError):
                raise
            raise UserError(
                f"The scheduler at {address} has no worker: start some with 'dask worker {address}'."
            ) from None
        threads = self.client.nthreads()
        self.count, self.threads = len(threads), sum(threads.values())

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="cml-cluster-watch", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.client.close()

    def each(self, calls: Iterable[Call], named: Callable[[int], str]) -> Iterator[tuple[int, Any]]:
        """Have all calls computed."""
        left, under_way = iter(enumerate(calls)), {}
        token = f"cml-{uuid.uuid4().hex}"

        def submit(count: int) -> list[Any]:
            futures = []
            for number, (function, *arguments) in itertools.islice(left, count):
                under_way[key := f"{token}-{number}"] = number
                futures.append(self.client.submit(function, *arguments, key=key, pure=False))
            return futures

        coming = distributed.as_completed(submit(AHEAD * self.threads), loop=self.client.loop)
        for future in coming:
            number = under_way.pop(future.key)
            try:
                result = future.result()
            except distributed.KilledWorker as error:
                raise UserError(
                    f"{named(number)} took several workers down, the last one {error.last_worker.address}; do they "
                    "have enough memory?"
                ) from None
            future.release()
            yield number, result
            coming.update(submit(1))

    def _watch(self) -> None:
        """Say on stderr, every ``QUIET`` seconds, that there is no worker: Dask itself waits without a word."""
        while not self._over.wait(QUIET):
            trouble = ""
            with contextlib.suppress(RuntimeError):  # the connection is being closed
                try:
                    trouble = "" if self.client.nthreads() else "has no worker left"
                except (OSError, TimeoutError):
                    trouble = "does not answer"
            if trouble and not self._over.is_set():
                say(
                    f"The scheduler at {self._address} {trouble}; the job waits, and what is finished is kept. "
                    f"Start workers with 'dask worker {self._address}', or stop here and continue later."
                )


class JobWorkers(Workers):
    """Workers that each hold a job, which they build once from a recipe; calls name it by ``token``."""

    def __init__(self, address: str, build: Callable[[Mapping[str, Any]], Any], recipe: Mapping[str, Any]) -> None:
        self.token = f"cml-{uuid.uuid4().hex}"  # the name of the job, for ``carried_job``
        super().__init__(address)
        try:
            self.client.register_plugin(_Carrier(self.token, build, recipe), name=self.token)
        except BaseException:
            self.client.close()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self.client.unregister_worker_plugin(self.token)
        finally:
            super().__exit__(*error)


class _Carrier(WorkerPlugin):  # type: ignore[misc]
    """Brings a job to every worker, to one that joins later too."""

    def __init__(self, token: str, build: Callable[[Mapping[str, Any]], Any], recipe: Mapping[str, Any]) -> None:
        self.token, self.build, self.recipe = token, build, recipe

    def setup(self, worker: object) -> None:
        _recipes[self.token] = self.build, self.recipe

    def teardown(self, worker: object) -> None:
        _recipes.pop(self.token, None)
        _jobs.pop(self.token, None)


_recipes: dict[str, tuple[Callable[[Mapping[str, Any]], Any], Mapping[str, Any]]] = {}  # in a worker
_jobs: dict[str, Any] = {}
_job_lock = threading.Lock()


def carried_job(token: str) -> Any:  # noqa: ANN401 - what the job's function builds
    """Look up the job of a call, in a worker, which builds it at the first call."""
    with _job_lock:
        if token not in _jobs:
            build, recipe = _recipes[token]
            _jobs[token] = build(recipe)
        return _jobs[token]
