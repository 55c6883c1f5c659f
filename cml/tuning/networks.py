"""Tuning with a budget: whole networks beside heads on frozen features, compared on the same held-out items."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.images import Images
from cml.items import LabelledItems
from cml.models import CUSTOM
from cml.sampling.sampler import suggest_batch_size
from cml.storage.json_file import read_json, write_json
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Learned, Place, StoppedRun
from cml.tuning.scores import TUNE_FITS, make_split_score, mean_score
from cml.tuning.splits import SPLITS, Split, SplitKind

STEPS, FEWEST_STEPS = 300, 30
_SCORES = "networks.json"  # in the folder of fits
_SIDE, _BATCH = 64, 60
_SMALL_RATES, _WHOLE_RATES = (1e-3, 3e-3), (1e-4, 1e-3)
_TIMED = 3  # steps
_LAST = 1.5  # times a fit: the network that is chosen is trained on all items


@dataclass(frozen=True)
class NetworkScores:
    """Whole networks that were tried."""

    scores: dict[str, list[Float64]]  # name to the scores of the held-out items of each split
    steps: dict[str, int]  # name to the number of steps
    left_out: tuple[str, ...]  # names of those for which the time was too short

    @property
    def best(self) -> str:
        """The name of the network with the best mean score."""
        return max(self.scores, key=lambda name: mean_score(self.scores[name]))


def network_candidates(config: TrainConfig, channels: int) -> dict[str, TrainConfig]:
    """List the whole networks that a tuning with a budget tries, the quickest first."""
    defaults: dict[str, Any] = {
        option.name: option.default for option in fields(TrainConfig) if option.name.startswith("tune")
    }
    common = replace(
        config, **defaults, freeze_backbone=False, features="", steps=STEPS, schedule="cosine", optimizer="adamw"
    )
    small = "small-cnn" if channels == 3 else f"small-cnn(channels={channels})"
    height, width = config.image_size
    side = min(_SIDE, height), min(_SIDE, width)
    candidates = {
        f"small-cnn from scratch, rate {rate:g}": replace(
            common, backbone=small, weights="none", image_size=side, learning_rate=rate
        )
        for rate in _SMALL_RATES
    }
    if config.backbone in (CUSTOM, small):
        return candidates
    return candidates | {
        f"{config.backbone} as a whole, rate {rate:g}": replace(common, learning_rate=rate) for rate in _WHOLE_RATES
    }


def score_networks(
    items: LabelledItems,  # N images
    splits: Sequence[Split],
    kind: SplitKind,
    candidates: dict[str, TrainConfig],
    *,
    deadline: float,  # when to stop, in seconds of ``time.monotonic``
    folder: Path | None = None,  # run folder that keeps the scores of finished networks; None keeps nothing
) -> NetworkScores:
    """Train whole networks on each split until the time is over."""
    path = None if folder is None else folder / TUNE_FITS / _SCORES
    kept = read_json(path, "the scores of networks") if path is not None and path.exists() else {}
    scores = {name: [np.array(split) for split in entry["scores"]] for name, entry in kept.items()}
    steps: dict[str, int] = {name: entry["steps"] for name, entry in kept.items()}
    left_out: list[str] = []
    split_scores = [
        make_split_score(held_out, items.labels, items.distance, kind, items.groups) for _, held_out in splits
    ]
    for number, (name, config) in enumerate(candidates.items()):
        if name in scores:
            continue
        if time.monotonic() >= deadline:
            left_out.append(name)
            continue
        images = at_size_of(config, items)
        waiting = (len(candidates) - number) * SPLITS + _LAST
        seconds = _time_step(images, config)
        count = min(STEPS, int((deadline - time.monotonic()) / waiting / seconds))
        if count < FEWEST_STEPS:
            left_out.append(name)
            continue
        item_scores = []  # split by split
        for (trained, _), score in zip(splits, split_scores, strict=True):
            model = fit_network(images.subset(trained), replace(config, steps=count), deadline=deadline).model
            if time.monotonic() >= deadline:
                break
            item_scores.append(score.score.score_items(model.embed(images.inputs.subset(score.items))))
        if len(item_scores) < len(splits):
            left_out.append(name)
            continue
        scores[name], steps[name] = item_scores, count
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            lists = {key: [split.tolist() for split in splits_of] for key, splits_of in scores.items()}
            write_json(path, {key: {"scores": lists[key], "steps": steps[key]} for key in scores})
    return NetworkScores(scores, steps, tuple(left_out))


def at_size_of(
    config: TrainConfig,
    items: LabelledItems,  # N images
) -> LabelledItems:
    """Take images at the size of a network, decoded once if they fit into memory, with their labels alone."""
    assert isinstance(items.inputs, Images)
    images = items.inputs.at(config.image_size, config.cache_bytes)
    images.load()
    return LabelledItems(images, items.labels, items.distance)


def fit_network(
    items: LabelledItems,
    config: TrainConfig,
    *,
    deadline: float = math.inf,  # the time of ``time.monotonic``, in seconds, after which no step begins
) -> Learned:
    """Train a network, at most until a deadline."""
    return _train_until(items, config, lambda: time.monotonic() >= deadline)


def _time_step(items: LabelledItems, config: TrainConfig) -> float:
    """The seconds of a step, after the first."""
    times: list[float] = []

    def is_enough() -> bool:
        times.append(time.monotonic())
        return len(times) > _TIMED

    _train_until(items, config, is_enough)
    return max(1e-6, (times[-1] - times[0]) / (len(times) - 1))


def _train_until(items: LabelledItems, config: TrainConfig, is_over: Callable[[], bool]) -> Learned:
    size = min(_BATCH, suggest_batch_size(len(items)))
    config = replace(config, sampler=f"random(batch_size={size})", crop=1.0, workers=0)
    try:
        place = Place(callbacks=[Callback(on_step=lambda state: is_over())], quiet=True)
        return GradientDescent(config).learn(items, place=place)
    except StoppedRun as stop:  # whose model is that of a candidate, not of the run
        raise KeyboardInterrupt(str(stop)) from None
