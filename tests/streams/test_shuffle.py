"""The order of a stream's items and batches, against the same done slowly on lists."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from start_two import run_two

import cml
from cml import distances
from cml.data.input_form import AcceptedInputs, FieldNames
from cml.data.items import Tensors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.processes.ranks import Ranks
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler
from cml.streams.first_items import FirstItems
from cml.streams.item_reader import Item
from cml.streams.open_share import CHUNK
from cml.streams.share_reader import Arrivals, Part, ShareReader
from cml.streams.shuffle import shuffled_batches
from cml.streams.skipped_items import SkippedItems
from cml.training.config import TrainConfig
from cml.training.data_workers import shutdown_workers
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Place

Number = tuple[int, int]  # share and number of an item


def stream_of(sizes: list[int], buffer: int) -> cml.LabelledStream:
    """Shares of unequal size, whose items tell where they come from."""

    def read(share: int, shares: int) -> Iterator[Any]:
        assert shares == len(sizes)
        for number in range(sizes[share]):
            yield np.array([share, number, 1.0], np.float32), float(number)

    return cml.LabelledStream(read, buffer=buffer, shares=len(sizes))


def slow_order(sizes: list[int]) -> list[Number]:
    """A pass: sixteen items of each share by turns."""
    left = [[(share, number) for number in range(size)] for share, size in enumerate(sizes)]
    order: list[Number] = []
    while any(left):
        for share in left:
            order += share[:CHUNK]
            del share[:CHUNK]
    return order


def slow_batches(order: list[Number], size: int, buffer: int, seed: int, rank: int = 0) -> Iterator[list[Number]]:
    """Fill a buffer, draw a batch, fill it up."""
    for number in itertools.count():
        rng = np.random.default_rng((seed, number, rank))
        rest, held = list(order), []
        while True:
            while rest and len(held) < buffer:
                held.append(rest.pop(0))
            if len(held) < size:
                break
            drawn = [int(place) for place in rng.permutation(len(held))[:size]]
            yield [held[place] for place in drawn]
            for place in sorted(drawn, reverse=True):
                last = held.pop()
                if place < len(held):
                    held[place] = last


def open_first(stream: cml.LabelledStream, seed: int = 0) -> FirstItems:
    return FirstItems.read(stream, FieldNames(), AcceptedInputs(kind="vectors"), (8, 8), seed)


def arrivals_of(stream: cml.LabelledStream, workers: int, ranks: Ranks | None = None) -> Arrivals:
    ranks = Ranks() if ranks is None else ranks
    first, part = open_first(stream), Part(ranks.rank, ranks.size, stream.shares)
    reader = ShareReader(stream, first.reader, part, first.seed, first.chunks)
    return Arrivals(
        reader,
        workers=workers,
        timeout=60,
        first=first.take(part),
        first_share=first.next_share,
        ended=first.ended,
        skipped=SkippedItems(),
    )


def place(item: Item) -> Number:
    return int(item.value[0]), int(item.value[1])


def drawn_batches(stream: cml.LabelledStream, size: int, workers: int, count: int) -> list[list[Number]]:
    batches = shuffled_batches(
        arrivals_of(stream, workers),
        batch_size=size,
        buffer=stream.buffer,
        make_generator=lambda number: np.random.default_rng((0, number, 0)),
        refuse=lambda count: UserError(f"only {count}"),
    )
    return [[place(item) for item in batch] for batch in itertools.islice(batches, count)]


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 70), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) >= 10),
    buffer=st.integers(10, 120),
    size=st.integers(2, 10),
)
def test_batches_are_those_of_the_slow_oracle(sizes: list[int], buffer: int, size: int) -> None:
    found = drawn_batches(stream_of(sizes, buffer), size, 0, 40)
    assert found == list(itertools.islice(slow_batches(slow_order(sizes), size, buffer, 0), 40))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_order_does_not_depend_on_the_workers(workers: int) -> None:
    sizes = [40, 3, 65, 0, 33]
    with shutdown_workers():
        found = drawn_batches(stream_of(sizes, 30), 8, workers, 60)
    assert found == list(itertools.islice(slow_batches(slow_order(sizes), 8, 30, 0), 60))


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_processes_share_the_items_of_a_pass(processes: int) -> None:
    sizes = [40, 3, 65, 17]
    parts = []
    for rank in range(processes):
        arrivals = arrivals_of(stream_of(sizes, 30), 0, Ranks(rank, processes))
        passes = []
        for _ in range(3):
            passes.append([place(item) for item in arrivals.take(1000)])
            arrivals.begin_pass()
        assert passes[0] == passes[1] == passes[2]
        parts.append(passes[0])
    everything = sorted(itertools.chain.from_iterable(parts))
    assert everything == sorted(slow_order(sizes))


def test_every_item_of_a_pass_comes_once() -> None:
    batches = drawn_batches(stream_of([50, 46], 40), 8, 0, 24)
    assert sorted(itertools.chain.from_iterable(batches[:12])) == sorted(slow_order([50, 46]))
    assert sorted(itertools.chain.from_iterable(batches[12:])) == sorted(slow_order([50, 46]))
    assert batches[:12] != batches[12:]


def test_a_buffer_mixes_items_that_are_far_apart() -> None:
    batches = drawn_batches(stream_of([2000], 500), 50, 0, 30)
    spread = np.mean([np.ptp([number for _, number in batch]) for batch in batches])
    assert spread > 500


def test_random_numbers_of_the_source_do_not_depend_on_the_workers() -> None:
    def noisy(share: int, shares: int) -> Iterator[Any]:
        for _ in range(40):
            yield torch.tensor([random.random(), np.random.rand(), float(torch.rand(()))]), 0.0  # noqa: NPY002

    stream = cml.LabelledStream(noisy, buffer=20, shares=2)
    values = []
    for workers in (0, 2):
        with shutdown_workers():
            values.append(np.array([item.value for item in arrivals_of(stream, workers).take(80)]))
    assert np.array_equal(values[0], values[1])
    assert len(np.unique(values[0])) == values[0].size


class Replay(Sampler):
    """Batches that are given as numbers of items."""

    batches_given: list[list[int]]

    def batch(self, state: Any, *, seed: int, step: int, weights: Any = None) -> Batch:  # noqa: ANN401
        return Batch(np.array(self.batches_given[step]), self.batch_size)


class ReplayedDescent(GradientDescent):
    sampler = None  # type: ignore[assignment]


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh())


SIZES = [60, 45]
STEPS = 12
ORDER = slow_order(SIZES)
ROWS = np.array([[share, number / 10, np.sin(number)] for share, number in ORDER], np.float32)
OPTIONS: dict[str, Any] = {"steps": STEPS, "workers": 0, "sampler": "random(batch_size=10)", "dimension": 4}
OPTIONS["loss"] = "cosent"  # which has no constants


def read_share(share: int, shares: int) -> Iterator[Any]:
    for row, (of, number) in zip(ROWS, ORDER, strict=True):
        if of == share:
            yield row, float(number)


def fit_stream() -> cml.Model:
    stream = cml.LabelledStream(read_share, buffer=30, shares=2)
    return cml.fit(stream, backbone=network(), input_kind="tensors", quiet=True, device="cpu", **OPTIONS)


def replay(batches: list[list[Number]]) -> Any:  # noqa: ANN401
    """Embed the rows by a network that was trained on batches of items that are all there."""
    numbers = {place: item for item, place in enumerate(ORDER)}
    sampler = Replay(batch_size=10)
    object.__setattr__(sampler, "batches_given", [[numbers[place] for place in batch] for batch in batches])
    distance = distances.get("euclidean")
    items = LabelledItems(Tensors(ROWS), distance.encode([float(number) for _, number in ORDER]), distance)
    config = TrainConfig(**{**OPTIONS, "backbone": "custom", "weights": "none"}, learning_rate=0.003)
    learner = ReplayedDescent(config, backbone=network())
    object.__setattr__(learner, "sampler", sampler)
    return learner.learn(items, place=Place(quiet=True)).model.embed(ROWS)


def test_a_model_is_that_of_the_same_batches_drawn_from_all_items() -> None:
    batches = list(itertools.islice(slow_batches(ORDER, 10, 30, 0), STEPS))
    assert np.array_equal(fit_stream().embed(ROWS), replay(batches))


@pytest.mark.slow
def test_two_processes_train_on_batches_that_they_draw_together(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import os, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import numpy as np\nimport test_shuffle\n"
        "np.save(f\"rank{os.environ['RANK']}\", test_shuffle.fit_stream().embed(test_shuffle.ROWS))\n"
    )
    run_two(script)
    first, second = (np.load(tmp_path / f"rank{rank}.npy") for rank in (0, 1))
    assert np.array_equal(first, second)
    parts = [slow_batches([place for place in ORDER if place[0] == rank], 5, 15, 0, rank) for rank in (0, 1)]
    batches = [[*one, *other] for one, other in itertools.islice(zip(*parts, strict=True), STEPS)]
    assert np.allclose(first, replay(batches), atol=1e-5)
