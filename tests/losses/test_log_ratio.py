"""The log-ratio loss against enumerated triplets, its invariances and its edges."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_losses
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cml import losses, tasks
from cml.errors import UserError
from cml.losses.log_ratio import LogRatioLoss, Weights
from cml.losses.row_order import _ranks_by_sort, row_ranks

PUBLISHED: dict[str, Any] = {"label_exponent": 1.0, "floor_quantile": 0.0, "weights": "uniform", "normalize": False}
CANDIDATE: dict[str, Any] = {"weights": "rank", "normalize": True, "floor": 0.1, "label_exponent": 0.7}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"weights": "rank"},
    {"weights": "rank", "rank_offset": 0.5},
    CANDIDATE,
    {**CANDIDATE, "zero_factor": 1.0},
    {"published_offsets": True, "label_exponent": 1.5},
    {"published_offsets": True, "weights": "rank"},
]


def log_ratio_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    floor: float = 0.0,
    **chosen: Any,  # noqa: ANN401
) -> Tensor:
    """The loss as published but for what is chosen, with a given floor."""
    loss = LogRatioLoss(**{**PUBLISHED, **chosen})
    loss.floor = floor
    value: Tensor = loss(embeddings, label_distances if mask is None else label_distances.masked_fill(~mask, torch.inf))
    return value


def batch(
    anchors: int, items: int, dimensions: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Embeddings and symmetric label distances of random items."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(items, dimensions, generator=generator).to(dtype)
    values = torch.randn(items, 2, generator=generator).double()
    label_distances = (values[:anchors, None] - values).square().sum(dim=2).to(dtype)
    return embeddings.requires_grad_(), label_distances


def value_and_gradient(loss: Tensor, embeddings: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, embeddings)
    return loss.item(), gradient.double()


def relative(found: Tensor, true: Tensor) -> float:
    return float((found - true).norm() / true.norm())


@pytest.mark.parametrize("chosen", SETTINGS, ids=str)
@pytest.mark.parametrize(("dtype", "bar"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize(("anchors", "masked"), [(9, False), (6, True), (1, False)])
def test_equals_enumerated_triplets(
    anchors: int, masked: bool, dtype: torch.dtype, bar: float, chosen: dict[str, Any]
) -> None:
    embeddings, label_distances = batch(anchors, 9, dtype=dtype)
    mask = None
    if masked:
        mask = torch.rand(anchors, 9, generator=torch.Generator().manual_seed(1)) > 0.2
        label_distances[0, 4] = torch.inf
        label_distances[1, 5] = 0  # out without a floor, raised to a fraction of it with one, kept with offsets
        label_distances[2, 6] = label_distances[2, 7]  # a tie
    value, gradient = value_and_gradient(log_ratio_loss(embeddings, label_distances, mask=mask, **chosen), embeddings)
    exact = embeddings.detach().double().requires_grad_()
    true, true_gradient = value_and_gradient(
        slow_losses.log_ratio(exact, label_distances.double(), mask, **chosen), exact
    )
    assert value == pytest.approx(true, rel=bar)
    assert relative(gradient, true_gradient) < bar


def test_four_times_the_authors_loss_once_both_sides_are_squared() -> None:
    embeddings, _ = batch(1, 20, 128)
    generator = torch.Generator().manual_seed(3)
    label_distances = torch.rand(20, generator=generator, dtype=torch.float64) * 50 + 5  # pixels
    label_distances[0] = 0
    value, gradient = value_and_gradient(log_ratio_loss(embeddings, label_distances[None] ** 2), embeddings)
    theirs, their_gradient = value_and_gradient(slow_losses.authors_log_ratio(embeddings, label_distances), embeddings)
    assert value == pytest.approx(4 * theirs, rel=1e-6)
    assert relative(gradient, 4 * their_gradient) < 1e-6
    halved = log_ratio_loss(embeddings, label_distances[None] ** 2, label_exponent=0.5)
    assert halved.item() != pytest.approx(theirs, rel=0.01)  # squaring one side alone is another loss


@pytest.mark.parametrize("weights", ["uniform", "rank"])
@pytest.mark.parametrize("anchors", [800, 700])
def test_blocks_of_rows_change_nothing(anchors: int, weights: Weights) -> None:
    embeddings, label_distances = batch(anchors, 800)  # several blocks, the last one shorter
    value, gradient = value_and_gradient(log_ratio_loss(embeddings, label_distances, weights=weights), embeddings)
    squared = (embeddings[:anchors, None] - embeddings).square().sum(dim=2)
    own = torch.eye(anchors, 800, dtype=torch.bool)
    ranks = label_distances.masked_fill(own, torch.inf).argsort(dim=1).argsort(dim=1).double()
    w = (1 / (ranks + 5)) if weights == "rank" else torch.ones_like(squared)
    w = w.masked_fill(own, 0)
    w = w / w.sum(dim=1, keepdim=True)
    r = (squared + 1e-6).log() - label_distances.masked_fill(own, 1).log()
    variance = (w * (r - (w * r).sum(dim=1, keepdim=True)) ** 2).sum(dim=1) / (1 - (w**2).sum(dim=1))
    true, true_gradient = value_and_gradient(2 * variance.mean(), embeddings)
    assert value == pytest.approx(true, rel=1e-12)
    assert relative(gradient, true_gradient) < 1e-12


@given(
    seed=st.integers(0, 1000),
    scale=st.floats(0.1, 10),
    label_scale=st.floats(0.01, 100),
    weights=st.sampled_from(["uniform", "rank"]),
)
@settings(deadline=None, max_examples=25)
def test_blind_to_scale_rotation_and_shift(seed: int, scale: float, label_scale: float, weights: Weights) -> None:
    embeddings, label_distances = batch(5, 9, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    shift = torch.randn(4, generator=generator, dtype=torch.float64)
    moved = scale * embeddings @ rotation + shift
    value = log_ratio_loss(embeddings, label_distances, weights=weights, eps=1e-14)
    other = log_ratio_loss(moved, label_scale * label_distances, weights=weights, eps=1e-14)
    assert other.item() == pytest.approx(value.item(), rel=1e-7)


@given(seed=st.integers(0, 1000), power=st.floats(0.25, 4), scale=st.floats(0.01, 100))
@settings(deadline=None, max_examples=25)
def test_the_automatic_exponent_is_blind_to_powers_of_the_label_distance(seed: int, power: float, scale: float) -> None:
    embeddings, label_distances = batch(9, 9, seed=seed)
    sample = label_distances[~torch.eye(9, dtype=torch.bool)]

    def loss(change: Callable[[Tensor], Tensor]) -> float:
        module = LogRatioLoss(label_exponent="auto", floor_quantile=0, largest_exponent=1000)
        module.fit(change(sample))
        value: float = module(embeddings, change(label_distances)).item()
        return value

    assert loss(lambda d: scale * d**power) == pytest.approx(loss(lambda d: d), rel=1e-9)


@pytest.mark.parametrize("many", [False, True])  # which are too many to compute from their differences
def test_coincident_pairs_pull_nowhere_and_close_ones_the_right_way(many: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(40, 64, generator=generator)
    if many:
        embeddings[10:20] = embeddings[:10] + 1e-2 * torch.randn(10, 64, generator=generator)
    embeddings[20:30] = embeddings[:10]  # coincident
    embeddings[30:] = embeddings[10:20] + 1e-3 * torch.randn(10, 64, generator=generator)  # close
    embeddings = embeddings.requires_grad_()
    places = torch.rand(40, 3, generator=generator)
    label_distances = (torch.cdist(places, places) + 0.1).fill_diagonal_(0)
    _, gradient = value_and_gradient(log_ratio_loss(embeddings, label_distances), embeddings)
    exact = embeddings.detach().double().requires_grad_()
    squared = (exact[:, None] - exact).square().sum(dim=2)
    off = ~torch.eye(40, dtype=torch.bool)
    r = ((squared + 1e-6).log() - label_distances.double().log())[off].view(40, 39)
    _, true_gradient = value_and_gradient(2 * r.var(dim=1).mean(), exact)
    assert relative(gradient, true_gradient) < 1e-5


@pytest.mark.parametrize("chosen", [{"weights": "uniform"}, {"weights": "rank", "rank_offset": 0.7}], ids=str)
def test_anchors_with_one_item_do_not_count(chosen: dict[str, Any]) -> None:
    embeddings, label_distances = batch(40, 42)
    for anchor in range(1, 40):  # each of these can be compared with one item only
        label_distances[anchor] = torch.inf
        label_distances[anchor, 41] = 0.1 * anchor
    module = LogRatioLoss(label_exponent=1, floor_quantile=0, normalize=False, **chosen)
    value, gradient = value_and_gradient(module(embeddings, label_distances), embeddings)
    true, true_gradient = value_and_gradient(log_ratio_loss(embeddings, label_distances[:1], **chosen), embeddings)
    assert value == pytest.approx(true, rel=1e-12)
    assert relative(gradient, true_gradient) < 1e-12
    assert module.skipped_anchors == 39


def test_two_items_and_one_anchor_of_three() -> None:
    embeddings, label_distances = batch(1, 3)
    assert log_ratio_loss(embeddings, label_distances, weights="rank").item() == pytest.approx(
        slow_losses.log_ratio(embeddings, label_distances).item(), rel=1e-12
    )


def test_backward_scales_with_what_comes_from_above() -> None:
    embeddings, label_distances = batch(5, 5)
    _, once = value_and_gradient(log_ratio_loss(embeddings, label_distances), embeddings)
    _, thrice = value_and_gradient(3 * log_ratio_loss(embeddings, label_distances), embeddings)
    torch.testing.assert_close(thrice, 3 * once)


def test_embeddings_without_gradient() -> None:
    embeddings, label_distances = batch(5, 5)
    assert not log_ratio_loss(embeddings.detach(), label_distances).requires_grad


def test_not_a_number_is_not_hidden() -> None:
    embeddings, label_distances = batch(5, 5)
    broken = embeddings.detach().clone()
    broken[2, 1] = torch.nan
    assert log_ratio_loss(broken, label_distances).isnan()


@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, 1.5, 3.0, math.inf]), min_size=24, max_size=24),
    offset=st.floats(0.01, 20),
)
@settings(deadline=None, max_examples=50)
def test_rank_weights_both_ways_and_slowly(values: list[float], offset: float) -> None:
    distances = torch.tensor(values).view(3, 8)
    used = distances.isfinite() & (torch.arange(24).view(3, 8) % 5 > 0)
    ranks = row_ranks(distances, used)
    torch.testing.assert_close(ranks, row_ranks(distances.double(), used).float())
    by_sort = _ranks_by_sort(distances.abs().masked_fill(~used, torch.inf))
    torch.testing.assert_close(ranks, by_sort)
    weights = 1 / (ranks + offset)
    for row in range(3):
        items = used[row].nonzero().flatten().tolist()
        for item in range(8):
            slow = 1 / (slow_losses.rank(distances, row, item, items) + offset) if item in items else 0.0
            assert weights[row, item].item() == pytest.approx(slow, rel=1e-6)


def test_fit_finds_floor_and_exponent() -> None:
    sample = torch.tensor([0.0, 0.01, 0.1, 1.0, 10.0, torch.inf])
    loss = LogRatioLoss(label_exponent="auto", floor_quantile=0.5)
    assert loss.constants() == {}
    loss.fit(sample)
    floor = (0.1 + 1.0) / 2
    spread = np.log(np.array([floor / 2, floor, floor, 1.0, 10.0])).std()
    assert loss.constants() == pytest.approx({"label_exponent": 1 / spread, "floor": floor}, rel=1e-6)
    bounded = LogRatioLoss(floor_quantile=0.5, largest_exponent=0.5).fit(sample)
    assert bounded.constants() == pytest.approx({"label_exponent": 0.5, "floor": floor}, rel=1e-6)
    without = LogRatioLoss(label_exponent="auto", floor_quantile=0)
    without.fit(sample)
    spread = np.log(np.array([0.01, 0.1, 1.0, 10.0])).std()
    assert without.constants() == pytest.approx({"label_exponent": 1 / spread, "floor": 0}, rel=1e-6)
    embeddings, label_distances = batch(6, 6)
    value = log_ratio_loss(embeddings, label_distances, label_exponent=1 / spread, weights="rank", normalize=True)
    assert without(embeddings, label_distances).item() == pytest.approx(value.item(), rel=1e-6)


def test_what_was_fitted_survives_a_state_dict() -> None:
    fitted = LogRatioLoss()
    fitted.fit(torch.rand(100))
    file = io.BytesIO()
    torch.save(fitted.state_dict(), file)
    file.seek(0)
    loaded = LogRatioLoss().bfloat16()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.constants() == fitted.constants()
    unfitted = LogRatioLoss()
    unfitted.load_state_dict(LogRatioLoss().state_dict())
    assert unfitted.constants() == {}


@pytest.mark.parametrize(("chosen", "name"), [({}, "label_exponent"), ({"label_exponent": 1.0}, "floor")])
def test_unfitted_takes_its_constants_from_the_first_batch_and_says_so(chosen: dict[str, Any], name: str) -> None:
    embeddings, label_distances = batch(5, 5)
    loss, fitted = LogRatioLoss(**chosen), LogRatioLoss(**chosen)
    with pytest.warns(RuntimeWarning, match=f"LogRatioLoss was not fitted, so it took .*'{name}'.* call loss.fit"):
        value = loss(embeddings, label_distances)
    fitted.fit(label_distances[~torch.eye(5, dtype=torch.bool)])
    assert loss.constants() == fitted.constants()
    assert value.item() == fitted(embeddings, label_distances).item()


def test_the_papers_loss_needs_no_fit() -> None:
    embeddings, label_distances = batch(5, 5)
    paper = LogRatioLoss.paper()
    assert not paper.normalize
    published = log_ratio_loss(embeddings, label_distances, published_offsets=True)
    assert paper(embeddings, label_distances).item() == published.item()


@pytest.mark.parametrize("equal", [0, 1, 5, 18, 19])  # 19: all of them
def test_the_papers_loss_is_four_times_that_of_the_authors_code(equal: int) -> None:
    embeddings, _ = batch(1, 20, 128)
    generator = torch.Generator().manual_seed(3)
    label_distances = torch.rand(20, generator=generator, dtype=torch.float64) * 50 + 5  # pixels
    label_distances[: equal + 1] = 0  # of the anchor to itself, and to items with its label
    embeddings.data[6] = embeddings.data[0]  # coincident
    theirs, their_gradient = value_and_gradient(slow_losses.authors_log_ratio(embeddings, label_distances), embeddings)
    for exponent, distances in ((2.0, label_distances), (1.0, label_distances**2)):
        value, gradient = value_and_gradient(LogRatioLoss.paper(exponent)(embeddings, distances[None]), embeddings)
        assert value == pytest.approx(4 * theirs, rel=1e-12)
        assert relative(gradient, 4 * their_gradient) < 1e-11


def test_the_page_on_the_paper_writes_the_published_loss() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coming_from" / "paper.md").read_text("utf-8")
    written = [text for text in re.findall("`(.*?)`", page) if text.startswith("log-ratio(")]
    assert written
    assert {losses.get(text).extra_repr() for text in written} == {LogRatioLoss.paper().extra_repr()}


def test_classes_are_learned_with_equal_labels_nearer_than_others() -> None:
    labels = torch.arange(40) % 4
    label_distances = (labels[:, None] != labels).double()
    loss = LogRatioLoss().fit(label_distances[~torch.eye(40, dtype=torch.bool)])
    share = 9 / 39  # of pairs with one label
    spread = math.log(2) * math.sqrt(share * (1 - share))
    assert loss.constants() == pytest.approx({"label_exponent": min(4, 1 / spread), "floor": 1.0}, rel=1e-6)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(40, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([embeddings], 0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss(embeddings, label_distances).backward()
        optimizer.step()
    distances = torch.cdist(torch.nn.functional.normalize(embeddings), torch.nn.functional.normalize(embeddings))
    same = (label_distances == 0) & ~torch.eye(40, dtype=torch.bool)
    assert distances[same].max() < distances[label_distances > 0].min()


@pytest.mark.parametrize("task", ["pose", "value", "layout", "caption", "classes"])
def test_the_papers_loss_of_a_task_is_the_class_methods(task: str) -> None:
    for name, options in tasks.get(task).variants.items():
        if "the paper's" in name:
            written = losses.get(options["loss"])
            assert written.label_exponent == (2 if task in ("pose", "value") else 1)
            assert written.extra_repr() == LogRatioLoss.paper(written.label_exponent).extra_repr()


def test_by_name() -> None:
    loss = losses.get("log-ratio", weights="uniform", label_exponent=2, floor_quantile=0, normalize=False)
    embeddings, label_distances = batch(5, 5)
    assert loss(embeddings, label_distances).item() == pytest.approx(
        log_ratio_loss(embeddings, label_distances, label_exponent=2).item()
    )
    assert "label_exponent=2" in repr(loss)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"weights": "ranks"}, "'weights' must be uniform or rank. Got 'ranks'"),
        ({"rank_offset": 0}, "'rank_offset' must be a finite number at least 0.001. Got 0 "),
        ({"floor_quantile": 1.0}, "'floor_quantile' must be a finite number at least 0 and below 1. Got 1.0"),
        ({"floor_quantile": -0.1}, "'floor_quantile'"),
        ({"label_exponent": "automatic"}, "number above 0 or 'auto'. Got 'automatic'"),
        ({"label_exponent": 0}, "'label_exponent' must be a finite number above 0. Got 0"),
        ({"label_exponent": math.nan}, "Got nan"),
        ({"label_exponent": math.inf}, "Got inf"),
        ({"eps": 0}, "'eps' must be a finite number above 0"),
        ({"zero_factor": 0}, "'zero_factor' must be a finite number above 0"),
        ({"zero_factor": 1.5}, "'zero_factor' must be a number above 0 and at most 1. Got 1.5"),
        ({"largest_exponent": 0}, "'largest_exponent' must be a finite number above 0"),
        ({"published_offsets": "no"}, "'published_offsets' must be True or False. Got 'no'"),
        ({"published_offsets": True}, "take the place of a floor: set floor_quantile to 0. Got 0.02"),
        ({"eps": True}, "Got True"),
    ],
    ids=str,
)
def test_settings_out_of_range(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LogRatioLoss(**chosen)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (torch.zeros(5), "sample of zeros"),
        (torch.full((5,), torch.inf), "no finite one"),
        (torch.tensor([1.0, torch.nan]), "negative or NaN"),
        (torch.tensor([1.0, -1.0]), "negative or NaN"),
        (torch.ones(5), "are all equal"),
    ],
    ids=["zeros", "infinite", "NaN", "negative", "equal"],
)
def test_samples_that_cannot_be_fitted(sample: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        LogRatioLoss().fit(sample)
