"""A run leaves the process as it found it, and other threads do not change its bits."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cml
from cml.errors import UserError
from cml.processes.own_generator import draw_from
from cml.training.randomness import RunRandomness, may_draw, seeded_randomness

LEVELS = np.linspace(0, 255, 40)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "steps": 6,
    "sampler": "random(batch_size=10)",
    "quiet": True,
}
DROPPING = "mlp(widths=[16, 16], dropout=0.4)"


def fit_images(**options: Any) -> np.ndarray:  # noqa: ANN401
    return cml.fit(IMAGES, LEVELS, **{**TINY, **options}).embed(IMAGES)


def fit_rows(**options: Any) -> np.ndarray:  # noqa: ANN401
    words = {"backbone": DROPPING, "steps": 30, "sampler": "random(batch_size=10)", "quiet": True, **options}
    return cml.fit(ROWS, LEVELS, **words).embed(ROWS)


def process_state() -> dict[str, Any]:
    """What a run must leave as it was."""
    return {
        "torch": torch.get_rng_state().tolist(),
        "seed": torch.initial_seed(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002
        "random": random.getstate(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "directory": Path.cwd(),
        "precision": (torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.is_grad_enabled()),
    }


class Failing(cml.Callback):
    """Ends a run with an exception in its third step."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_step(self, state: Any, /) -> None:  # noqa: ANN401
        if state.step == 3:
            raise self.error


@pytest.mark.parametrize(("workers", "out"), [(0, False), (2, True)])
def test_the_process_is_as_before(workers: int, out: bool, tmp_path: Path) -> None:
    run = {"out": tmp_path / "run"} if out else {}
    fit_images(workers=0)  # what is imported once
    torch.manual_seed(7)
    before = process_state()
    fit_images(workers=workers, **run)
    assert process_state() == before
    fit_rows()
    assert process_state() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), ValueError("broken")], ids=["interrupt", "error"])
@pytest.mark.parametrize("backbone", [DROPPING, "none"])
def test_the_process_is_as_before_after_an_error(error: BaseException, backbone: str, tmp_path: Path) -> None:
    fit_rows(backbone=backbone)
    wrong = nn.Linear(2, 2)
    before = process_state()
    with pytest.raises(type(error)):
        fit_rows(backbone=backbone, callbacks=[Failing(error)], out=tmp_path / "run")
    assert process_state() == before
    with pytest.raises(UserError):
        fit_rows(loss="log-ration")
    with pytest.raises(UserError):
        cml.fit(IMAGES, LEVELS, **{**TINY, "backbone": wrong})
    assert process_state() == before


def test_random_splits_beside_runs_are_those_without() -> None:
    torch.manual_seed(5)
    alone = [torch.randperm(40).tolist() for _ in range(4)]
    torch.manual_seed(5)
    beside = []
    for _ in range(4):
        beside.append(torch.randperm(40).tolist())
        fit_images(steps=2)
        fit_rows(steps=2)
    assert beside == alone
    assert len({tuple(split) for split in alone}) == 4


@contextmanager
def drawing() -> Iterator[list[int]]:
    """A thread that draws random numbers of all kinds all the time."""
    drawn, stop = [0], threading.Event()

    def draw() -> None:
        while not stop.is_set():
            torch.rand(3)
            np.random.rand(3)  # noqa: NPY002
            random.random()
            drawn[0] += 1

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield drawn
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fit",
    [
        fit_images,
        lambda: fit_images(sampler="grouped(batch_size=10, groups=2)", brightness_jitter=0.1, flip="list"),
        lambda: fit_images(freeze_backbone=True),
        lambda: fit_rows(backbone="mlp(16, 16)"),
        lambda: fit_images(workers=2, worker_timeout=60),  # forks that inherit a lock would hang
    ],
    ids=["images", "augmented", "frozen", "rows", "workers"],
)
@pytest.mark.filterwarnings("ignore:Inputs are read in the training process")
def test_a_run_beside_a_thread_that_draws_is_bit_equal(fit: Callable[[], np.ndarray]) -> None:
    alone = fit()
    with drawing() as drawn:
        beside = fit()
    assert drawn[0] > 0
    assert np.array_equal(alone, beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fits",
    [
        (fit_images, lambda: fit_images(seed=1)),
        (lambda: fit_images(workers=2), lambda: fit_images(workers=1, seed=2)),
        (fit_rows, lambda: fit_rows(seed=1)),
        (lambda: fit_rows(micro_batch=4), lambda: fit_images(loss="rank-n-contrast")),
    ],
    ids=["images", "workers", "dropout", "micro-batches"],
)
def test_two_runs_in_two_threads_are_bit_equal(fits: tuple[Callable[[], np.ndarray], ...]) -> None:
    alone = [fit() for fit in fits]
    before = process_state()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda fit: fit(), fits))
    assert all(np.array_equal(a, b) for a, b in zip(alone, both, strict=True))
    assert process_state() == before


def test_workers_that_would_inherit_a_lock_are_not_started() -> None:
    with pytest.warns(UserWarning, match="another thread draws random numbers"), drawing():
        fit_images(workers=1)


def test_without_workers_that_start_the_run_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = fit_images()
    before = process_state()
    monkeypatch.setattr("cml.training.data_workers.START_LIMIT", 0.2)
    monkeypatch.setattr("cml.training.data_workers._begin_worker", lambda started, worker: time.sleep(600))
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)  # until one that goes on is ended
    with pytest.warns(UserWarning, match=r"the workers did not start within 0\.2 seconds"):
        found = fit_images(workers=1)
    assert np.array_equal(found, alone)
    assert process_state() == before
    assert not multiprocessing.active_children()
    assert gc.get_freeze_count() == 0


class Augmented(torch.utils.data.Dataset[Any]):
    """Rows with noise of each library."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, item: int) -> tuple[Any, float]:
        noise = float(torch.rand(())) + np.random.rand() + random.random()  # noqa: NPY002
        return ROWS[item] + np.float32(noise), float(LEVELS[item])


def test_augmentation_in_two_threads_is_bit_equal() -> None:
    def fit(seed: int) -> np.ndarray:
        module = nn.Sequential(nn.Flatten(), nn.Dropout(0.5))
        words = {"steps": 10, "sampler": "random(batch_size=10)", "workers": 0, "quiet": True, "seed": seed}
        return cml.fit(Augmented(), backbone=module, input_kind="tensors", **words).embed(ROWS)

    alone = [fit(0), fit(1)]
    before = process_state()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(fit, [0, 1]))
    assert all(np.array_equal(a, b) for a, b in zip(alone, both, strict=True))
    assert process_state() == before


def test_first_weights_are_those_of_the_global_generator_with_the_seed() -> None:
    def make() -> list[torch.Tensor]:
        modules = [nn.Conv2d(3, 4, 3), nn.GRU(3, 4), nn.Embedding(3, 4), nn.MultiheadAttention(8, 2)]
        square = nn.Linear(7, 7).weight.data
        for fill in ("orthogonal_", "xavier_normal_", "kaiming_normal_", "trunc_normal_"):
            modules.append(nn.ParameterList([getattr(nn.init, fill)(square.clone())]))  # type: ignore[arg-type]
        drawn = [
            torch.rand(2),
            torch.randn(2),
            torch.randperm(4),
            torch.normal(0.0, 1.0, (2,)),
            torch.rand_like(square),
        ]
        return [*(value for module in modules for value in module.state_dict().values()), *drawn]

    before = torch.get_rng_state()
    randomness = RunRandomness(11, torch.device("cpu"))
    with randomness.initializing():
        found = make()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(11)
    expected = make()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    rng = randomness.state_dict()["rng"]
    assert rng is not None
    assert torch.equal(rng, torch.get_rng_state())
    torch.set_rng_state(before)


def test_a_named_generator_and_other_threads_draw_as_ever() -> None:
    own, named = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    with draw_from(own), ThreadPoolExecutor(1) as pool:
        torch.manual_seed(3)
        found = pool.submit(torch.rand, 2).result()
        torch.rand(2, generator=named)
    assert torch.equal(own.get_state(), torch.Generator().manual_seed(1).get_state())
    assert torch.equal(found, torch.rand(2, generator=torch.Generator().manual_seed(3)))


def test_which_modules_may_draw() -> None:
    quiet = nn.Sequential(
        nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3), nn.LayerNorm(3)
    )
    assert not may_draw(quiet, cml.losses.get("log-ratio"), cml.losses.get("triplet"))
    for module in (
        nn.Dropout(),
        nn.GRU(2, 2),
        nn.MultiheadAttention(2, 1),
        nn.RReLU(),
        type("Own", (nn.Module,), {})(),
    ):
        assert may_draw(quiet, nn.Sequential(module))


def test_numbers_drawn_in_a_seeded_block_do_not_move_the_process() -> None:
    before = process_state()
    with seeded_randomness(1, 2):
        first = torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002
    with pytest.raises(TypeError), seeded_randomness(1, 2):
        torch.rand("three")  # type: ignore[call-overload]
    with seeded_randomness(1, 2):
        again = torch.rand(3), np.random.rand(), random.random()  # noqa: NPY002
    assert repr(first) == repr(again)
    assert process_state() == before


SCRIPT = """import multiprocessing
import numpy as np, cml

def go(workers):
    images = np.zeros((40, 16, 16, 3), np.uint8) + np.arange(40, dtype=np.uint8)[:, None, None, None]
    cml.fit(images, np.arange(40.0), backbone="small-cnn", weights="none", image_size=(16, 16), steps=2,
            sampler="random(batch_size=10)", workers=workers, quiet=True)
    print("trained")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "warned"),
    [
        ("multiprocessing.set_start_method('spawn')\ngo(1)\n", True),
        ("if __name__ == '__main__':\n    pass\nmultiprocessing.set_start_method('spawn', force=True)\ngo(1)\n", True),
        ("if __name__ == '__main__':\n    multiprocessing.set_start_method('spawn')\n    go(1)\n", False),
    ],
    ids=["no guard", "below the guard", "guarded"],
)
def test_a_script_without_a_guard_trains_without_workers(end: str, warned: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT + end)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    assert ("would run this script from its first line" in done.stderr) == warned, done.stderr
