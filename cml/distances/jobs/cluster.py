"""The strips of a distance job on a Dask cluster: ``cml distances DATASET --matrix --scheduler tcp://host:port``."""
# This process alone writes and records strips: a worker that dies costs only those it had. Among captions, a processor
# of another kind may round another way, in the last bit of about one float32 in 10 million; all else is the same.

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cml import distances
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import FORMAT
from cml.distances.jobs.work import Arrays, MatrixWork, NeighborsWork, Strip, Work
from cml.distances.labels import Labels
from cml.errors import UserError, require_extra
from cml.processes.dask_client import Workers
from cml.registry import Choice

with require_extra("cluster", "A scheduler"):
    from distributed.diagnostics.plugin import WorkerPlugin


class Cluster(Workers):
    """The workers of a Dask scheduler, each with the labels and the label distance of one job."""

    def __init__(self, address: str, work: Work) -> None:
        self._name = f"cml-{uuid.uuid4().hex}"
        recipe = _recipe(work)
        super().__init__(address)
        try:
            self.client.register_plugin(_Carrier(self._name, recipe), name=self._name)
        except BaseException:
            self.client.close()
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self.client.unregister_worker_plugin(self._name)
        finally:
            super().__exit__(*error)

    def strips(
        self, strips: Sequence[Strip], store: Callable[[Strip, Arrays], object], done: Callable[[Strip], object]
    ) -> None:
        """Have all strips computed; each is stored by this thread as it comes, then ``done`` is told."""

        def named(number: int) -> str:
            return f"The strip of the rows {strips[number].start} to {strips[number].stop - 1}"

        for number, arrays in self.each([(_compute, self._name, one.start, one.stop) for one in strips], named):
            store(strips[number], arrays)
            done(strips[number])


class _Carrier(WorkerPlugin):  # type: ignore[misc]
    """Brings a job to every worker, to one that joins later too."""

    def __init__(self, token: str, recipe: Mapping[str, Any]) -> None:
        self.token, self.recipe = token, recipe

    def setup(self, worker: object) -> None:
        _recipes[self.token] = self.recipe

    def teardown(self, worker: object) -> None:
        _recipes.pop(self.token, None)
        _made.pop(self.token, None)


_recipes: dict[str, Mapping[str, Any]] = {}  # in a worker
_made: dict[str, Work] = {}
_making = threading.Lock()


def _recipe(work: Work) -> dict[str, Any]:
    """What a worker needs to make ``work``: texts, numbers and arrays."""
    name, given = work.distance.name, work.distance.settings()
    by_name = f"A label distance goes to a cluster by its name and settings, {Choice(name, given)}"
    try:
        again = distances.registry.get(name, **given)
    except UserError as error:
        raise UserError(f"{by_name}: {error}") from None
    if again.fingerprint() != work.distance.fingerprint():
        raise UserError(f"{by_name}, but they make another one.")
    return {
        "format": FORMAT,
        "kind": work.kind,
        "option": work.option[1],
        "name": name,
        "settings": given,
        "fingerprint": again.fingerprint(),
        "arrays": dict(work.labels.arrays),
    }


def _work(recipe: Mapping[str, Any]) -> Work:
    if recipe["format"] != FORMAT:
        raise UserError("A worker of the cluster has another version of cml; install the same everywhere.")
    try:
        distance = distances.registry.get(recipe["name"], **recipe["settings"])
    except UserError as error:
        raise UserError(f"A worker of the cluster cannot make the label distance: {error}") from None
    if distance.fingerprint() != recipe["fingerprint"]:
        raise UserError(
            f"A worker of the cluster makes another label distance of {recipe['name']!r} and the same settings: the "
            "files or the code that they name differ there."
        )
    kind = MatrixWork if recipe["kind"] == MatrixWork.kind else NeighborsWork
    return kind(distance, Labels(recipe["arrays"]), recipe["option"])


def _compute(token: str, start: int, stop: int) -> Arrays:
    """A strip of a job, in a worker."""
    with _making:
        if token not in _made:
            _made[token] = _work(_recipes[token])
        work = _made[token]
    with one_blas_thread():
        return dict(work.compute(Strip(start, stop)))
