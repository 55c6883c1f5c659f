"""Strips of a distance job on a Dask cluster: ``cml distances DATASET --matrix --scheduler tcp://host:port``.

This process alone writes and records strips: a worker that dies costs only those it had. Among captions, a CPU of
another kind may round another way, in the last bit of about one float32 in 10 million; all else is the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cml import distances
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import REVISION
from cml.distances.jobs.work import Arrays, MatrixWork, NeighborsWork, PairsWork, Strip, Work
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.processes.dask_client import JobWorkers, carried_job
from cml.registry import Choice


class DaskExecutor(JobWorkers):
    """Computes the strips of a job on the workers of a Dask scheduler, each with the labels and the label distance.

    ``count``: workers at the start.

    ``threads``: threads of all workers.
    """

    def __init__(self, address: str, work: Work) -> None:  # address: address of the scheduler, ``tcp://host:port``
        super().__init__(address, _build_work, _recipe(work))

    @property
    def description(self) -> str:
        """What computes, as in "4 workers", for the forecast."""
        return f"{self.count} workers"

    def compute_strips(
        self, strips: Sequence[Strip], store: Callable[[Strip, Arrays], object], on_done: Callable[[Strip], object]
    ) -> None:
        """Have strips computed by the workers, in any order."""

        def describe(number: int) -> str:
            return f"The strip of the rows {strips[number].start} to {strips[number].stop - 1}"

        for number, arrays in self.each(
            [(_compute, self.token, strip.start, strip.stop) for strip in strips], describe
        ):
            store(strips[number], arrays)
            on_done(strips[number])


def _recipe(work: Work) -> dict[str, Any]:
    """Collect what a worker needs to build ``work``: texts, numbers and arrays."""
    name, settings = work.distance.name, work.distance.settings()
    by_name = f"A label distance goes to a cluster by its name and settings, {Choice(name, settings)}"
    try:
        again = distances.registry.get(name, **settings)
    except UserError as error:
        raise UserError(f"{by_name}: {error}") from None
    if again.fingerprint() != work.distance.fingerprint():
        raise UserError(f"{by_name}, but they make another one.")
    return {
        "revision": REVISION,
        "kind": work.kind,
        "option": getattr(work, dataclasses.fields(work)[-1].name),
        "name": name,
        "settings": settings,
        "fingerprint": again.fingerprint(),
        "arrays": dict(work.labels.arrays),
    }


def _build_work(recipe: Mapping[str, Any]) -> Work:
    """Build the work in a worker."""
    if recipe["revision"] != REVISION:
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
    kinds: dict[str, type[MatrixWork | NeighborsWork | PairsWork]] = {
        kind.kind: kind for kind in (MatrixWork, NeighborsWork, PairsWork)
    }
    return kinds[recipe["kind"]](distance, Labels(recipe["arrays"]), recipe["option"])


def _compute(token: str, start: int, stop: int) -> Arrays:
    """Compute a strip of a job, in a worker."""
    work = carried_job(token)
    with one_blas_thread():
        return dict(work.compute(Strip(start, stop)))
