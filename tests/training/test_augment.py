"""Augmentation by a function of the user's own: its draws repeat, its labels count, its faults are named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

import cml
import cml.cli
from cml import distances, losses, sampling
from cml.data.images import Images
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.items import LabelledItems
from cml.processes.ranks import Ranks
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig
from cml.training.training_targets import TrainingTargets

LEVELS = np.linspace(0, 255, 30)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
OPTIONS: dict[str, Any] = {
    "backbone": "small-cnn(norm=group)",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "steps": 4,
    "sampler": "random(batch_size=10)",
    "quiet": True,
}
CROP = v2.Compose([v2.RandomResizedCrop((16, 16), (0.5, 1)), v2.ColorJitter(0.3, 0.3)])


def darken(image: Tensor) -> Tensor:
    """Draws from all three generators."""
    factor = random.random() * np.random.random() * torch.rand(()).item()  # noqa: NPY002
    return (image * factor).to(torch.uint8)


def invert(image: Tensor, level: float) -> tuple[Tensor, float]:
    return (255 - image, 255 - level) if torch.rand(()) < 0.5 else (image, level)


def batches(augment: Callable[..., Any], ranks: Ranks | None = None, **options: Any) -> BatchSource:  # noqa: ANN401
    distance = distances.get("euclidean")
    labels = distance.encode(LEVELS.tolist())
    data = LabelledItems(Images(IMAGES, (16, 16)), labels, distance, labels, given_labels=LEVELS.tolist())
    sampler = sampling.get(OPTIONS["sampler"])
    state = sampler.sampler_state(TrainingTargets(distance, labels))
    config = TrainConfig(**{**{name: value for name, value in OPTIONS.items() if name != "quiet"}, **options})
    return BatchSource(data, sampler, state, config, ranks=ranks or Ranks(), augment=augment)


def fit(**options: Any) -> cml.Model:  # noqa: ANN401
    return cml.fit(IMAGES, LEVELS, **{**OPTIONS, **options})


def same(one: cml.Model, other: cml.Model) -> bool:
    both = zip(one.network.parameters(), other.network.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in both)


@pytest.mark.slow
@pytest.mark.parametrize("augment", [CROP, darken, invert])
def test_a_run_repeats_with_any_number_of_workers_and_another_seed_draws_others(augment: Callable[..., Any]) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    alone, helped = fit(augment=augment), fit(augment=augment, workers=2)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # noqa: NPY002
    assert same(alone, helped)
    assert not same(alone, fit())
    assert not same(alone, fit(augment=augment, seed=1))
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_each_use_of_an_item_is_drawn_anew() -> None:
    source = batches(darken, views=2)
    images, _, items = source[0]
    again, _, later = source[3]  # of the next epoch
    bright = [item for item in items[:10] if item > 15]
    seen = [tuple(images[items == item][:, 0, 0, 0].tolist()) for item in bright]
    assert all(one != other for one, other in seen)
    assert any(
        images[items == item].flatten().tolist() != again[later == item].flatten().tolist()
        for item in bright
        if item in later
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("augment", "options"),
    [(darken, {}), (invert, {"views": 2, "micro_batch": 7}), (darken, {"ema_decay": 0.9, "precision": "bfloat16"})],
)
def test_an_interrupted_run_resumes_bit_for_bit(
    augment: Callable[..., Any], options: dict[str, Any], tmp_path: Path
) -> None:
    def run(out: Path, stop: int = 0) -> cml.Model:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        watch = [cml.Callback(on_step=interrupt)]
        return fit(augment=augment, out=out, resume=True, checkpoint_every=2, callbacks=watch, **options)

    with pytest.raises(InterruptedError):
        run(tmp_path / "again", 3)
    assert same(run(tmp_path / "again"), run(tmp_path / "whole"))


def test_a_run_with_an_augmentation_resumes_with_the_same_one_alone(tmp_path: Path) -> None:
    fit(augment=darken, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"was started with augment=darken of your own, now it is none: .* in Python"):
        fit(out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("views", [1, 2])
def test_changed_labels_are_those_of_each_pair(views: int) -> None:
    source = batches(invert, views=views)
    images, block, items = source[0]
    levels = images[:, 0, 0, 0].double()  # of the augmented images, which show their labels
    assert any(abs(level - LEVELS[item]) > 1 for level, item in zip(levels.tolist(), items, strict=True))
    for row in range(10 * views):
        for column in range(10 * views):
            assert block[row, column].item() == pytest.approx(abs(levels[row] - levels[column]).item(), abs=2)


@pytest.mark.parametrize("augment", [darken, invert])
def test_processes_share_the_batch_of_one_process(augment: Callable[..., Any]) -> None:
    images, block, _ = batches(augment)[1]
    parts = [batches(augment, Ranks(rank, 3))[1] for rank in range(3)]
    assert torch.equal(torch.cat([part for part, _, _ in parts]), images)
    assert torch.equal(parts[0][1], block)  # whose turn it is
    assert all(part.shape == block.shape for _, part, _ in parts)


def test_vectors_tensors_and_items_are_augmented_too() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    seen: list[Any] = []

    def noise(row: Any) -> Any:  # noqa: ANN401
        seen.append(row)
        return torch.as_tensor(row) + 0.1 * torch.randn(6)

    options: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=10)", "workers": 0, "quiet": True}
    model = cml.fit(rows, LEVELS, augment=noise, views=2, **options)
    assert model.embed(rows).shape == (30, 128)
    assert {tuple(row.shape) for row in seen} == {(6,)}
    assert len(seen) == 3 * 20  # the first batch is made twice
    backbone = torch.nn.Linear(6, 4)
    cml.fit(rows[:, None], LEVELS, backbone=torch.nn.Flatten(), augment=lambda x: -x, input_kind="tensors", **options)
    seen.clear()
    cml.fit([*rows], LEVELS, backbone=backbone, augment=noise, collate=_stack, **options)
    assert {type(row) for row in seen} == {np.ndarray}


def _stack(rows: list[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(row) for row in rows])


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (lambda x: x[:, 1:], r"type that it gets, \(3, 16, 16\), uint8. Got \(3, 15, 16\), uint8 for item \d+"),
        (lambda x: x / 255, r"Got \(3, 16, 16\), float32 for item \d+ instead"),
        (lambda x: None, r"Got NoneType for item \d+ instead"),
        (lambda x, y: x, r"must return a pair of both. Got Tensor for item \d+ instead"),
        (lambda x, y: (x, "dark"), r"gives item \d+ a label that does not fit the label distance 'euclidean': it"),
        (lambda x, y, z: x, "Got one of 3 parameters instead"),
        (17, "'augment' must be a function of an item. Got int instead"),
    ],
)
def test_what_an_augmentation_must_not_do_is_named(augment: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=said) as caught:
        fit(augment=augment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_names_the_item_as_the_user_counts(workers: int) -> None:
    def fail(image: Tensor) -> Tensor:
        if image[0, 0, 0] == IMAGES[17, 0, 0, 0]:
            raise ValueError("too dark")
        return image

    groups = [29, *range(1, 30)]  # item 0 is held out with the last one, so that all others move
    for options in ({}, {"groups": groups, "evaluate_every": 4, "validation_fraction": 0.3}):
        with pytest.raises(UserError, match=r"^'augment' fails on item 17 \(ValueError: too dark\)\.$"):
            fit(augment=fail, workers=workers, **options)


def test_numbers_that_are_not_finite_are_named() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    with pytest.raises(UserError, match=r"'augment' makes numbers of item \d+ that are not finite"):
        cml.fit(rows, LEVELS, augment=lambda row: row / 0, sampler="random(batch_size=10)", steps=1, quiet=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"freeze_backbone": True}, "With 'freeze_backbone' every input is embedded once, unchanged"),
        ({"tune": True, "sampler": "random", "steps": 1000, "backbone": "small-cnn"}, "With 'tune' every input is"),
        ({"memory": 20, "augment": invert}, "A memory keeps the items of earlier batches, not the labels"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        fit(**{"augment": darken, "out": tmp_path / "run", "freeze_backbone": "tune" in options, **options})
    assert not (tmp_path / "run").exists() or not [*(tmp_path / "run").glob("*")]


def test_labels_are_changed_once_and_classes_never() -> None:
    with pytest.raises(UserError, match="Both 'augment' and flip=image change labels"):
        batches(invert, flip="image")
    source = batches(invert)
    source.target = losses.get("proxy-anchor").target
    with pytest.raises(UserError, match="takes the classes of the training items, but 'augment' changes labels"):
        source[0]


def test_a_costly_distance_is_not_replaced_by_its_matrix() -> None:
    def costly(one: float, other: float) -> float:
        return abs(one - other)

    fit(augment=invert, label_distance=costly, steps=60, image_size=(8, 8), sampler="random(batch_size=10)")


@pytest.mark.slow
def test_prepared_datasets_and_the_estimator_take_it(tmp_path: Path) -> None:
    assert cml.cli.main(["prepare", "people", "--out", str(tmp_path / "data"), "--count", "40", "--size", "16"]) == 0
    dataset = PreparedDataset.open(tmp_path / "data")
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"} | {"flip": "none"}
    plain, augmented = (
        cml.train("pose", dataset, tmp_path / name, augment=augment, quiet=True, **options).model
        for name, augment in (("plain", None), ("augmented", darken))
    )
    assert not same(plain, augmented)
    estimators = [
        cml.sklearn.CMLEmbedder(augment=augment, **{name: OPTIONS[name] for name in OPTIONS if name != "quiet"})
        for augment in (None, darken)
    ]
    one, other = (estimator.fit(IMAGES, LEVELS).transform(IMAGES) for estimator in estimators)
    assert (one != other).any()
    np.testing.assert_array_equal(other, fit(augment=darken).embed(IMAGES))
