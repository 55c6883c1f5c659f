"""Features by the workers of a Dask cluster: ``cml features ... --scheduler tcp://host:port``.

This process alone writes: a worker that dies costs only the chunks it had. A chunk is computed whole, with the batches
that it has on one machine. A CPU of another kind, or a GPU, may round another way.
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cml.array_types import Float32
from cml.errors import UserError
from cml.feature_store.manifest import digest_network, name_network
from cml.feature_store.networks import FeatureNetwork, build_network
from cml.feature_store.stored_items import StoredItems
from cml.processes.dask_client import JobWorkers, carried_job
from cml.processes.device import pick_device


class ClusterNetwork(JobWorkers):
    """Computes features on the workers of a Dask scheduler, each of which builds the network."""

    def __init__(self, address: str, network: FeatureNetwork, device: str) -> None:
        name = name_network(network.made_by)
        if network.recipe is None:
            raise UserError(f"A network goes to a cluster by its name, which {name}, a part of your own, has not.")
        digest = digest_network(network.made_by)
        super().__init__(address, _build, {"network": network.recipe, "name": name, "digest": digest, "device": device})

    def compute_chunks(
        self, items: StoredItems, chunks: Iterator[tuple[int, int]]
    ) -> Iterator[tuple[int, int, Float32]]:
        """Have the features of chunks computed, in memory that does not grow with their number."""
        listed = list(chunks)
        calls = ((_extract, self.token, *_take(items, first, last)) for first, last in listed)
        for (first, last), rows in zip(
            listed, self.each_in_order(calls, functools.partial(_name_chunk, listed)), strict=True
        ):
            yield first, last, rows


def _name_chunk(chunks: list[tuple[int, int]], number: int) -> str:
    first, last = chunks[number]
    return f"The chunk of the items {first} to {last - 1}"


def _take(items: StoredItems, first: int, last: int) -> tuple[Any, list[int]]:
    """Items for a worker, and the sizes of those that are files."""
    taken = items.take(first, last)
    files = isinstance(taken, list | tuple) and all(isinstance(item, Path) for item in taken)
    return taken, [path.stat().st_size if path.exists() else -1 for path in taken] if files else []


def _build(recipe: Mapping[str, Any]) -> FeatureNetwork:
    """Build the network in a worker."""
    try:
        network = build_network(recipe["network"], str(pick_device(recipe["device"])))
    except UserError as error:
        raise UserError(f"A worker of the cluster cannot make {recipe['name']}: {error}") from None
    if digest_network(network.made_by) != recipe["digest"]:
        raise UserError(
            f"A worker of the cluster has other weights or another version of {recipe['name']}: install the same "
            "packages and weights everywhere."
        )
    return network


def _extract(token: str, taken: Any, sizes: list[int]) -> Float32:  # noqa: ANN401 - what the network takes
    """Compute the features of a chunk, in a worker."""
    for path, size in zip(taken if sizes else (), sizes, strict=True):
        if size >= 0 and path.exists() and path.stat().st_size != size:
            raise UserError(f"The file {path} has another size on a worker of the cluster: give all the same images.")
    network: FeatureNetwork = carried_job(token)
    return network.extract(taken)
