"""Learners: the options name one, and one of another package is chosen, run and resumed like those of cml."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import cml
from cml.data.vectors import Vectors
from cml.distances import as_label_distance
from cml.items import LabelledItems
from cml.items.labelled_items import DistanceDemand
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import NO_PLACE, Learned, Learner, Place, registry
from cml.training.parts import PARTS
from cml.training.training import Training

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
OPTIONS: dict[str, Any] = {"steps": 2, "dimension": 4, "sampler": "random(batch_size=20)", "quiet": True}


def make_items() -> LabelledItems:
    distance = as_label_distance("euclidean")
    return LabelledItems(Vectors(ROWS), distance.encode(ROWS[:, 0]), distance)


def test_a_learner_of_ones_own_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    @dataclass(frozen=True)
    class Shortened(Learner):
        """Takes one step, whatever the options say."""

        decides_model: ClassVar[bool] = True

        def check(self, items: LabelledItems, validation: LabelledItems | None = None) -> Self:
            calls.append(f"check {len(items)}")
            return self

        def demand(self) -> DistanceDemand | None:
            return None

        def learn(
            self, items: LabelledItems, validation: LabelledItems | None = None, place: Place = NO_PLACE
        ) -> Learned:
            calls.append("learn")
            return GradientDescent(replace(self.config, steps=1)).learn(items, validation, place)

    monkeypatch.setitem(registry._entries, "shortened", Shortened)
    monkeypatch.setattr(TrainConfig, "learner", property(lambda self: "shortened"))
    model = cml.fit(ROWS, ROWS[:, 0], **OPTIONS)
    assert calls == ["check 60", "learn"]
    assert model.history.steps.tolist() == [1]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"rates", "reports"}),
        ({"clip_gradient": 1.0, "ema_decay": 0.5}, {"rates", "clipping", "average", "reports"}),
        ({"memory": 9, "evaluate_every": 1}, {"rates", "memory", "reports", "validation"}),
    ],
)
def test_only_the_parts_that_are_switched_on_exist(
    options: dict[str, Any], names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[str] = []
    for part in PARTS:

        def note(self: Any, prepare: Any = part.prepare) -> None:  # noqa: ANN401 - a part
            prepared.append(self.name)
            prepare(self)

        monkeypatch.setattr(part, "prepare", note)
    cml.fit(ROWS, ROWS[:, 0], **OPTIONS, **options)
    assert prepared == [part.name for part in PARTS if part.name in names]


def test_a_part_acts_in_each_step_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.training import loop
    from cml.training.parts import Part, Update

    seen: list[str] = []

    class Noting(Part):
        """Notes what it is called for."""

        name = "noting"

        @classmethod
        def is_on(cls, training: Training) -> bool:
            return training.config.steps == 2

        def before(self, update: Update) -> None:
            seen.append(f"before {update.done}")

        def after(self, update: Update) -> None:
            seen.append(f"after {update.done} {update.embeddings.shape[0]}")

        def finish(self, done: int) -> None:
            seen.append(f"finish {done}")

    monkeypatch.setattr(loop, "PARTS", (*PARTS, Noting))
    config = TrainConfig(backbone="none", weights="none", steps=2, dimension=4, sampler="random(batch_size=20)")
    GradientDescent(config).learn(make_items(), place=Place(quiet=True))
    assert seen == ["before 1", "after 1 20", "before 2", "after 2 20", "finish 2"]
