"""Several views of an item in a batch, against a batch that is written down pair by pair; and the projector."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from first_gradients import assert_same_direction, first_gradients

import cml
from cml import distances, losses, sampling
from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.option_types import check_options
from cml.processes.ranks import Ranks
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig
from cml.training.projector import Projector
from cml.training.training_targets import TrainingTargets

LEVELS = np.linspace(0, 255, 30)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
CONFIG = TrainConfig(
    backbone="small-cnn(norm=group)",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    workers=0,
    steps=4,
    brightness_jitter=0.3,
    sampler="random(batch_size=10)",
    views=2,
)


def batches(sampler: str = CONFIG.sampler, loss: str = "", ranks: Ranks | None = None, **options: Any) -> BatchSource:  # noqa: ANN401
    distance = distances.get("euclidean")
    labels = distance.encode(LEVELS.tolist())
    data = LabelledItems(Images(IMAGES, (16, 16)), labels, distance, labels)
    made = sampling.get(sampler)
    state = made.sampler_state(TrainingTargets(distance, labels))
    config = replace(CONFIG, sampler=sampler, **options)
    target = {"target": losses.get(loss).target} if loss else {}
    return BatchSource(data, made, state, config, ranks=ranks or Ranks(), **target)


@pytest.mark.parametrize("sampler", [CONFIG.sampler, "dense(batch_size=10)", "grouped(batch_size=10, groups=2)"])
@pytest.mark.parametrize(("views", "memory"), [(2, 0), (3, 0), (2, 45)])
def test_label_distances_are_those_of_each_pair(sampler: str, views: int, memory: int) -> None:
    source = batches(sampler, views=views, memory=memory)
    for step in range(4):
        _, block, items = source[step]
        stored = source.memory_items(step)[0]
        plain = batches(sampler, views=1).sampler.batch(source.sampler_state, seed=0, step=step)
        assert sorted(items) == sorted(np.repeat(plain.items, views))
        anchors = views * plain.anchors
        assert sorted(items[:anchors]) == sorted(np.repeat(plain.items[: plain.anchors], views))
        assert block.shape == (anchors, len(items) + len(stored))
        for row, anchor in enumerate(items[:anchors]):
            for column, item in enumerate([*items, *stored]):
                is_seen_again = column >= len(items) and item == anchor
                wanted = np.inf if is_seen_again else abs(LEVELS[anchor] - LEVELS[item])
                assert block[row, column].item() == pytest.approx(wanted, rel=1e-5)


def test_views_of_one_image_differ_and_those_of_one_step_repeat() -> None:
    images, _, items = batches()[1]
    again, _, _ = batches()[1]
    assert images.shape == (20, 3, 16, 16)
    assert torch.equal(images, again)
    bright = items > 5  # black does not get brighter
    assert all((images[:10] != images[10:]).flatten(1).any(dim=1).numpy()[bright[:10]])


def test_mirrored_views_have_labels_of_their_own() -> None:
    source = batches(flip="image")
    _, block, _ = source[0]
    assert block.shape == (20, 20)
    assert block[0, 10] == 0


def test_processes_share_the_views_of_one_process() -> None:
    images, block, _ = batches()[2]
    parts = [batches(ranks=Ranks(rank, 3))[2] for rank in range(3)]
    assert torch.equal(torch.cat([part for part, _, _ in parts]), images)
    assert all(part.shape == block.shape for _, part, _ in parts)


def test_other_targets_repeat_too() -> None:
    source = batches(loss="regression")
    _, vectors, items = source[0]
    assert torch.equal(vectors[:, 0], torch.from_numpy(LEVELS[items]).float())


def test_the_gradient_in_parts_is_that_of_the_whole_batch() -> None:
    whole, parts = (
        first_gradients(partial(cml.fit, IMAGES, LEVELS, replace(CONFIG, micro_batch=size, projector=(16, 4))))
        for size in (None, 7)
    )
    assert_same_direction(parts, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory": 30},
        {"precision": "bfloat16"},
        {"ema_decay": 0.9, "evaluate_every": 2},
        {"views": 1, "freeze_backbone": True, "brightness_jitter": 0.0},
        {"workers": 1, "clip_gradient": 1.0},
    ],
    ids=str,
)
def test_a_run_with_views_and_a_projector_resumes_bit_for_bit(options: dict[str, Any], tmp_path: Path) -> None:
    config = replace(CONFIG, projector=(16, 4), checkpoint_every=2, **{"seed": 3, **options})

    def fit(out: Path, stop: int = 0) -> cml.Model:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        callbacks = [cml.Callback(on_step=interrupt)]
        return cml.fit(IMAGES, LEVELS, config, out=out, resume=True, quiet=True, callbacks=callbacks)

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", 3)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    assert all(
        torch.equal(one, other)
        for one, other in zip(resumed.network.parameters(), whole.network.parameters(), strict=True)
    )
    assert resumed.embed(IMAGES[:2]).shape == (2, 8)
    assert not any("projector" in name for name in resumed.network.state_dict())
    assert (cml.load(tmp_path / "again").embed(IMAGES[:2]) == resumed.embed(IMAGES[:2])).all()


def test_a_projector_learns_and_leaves_the_first_weights_as_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    options: dict[str, Any] = {"sampler": "random(batch_size=50)", "dimension": 4, "quiet": True}
    one, other = (
        cml.fit(rows, rows[:, 0], steps=1, learning_rate=1e-12, projector=widths, **options) for widths in ((), (8, 8))
    )
    torch.testing.assert_close(one.network.head.weight, other.network.head.weight)
    options |= {"learning_rate": 0.01, "loss": "rank-n-contrast", "projector": (32, 8)}
    model = cml.fit(rows, rows[:, 0], steps=200, **options)
    rho = model.evaluate(rows, rows[:, 0]).rows["embedding"]["spearman_rho"].mean
    assert rho > 0.7


def test_a_projector_is_as_the_loss_wants_it() -> None:
    embeddings = torch.randn(5, 6)
    unit = Projector(6, (7, 3), losses.get("log-ratio"))(embeddings)
    assert unit.shape == (5, 3)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(5))
    assert not Projector(6, (7, 1), losses.get("regression"))(embeddings).any()
    rows = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    options: dict[str, Any] = {"sampler": "random(batch_size=20)", "steps": 2, "quiet": True}
    model = cml.fit(rows, rows[:, 0], loss="regression", projector=(8, 1), **options)
    assert model.embed(rows).shape == (60, 128)  # only the projection has the dimension of the label
    with pytest.raises(
        UserError, match="'matryoshka' trains the first numbers of the embedding: leave out 'projector'"
    ):
        cml.fit(rows, rows[:, 0], loss="matryoshka(dimensions=(2,))", projector=(8,), **options)


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match="all views of it would be equal: leave out 'freeze_backbone' or views=2"):
        check_options(replace(CONFIG, freeze_backbone=True))
    with pytest.raises(UserError, match="All 2 views of an item would be equal: give augment="):
        cml.fit(IMAGES, LEVELS, replace(CONFIG, brightness_jitter=0.0), quiet=True)
    for options in ({"views": 2}, {"projector": (4,)}, {"epochs": 2}):
        with pytest.raises(UserError, match=f"leave out '{next(iter(options))}'"):
            cml.fit(IMAGES, LEVELS, freeze_backbone="views" not in options, tune=True, quiet=True, **options)


def test_dropout_makes_views_of_vectors() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5))
    config = replace(CONFIG, brightness_jitter=0.0)
    assert cml.fit(Vectors(rows), LEVELS, config, backbone=network, quiet=True).embed(rows).shape == (30, 8)
