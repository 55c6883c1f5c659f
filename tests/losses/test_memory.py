"""The cross-batch memory: what it stores, what losses make of it, and runs with it."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_losses
import torch
from torch import Tensor

import cml
import cml.losses.cross_batch_memory
from cml import distances, losses, sampling
from cml.data.images import Images
from cml.errors import UserError
from cml.items import LabelledItems
from cml.losses.cross_batch_memory import CrossBatchMemory, mask_duplicates
from cml.losses.label_distance_loss import sample_label_distances
from cml.models.embedding import EmbeddingModel
from cml.option_types import check_options
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent, make_model_config
from cml.training.learner import Place
from cml.training.optimizer import learning_rate_factor, make_optimizer
from cml.training.training_targets import TrainingTargets

CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="random(batch_size=16)",
    steps=6,
    checkpoint_every=3,
    workers=0,
    memory=40,
)


def bars(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a bright bar, labelled with its place."""
    places = np.random.default_rng(0).uniform(2, 14, count)
    images = 255 * np.exp(-((np.arange(16)[None, :] - places[:, None]) ** 2) / 4)
    return np.tile(images[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8), places


def data_of_bars(*, twins: bool = False) -> LabelledItems:
    images, places = bars()
    distance = distances.get("euclidean")
    mirrored = distance.encode((16 - places).tolist()) if twins else None
    return LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance, mirrored)


def source(memory: int, flip: str = "none", sampler: str = "random(batch_size=16)") -> BatchSource:
    data, made = data_of_bars(twins=flip == "image"), sampling.registry.make(sampler)
    nearest = made.sampler_state(TrainingTargets(data.distance, data.labels))
    return BatchSource(data, made, nearest, replace(CONFIG, seed=3, flip=flip, memory=memory))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_stores_the_newest_first_up_to_its_size() -> None:
    memory = CrossBatchMemory(5)
    batches = [torch.arange(3) + 3 * step for step in range(3)]
    for items in batches:
        memory.store(items[:, None].float().requires_grad_(), items)
    assert memory.items.tolist() == [6, 7, 8, 3, 4]
    assert memory.embeddings.flatten().tolist() == [6, 7, 8, 3, 4]
    assert not memory.embeddings.requires_grad
    restored = CrossBatchMemory(5)
    restored.load_state_dict(memory.state_dict())
    restored.store(torch.ones(2, 1), torch.tensor([1, 2]))
    assert restored.items.tolist() == [1, 2, 6, 7, 8]
    assert memory.items.tolist() == [6, 7, 8, 3, 4]
    small = CrossBatchMemory(2)
    small.store(torch.ones(3, 1), batches[0])
    assert small.items.tolist() == [0, 1]


def test_of_size_0_gives_back_the_very_embeddings() -> None:
    memory = CrossBatchMemory(0)
    embeddings = torch.randn(3, 2)
    memory.store(embeddings, torch.arange(3))
    assert memory.augment(embeddings) is embeddings
    block = torch.rand(3, 3)
    assert torch.equal(mask_duplicates(block.clone(), torch.arange(3), memory.items), block)


CONTINUOUS = (
    "log-ratio dense-triplet rank-n-contrast rkd-distance relaxed-contrastive graded-contrastive soft-target "
    "kernel-supcon cosent"
)


@pytest.mark.parametrize("name", CONTINUOUS.split())
def test_every_continuous_loss_compares_anchors_with_stored_items(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(30, 1, generator=generator, dtype=torch.float64)
    memory = CrossBatchMemory(7)
    stored_items, items, anchors = torch.tensor([4, 20, 21, 22, 23, 24, 1]), torch.arange(6), 5
    memory.store(torch.randn(7, 3, generator=generator, dtype=torch.float64), stored_items)
    embeddings = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    columns = torch.cat([items, memory.items])
    block = mask_duplicates(torch.cdist(values[:anchors], values[columns]), items, memory.items)
    assert block.shape == (5, 13)
    assert block.isinf().nonzero().tolist() == [[1, 12], [4, 6]]  # items 1 and 4, seen before

    written = {
        "log-ratio": "log-ratio(label_exponent=1, floor_quantile=0, weights=uniform)",
        "relaxed-contrastive": "relaxed-contrastive(label_scale=1, sigma=1)",
        "graded-contrastive": "graded-contrastive(label_scale=1)",
        "soft-target": "soft-target(label_scale=1)",
        "kernel-supcon": "kernel-supcon(label_scale=1, bandwidth=1)",
    }
    plain: Callable[..., Tensor] = getattr(slow_losses, name.replace("-", "_"))
    options: dict[str, Any] = {"normalize": True} if name == "log-ratio" else {}
    true = plain(torch.cat([embeddings, memory.embeddings]), block, **options)
    found = losses.registry.make(written.get(name, name))(memory.augment(embeddings), block)
    assert found.item() == pytest.approx(true.item(), rel=1e-10)
    (gradient,), (true_gradient,) = (torch.autograd.grad(one, embeddings) for one in (found, true))
    torch.testing.assert_close(gradient, true_gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sampler", ["random(batch_size=16)", "grouped(batch_size=16, groups=3, drawn=2, pool=4)"])
def test_columns_of_a_step_are_the_items_of_the_steps_before(sampler: str) -> None:
    plain, remembering = source(0, sampler=sampler), source(40, sampler=sampler)
    places = torch.from_numpy(bars()[1]).float()[:, None]
    before: list[int] = []
    for step in range(5):
        inputs, block, _ = remembering[step]
        own_inputs, own_block, items = plain[step]
        assert torch.equal(inputs, own_inputs)
        assert torch.equal(block[:, :16], own_block)
        assert block.shape == (16, 16 + min(40, 16 * step))
        assert remembering.memory_items(step)[0].tolist() == before[:40]
        stored = torch.tensor(before[:40], dtype=torch.int64)
        expected = (places[torch.from_numpy(items)] - places[stored].T).abs()
        expected[torch.from_numpy(items)[:, None] == stored] = torch.inf
        torch.testing.assert_close(block[:, 16:], expected, rtol=1e-5, atol=1e-5)
        before = items.tolist() + before
    fresh = source(40, sampler=sampler)
    assert torch.equal(fresh[4][1], remembering[4][1])  # whatever was asked before
    assert len(remembering._plans) == 3  # and no more is kept than the memory reaches back


def test_dense_lists_have_one_anchor_and_its_stored_columns() -> None:
    inputs, block, _ = source(20, sampler="dense(batch_size=16, nearest=3)")[2]
    assert len(inputs) == 16
    assert block.shape == (1, 36)


def test_stored_items_keep_the_label_of_the_side_that_they_were_seen_from() -> None:
    remembering = source(16, flip="image")
    boxes, before = remembering[1][0], remembering[0][0]

    def centers(pictures: Tensor) -> np.ndarray:
        light = pictures[:, 0].double().sum(dim=1)
        return ((light * (torch.arange(16) + 0.5)).sum(dim=1) / light.sum(dim=1)).numpy()

    shown = np.abs(centers(boxes)[:, None] - centers(before)[None, :])
    block = remembering[1][1][:, 16:].numpy()
    assert not torch.equal(before, source(0)[0][0])  # some are mirrored
    compared = np.isfinite(block)
    assert np.abs(shown - block)[compared].max() < 1.5
    assert compared.mean() > 0.9


def by_hand(config: TrainConfig, memory_size: int) -> dict[str, Tensor]:
    """The run that ``train`` should make, in plain steps."""
    torch.manual_seed(config.seed)
    data, sampler = data_of_bars(), sampling.registry.make(config.sampler)
    loss = losses.registry.make(config.loss)
    model = EmbeddingModel(make_model_config(config, loss))
    loss.prepare(
        torch.from_numpy(sample_label_distances(data.distance, data.labels, config.seed)), dimension=config.dimension
    )
    optimizer = make_optimizer(model, loss, config)
    nearest = sampler.sampler_state(TrainingTargets(data.distance, data.labels))
    places = data.labels
    stored, stored_items = torch.empty(0, config.dimension), np.empty(0, np.int64)
    plain = BatchSource(data, sampler, nearest, replace(config, memory=0))
    model.train()
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * learning_rate_factor(config, step)
        items = plain[step][2]
        columns = np.concatenate([items, stored_items])
        block = torch.from_numpy(data.distance.pairwise(places[items], places[columns]))
        block[:, len(items) :][torch.from_numpy(items[:, None] == stored_items)] = torch.inf
        embeddings = model(plain[step][0])
        everything = torch.cat([embeddings, stored]) if len(stored) else embeddings
        optimizer.zero_grad()
        loss(everything, block).backward()
        optimizer.step()
        stored = torch.cat([embeddings.detach(), stored])[:memory_size]
        stored_items = columns[:memory_size]
    return model.state_dict()


@pytest.mark.parametrize("memory", [0, 40])
def test_a_run_is_bit_for_bit_the_one_made_by_hand(memory: int) -> None:
    config = replace(CONFIG, memory=memory)
    trained = GradientDescent(config).learn(data_of_bars(), place=Place(quiet=True)).model.state_dict()
    assert same(trained, by_hand(config, memory))


def test_memory_changes_the_run_and_workers_do_not() -> None:
    images, places = bars()
    alone = cml.fit(images, places, CONFIG, quiet=True).network.state_dict()
    helped = cml.fit(images, places, replace(CONFIG, workers=2), quiet=True).network.state_dict()
    without = cml.fit(images, places, replace(CONFIG, memory=0), quiet=True).network.state_dict()
    assert same(alone, helped)
    assert not same(alone, without)


@pytest.mark.filterwarnings("ignore:The network has batch normalisation")
@pytest.mark.parametrize("micro_batch", [None, 5])
def test_resumed_is_bit_for_bit_the_uninterrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, micro_batch: int | None
) -> None:
    images, places = bars()
    config = replace(CONFIG, micro_batch=micro_batch)
    whole = cml.fit(images, places, config, quiet=True).network.state_dict()

    def stop(first: int, pairs: object) -> None:
        if first >= 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cml.training.metrics_log._check_finite", stop)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(images, places, config, out=tmp_path / "run", quiet=True)
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.pt", weights_only=True)
    assert state["step"] == 3
    assert state["parts"]["memory"]["embeddings"].shape == (40, 8)
    assert state["parts"]["memory"]["items"].tolist() == source_of(config).memory_items(3)[0].tolist()
    resumed = cml.fit(images, places, config, out=tmp_path / "run", resume=True, quiet=True).network.state_dict()
    assert same(whole, resumed)


def source_of(config: TrainConfig) -> BatchSource:
    data, sampler = data_of_bars(), sampling.registry.make(config.sampler)
    nearest = sampler.sampler_state(TrainingTargets(data.distance, data.labels))
    return BatchSource(data, sampler, nearest, config)


def test_what_cannot_be_is_named() -> None:
    images, places = bars()
    with pytest.raises(UserError, match=r"'memory' must be 0 or more. Got -1"):
        check_options(replace(CONFIG, memory=-1))
    with pytest.raises(UserError, match="the loss takes vectors: set memory to 0"):
        cml.fit(images, places, replace(CONFIG, loss="regression", dimension=1), quiet=True)
    for size in (-1, 1.5, True):
        with pytest.raises(UserError, match="'size' of a memory"):
            CrossBatchMemory(size)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"one item number per embedding. Got shapes \(2,\) and \(3, 1\)"):
        CrossBatchMemory(5).store(torch.ones(3, 1), torch.arange(2))
    larger = CrossBatchMemory(5)
    larger.store(torch.ones(4, 1), torch.arange(4))
    with pytest.raises(UserError, match="size 3 cannot take the 4 embeddings"):
        CrossBatchMemory(3).load_state_dict(larger.state_dict())


def test_examples() -> None:
    failed, tried = doctest.testmod(cml.losses.cross_batch_memory)
    assert tried > 0
    assert failed == 0
