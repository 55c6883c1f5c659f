"""What a checkpoint holds, part by part, on vectors: a run cut off and resumed is the uninterrupted one bit for bit.

The same with images, data workers, kills and several processes is slow: see the tests of each part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml

ROWS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
CLASSES = [f"{value:.0f}" for value in ROWS[:, 0]]
CASES: dict[str, dict[str, Any]] = {
    "weights and optimiser": {},
    "sgd with momentum": {"optimizer": "sgd"},
    "sgd without": {"optimizer": "sgd(momentum=0)"},
    "adam": {"optimizer": "adam(epsilon=0.01)"},
    "rmsprop": {"optimizer": "rmsprop(momentum=0.9, epsilon=0.1)"},
    "average": {"ema_decay": 0.5},
    "memory": {"memory": 25},
    "projector": {"projector": (8, 4)},
    "warm-up and schedule": {"warmup": 5, "schedule": "cosine"},
    "own scheduler": {"schedule": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)},
    "proxies": {"loss": "proxy-anchor", "label_distance": "classes", "labels": CLASSES},
    "random numbers": {"backbone": torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5))},
    "running statistics": {"backbone": torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8))},
    "validation": {"evaluate_every": 2, "validation_fraction": 0.25},
}


def fit(out: Path, stop: int = 0, **options: Any) -> cml.Model:  # noqa: ANN401
    def interrupt(state: Any) -> None:  # noqa: ANN401
        if state.step == stop:
            raise InterruptedError

    labels = options.pop("labels", ROWS[:, 0])
    if "backbone" in options:
        torch.manual_seed(0)
        for part in options["backbone"]:
            getattr(part, "reset_parameters", lambda: None)()
    options = {"sampler": "random(batch_size=10)", "dimension": 4, "steps": 6, "checkpoint_every": 2, **options}
    return cml.fit(
        ROWS, labels, out=out, resume=True, quiet=True, callbacks=[cml.Callback(on_step=interrupt)], **options
    )


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", 3, **CASES[case])
    resumed, whole = fit(tmp_path / "again", **CASES[case]), fit(tmp_path / "whole", **CASES[case])
    one, other = resumed.network.state_dict(), whole.network.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    records = [(tmp_path / name / "metrics.jsonl").read_text().count('"step"') for name in ("again", "whole")]
    assert records[0] == records[1]
