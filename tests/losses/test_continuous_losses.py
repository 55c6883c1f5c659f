"""The peers of the log-ratio loss against plain loops, their invariances and their edges."""

from __future__ import annotations

import doctest
import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import slow_losses
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_scenarios import VARIANTS, findings, written
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import cml
from cml import losses
from cml.errors import UserError
from cml.losses import rank_n_contrast
from cml.losses.cosent import cosent_loss
from cml.losses.graded_contrastive import graded_contrastive_loss
from cml.losses.h_ap import h_ap_loss
from cml.losses.kernel_supcon import kernel_supcon_loss
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.lambda_ndcg import lambda_ndcg_loss
from cml.losses.rank_n_contrast import rank_n_contrast_loss
from cml.losses.regression import Penalty, RegressionLoss, regression_loss
from cml.losses.relaxed_contrastive import relaxed_contrastive_loss
from cml.losses.rkd_distance import rkd_distance_loss
from cml.losses.row_mean import RowMean
from cml.losses.row_order import ascending_rows, tie_runs
from cml.losses.soft_target import soft_target_loss
from cml.registry import Choice
from cml.training.config import TrainConfig

# what has no default, for it depends on the unit of the label distance; and w as the oracle has it
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "rank-n-contrast": rank_n_contrast_loss,
    "rkd-distance": rkd_distance_loss,
    "relaxed-contrastive": partial(relaxed_contrastive_loss, label_scale=1.0, sigma=1.0),
    "graded-contrastive": partial(graded_contrastive_loss, label_scale=1.0),
    "soft-target": partial(soft_target_loss, label_temperature=0.1),
    "kernel-supcon": partial(kernel_supcon_loss, bandwidth=1.0),
    "cosent": cosent_loss,
    "h-ap": h_ap_loss,
    "lambda-ndcg": lambda_ndcg_loss,
}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("rank-n-contrast", {}),
    ("rank-n-contrast", {"temperature": 0.1, "normalize": True}),
    ("rkd-distance", {}),
    ("rkd-distance", {"normalize": True}),
    ("relaxed-contrastive", {}),
    ("relaxed-contrastive", {"label_scale": 2.0, "sigma": 0.5, "delta": 1.5, "normalize": True}),
    ("graded-contrastive", {}),
    ("graded-contrastive", {"label_scale": 5.0, "margin": 3.0, "normalize": False}),
    ("soft-target", {"label_temperature": 1.0}),
    ("soft-target", {"label_temperature": 2.0, "temperature": 3.0, "normalize": False}),
    ("kernel-supcon", {}),
    ("kernel-supcon", {"bandwidth": 3.0, "temperature": 1.0}),
    ("cosent", {}),
    ("cosent", {"scale": 20.0}),
    ("h-ap", {"neighbors": 3}),
    ("h-ap", {"temperature": 0.7, "neighbors": 100, "normalize": False}),
    ("lambda-ndcg", {"neighbors": 3}),
    ("lambda-ndcg", {"temperature": 0.7, "neighbors": 100, "normalize": False}),
]
TYPES = [(torch.float32, 2e-6), (torch.float64, 1e-11)]
names = pytest.mark.parametrize("name", FUNCTIONS)
variants = pytest.mark.parametrize(("name", "chosen"), SETTINGS, ids=str)


def slow(name: str) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(slow_losses, name.replace("-", "_"))
    return found


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


@variants
@pytest.mark.parametrize(("dtype", "bar"), TYPES)
@pytest.mark.parametrize(("anchors", "masked"), [(9, False), (6, True), (1, False)])
def test_equals_plain_loops(
    name: str, chosen: dict[str, Any], anchors: int, masked: bool, dtype: torch.dtype, bar: float
) -> None:
    embeddings, label_distances = batch(anchors, 9, dtype=dtype)
    mask = None
    if masked:
        mask = torch.rand(anchors, 9, generator=torch.Generator().manual_seed(1)) > 0.2
        label_distances[0, 4] = torch.inf
        label_distances[1] = label_distances[1].round()  # ties
        label_distances[2] = 1  # nothing but ties
        label_distances[3, 6:] = 0
        mask[4] = torch.arange(9) == 5  # one item alone
        mask[5] = False
    value, gradient = value_and_gradient(FUNCTIONS[name](embeddings, label_distances, mask=mask, **chosen), embeddings)
    exact = embeddings.detach().double().requires_grad_()
    true, true_gradient = value_and_gradient(slow(name)(exact, label_distances.double(), mask, **chosen), exact)
    assert value == pytest.approx(true, rel=bar)
    assert relative(gradient, true_gradient) < bar


@variants
def test_gradcheck(name: str, chosen: dict[str, Any]) -> None:
    embeddings, label_distances = batch(4, 7)
    mask = torch.rand(4, 7, generator=torch.Generator().manual_seed(1)) > 0.2
    assert torch.autograd.gradcheck(lambda f: FUNCTIONS[name](f, label_distances, mask=mask, **chosen), (embeddings,))


@names
@pytest.mark.parametrize("share", [1, 7 / 8])
def test_float32_keeps_its_digits_over_several_blocks_of_rows(name: str, share: float) -> None:
    embeddings, label_distances = batch(int(share * 800), 800, 64)
    value, gradient = value_and_gradient(FUNCTIONS[name](embeddings, label_distances), embeddings)
    rough = embeddings.detach().float().requires_grad_()
    found, found_gradient = value_and_gradient(FUNCTIONS[name](rough, label_distances.float()), rough)
    assert found == pytest.approx(value, rel=1e-5)
    # of two items within rounding of each other, either may come first in a ranking
    assert relative(found_gradient, gradient) < (1e-3 if name in ("h-ap", "lambda-ndcg") else 1e-5)


@pytest.mark.parametrize("name", ["log-ratio(label_exponent=1)", "dense-triplet", "binary-triplet"])
def test_blocks_of_rows_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.losses import log_ratio, ordered_hinge, row_blocks

    embeddings, label_distances = batch(30, 40)
    label_distances = label_distances.round()
    loss = losses.get(name)
    loss.prepare(label_distances[label_distances > 0], dimension=4)
    whole = value_and_gradient(loss(embeddings, label_distances), embeddings)

    def few(*given: Any, normalize: bool, block_bytes: int | None = None) -> RowMean:  # noqa: ANN401
        return row_blocks.mean_over_rows(*given, normalize=normalize, block_bytes=7 * 40 * 8)

    for module in (log_ratio, ordered_hinge):
        monkeypatch.setattr(module, "mean_over_rows", few)
    parts = value_and_gradient(loss(embeddings, label_distances), embeddings)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    assert relative(parts[1], whole[1]) < 1e-12


@given(name=st.sampled_from(sorted(FUNCTIONS)), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_blind_to_the_order_of_the_other_items(name: str, seed: int) -> None:
    embeddings, label_distances = batch(3, 10, seed=seed)
    label_distances = (label_distances * 2).round()  # ties
    order = torch.cat([torch.arange(3), 3 + torch.randperm(7, generator=torch.Generator().manual_seed(seed))])
    value = FUNCTIONS[name](embeddings, label_distances)
    other = FUNCTIONS[name](embeddings[order], label_distances[:, order])
    assert other.item() == pytest.approx(value.item(), rel=1e-12)


@given(name=st.sampled_from(sorted(FUNCTIONS)), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=50)
def test_blind_to_the_order_of_all_items(name: str, seed: int) -> None:
    embeddings, label_distances = batch(8, 8, seed=seed)
    label_distances = (label_distances * 2).round()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    value = FUNCTIONS[name](embeddings, label_distances)
    other = FUNCTIONS[name](embeddings[order], label_distances[order][:, order])
    assert other.item() == pytest.approx(value.item(), rel=1e-12)


@given(
    name=st.sampled_from(["rank-n-contrast", "cosent"]),
    seed=st.integers(0, 1000),
    power=st.floats(0.3, 3),
    scale=st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=50)
def test_rank_losses_are_blind_to_increasing_functions_of_the_label_distance(
    name: str, seed: int, power: float, scale: float
) -> None:
    embeddings, label_distances = batch(5, 9, seed=seed)
    label_distances = (label_distances * 2).round()
    value = FUNCTIONS[name](embeddings, label_distances)
    levels, place = label_distances.unique(return_inverse=True)  # equal ones stay equal to the last digit
    other = FUNCTIONS[name](embeddings, (scale * levels**power)[place])
    assert other.item() == value.item()


@given(name=st.sampled_from(sorted(FUNCTIONS)), seed=st.integers(0, 1000), scale=st.floats(0.1, 10))
@settings(deadline=None, max_examples=50)
def test_blind_to_rotation_and_where_they_say_so_to_shift_and_scale(name: str, seed: int, scale: float) -> None:
    embeddings, label_distances = batch(5, 9, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    moved = embeddings @ torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    cosine = name in {"kernel-supcon", "cosent"}
    if not cosine:
        moved = moved + torch.randn(4, generator=generator, dtype=torch.float64)
    if cosine or name in {"rkd-distance", "relaxed-contrastive"}:
        moved = scale * moved
    plain = {} if cosine else {"normalize": False}
    value = FUNCTIONS[name](embeddings, label_distances, **plain)
    assert FUNCTIONS[name](moved, label_distances, **plain).item() == pytest.approx(value.item(), rel=1e-8)


@given(
    name=st.sampled_from(["rkd-distance", "relaxed-contrastive", "graded-contrastive", "soft-target", "kernel-supcon"]),
    seed=st.integers(0, 1000),
    scale=st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=50)
def test_the_automatic_scale_is_blind_to_the_unit_of_the_label_distance(name: str, seed: int, scale: float) -> None:
    embeddings, label_distances = batch(9, 9, seed=seed)
    sample = label_distances[~torch.eye(9, dtype=torch.bool)]

    def loss(factor: float) -> float:
        module = losses.get(name)
        module.fit(factor * sample)
        value: float = module(embeddings, factor * label_distances).item()
        return value

    assert loss(scale) == pytest.approx(loss(1.0), rel=1e-9)


def test_the_module_is_the_function_with_the_fitted_scale() -> None:
    embeddings, label_distances = batch(5, 9)
    expected = {
        "relaxed-contrastive": relaxed_contrastive_loss(embeddings, label_distances, label_scale=3.0, sigma=0.5),
        "graded-contrastive": graded_contrastive_loss(embeddings, label_distances, label_scale=3.0),
        "soft-target": soft_target_loss(embeddings, label_distances, label_temperature=0.3),
        "kernel-supcon": kernel_supcon_loss(embeddings, label_distances, bandwidth=1.5),
    }
    for name, value in expected.items():
        module = losses.get(name)
        assert isinstance(module, ScaledLabelLoss)
        with pytest.warns(RuntimeWarning, match=r"was not fitted, so it took 'label_scale' from"):
            losses.get(name)(embeddings, label_distances)
        module.fit(torch.tensor([0.0, 0.0, 0.0, 1.0, 3.0, 50.0, torch.inf]))  # median of the positive ones: 3
        assert module.constants() == {"label_scale": 3.0}
        assert module(embeddings, label_distances).item() == pytest.approx(value.item(), rel=1e-12)
        given = losses.get(name, label_scale=3.0)
        given.fit(torch.zeros(3))  # nothing to find
        assert given(embeddings, label_distances).item() == pytest.approx(value.item(), rel=1e-12)
        restored = losses.get(name)
        restored.load_state_dict(module.state_dict())
        assert restored(embeddings, label_distances).item() == value.item()
        with pytest.raises(UserError, match="needs label distances above 0"):
            losses.get(name).fit(torch.zeros(3))
    for name in ("rank-n-contrast", "rkd-distance", "cosent"):
        assert losses.get(name)(embeddings, label_distances).item() == FUNCTIONS[name](embeddings, label_distances)


@names
def test_an_infinite_label_distance_is_as_if_the_item_were_not_there(name: str) -> None:
    embeddings, label_distances = batch(2, 9)
    without = [0, 1, 2, 3, 5, 6, 7, 8]
    label_distances[:, 4] = torch.inf
    value = FUNCTIONS[name](embeddings, label_distances)
    other = FUNCTIONS[name](embeddings[without], label_distances[:, without])
    assert other.item() == pytest.approx(value.item(), rel=1e-12)


@names
def test_the_anchors_own_column_is_left_out(name: str) -> None:
    embeddings, label_distances = batch(5, 9)
    value, gradient = value_and_gradient(FUNCTIONS[name](embeddings, label_distances), embeddings)
    label_distances[range(5), range(5)] = torch.tensor([7, 0.1, torch.inf, torch.nan, 3], dtype=torch.float64)
    other, other_gradient = value_and_gradient(FUNCTIONS[name](embeddings, label_distances), embeddings)
    assert other == value
    assert torch.equal(gradient, other_gradient)


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_coincident_embeddings_and_zero_label_distances_stay_finite(name: str, dtype: torch.dtype) -> None:
    embeddings, label_distances = batch(8, 8, dtype=torch.float32)
    for same in (embeddings[:1].repeat(8, 1), torch.cat([embeddings[:6], embeddings[:2]]), torch.zeros(8, 4)):
        given_ = same.detach().to(dtype).requires_grad_()
        loss = FUNCTIONS[name](given_, label_distances.masked_fill(label_distances < 1, 0))
        value, gradient = value_and_gradient(loss, given_)
        assert math.isfinite(value)
        assert gradient.isfinite().all()


@names
def test_nothing_to_learn_is_counted_and_warned_of_and_has_no_gradient(name: str) -> None:
    embeddings, label_distances = batch(3, 5)
    module = losses.get(name)
    module.fit(label_distances[label_distances > 0])
    blocks = [torch.full((3, 5), torch.inf, dtype=torch.float64)]
    if name == "cosent":
        blocks.append(torch.ones(3, 5, dtype=torch.float64))  # all pairs tied
    if name == "rkd-distance":
        blocks.append(torch.zeros(3, 5, dtype=torch.float64))  # no unit
    if name not in {"graded-contrastive", "cosent", "rkd-distance"}:  # one item alone
        blocks.append(torch.full((3, 5), torch.inf, dtype=torch.float64))
        blocks[-1][:, 4] = 1
    for number, block in enumerate(blocks, 1):
        with pytest.warns(RuntimeWarning, match="No anchor of the batch has"):
            loss = module(embeddings, block)
        value, gradient = value_and_gradient(loss, embeddings)
        assert value == 0
        assert torch.equal(gradient, torch.zeros_like(embeddings))
        assert module.skipped_anchors == 3 * number
    label_distances[1] = torch.inf
    module(embeddings, label_distances)
    assert module.skipped_anchors == 3 * len(blocks) + 1


class Largest(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that torch makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple[Any, ...] = (), kwargs: object = None
    ) -> object:
        assert kwargs is None or isinstance(kwargs, dict)
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, list | tuple) else [made]:
            if isinstance(one, Tensor):
                self.elements = max(self.elements, one.numel())
        return made


@names
def test_no_tensor_is_larger_than_anchors_times_items(name: str) -> None:
    embeddings, label_distances = batch(40, 50)
    with Largest() as largest:
        FUNCTIONS[name](embeddings, label_distances).backward()
    assert 0 < largest.elements <= 40 * 50


def assert_equals_the_plain_formula(name: str, embeddings: Tensor, label_distances: Tensor, **chosen: Any) -> None:  # noqa: ANN401
    """The plain formula, which torch follows under torch.func, is compared with plain loops above."""
    value, gradient = value_and_gradient(FUNCTIONS[name](embeddings, label_distances, **chosen), embeddings)
    plain = torch.func.grad_and_value(lambda f: FUNCTIONS[name](f, label_distances, **chosen))
    true_gradient, true = plain(embeddings.detach())
    assert value == pytest.approx(true.item(), rel=1e-9)
    assert float((gradient - true_gradient).norm()) < 1e-9 * max(1.0, float(true_gradient.norm()))


@pytest.mark.filterwarnings("ignore:Some anchors:RuntimeWarning")
@pytest.mark.parametrize("name", ["h-ap", "lambda-ndcg"])
@pytest.mark.parametrize("temperature", [0.003, 0.1, 3.0, 100.0])  # range of scores over it: 2e4 to 0.5
@pytest.mark.parametrize("labels", ["continuous", "ties", "classes"])
@pytest.mark.parametrize("points", ["continuous", "coincident"])
def test_compiled_rows_of_many_items(name: str, temperature: float, labels: str, points: str) -> None:
    _, label_distances = batch(3, 70)
    # of whole numbers with the mean 0, so that equal scores are equal in every order of summation
    spread = 4 if points == "coincident" else 1 << 20
    whole = torch.randint(-spread, spread, (35, 2), generator=torch.Generator().manual_seed(3)).double()
    embeddings = (torch.cat([whole, -whole]) * (4 / spread)).requires_grad_()
    if labels != "continuous":
        label_distances = label_distances.round() if labels == "ties" else (label_distances > 2).double()
    label_distances[0, 40:50] = torch.inf
    assert_equals_the_plain_formula(name, embeddings, label_distances, temperature=temperature, normalize=False)


@pytest.mark.parametrize("temperature", [0.003, 0.1])  # H-AP by pairs, and by nodes
@pytest.mark.parametrize("name", ["h-ap", "lambda-ndcg"])
def test_compiled_rows_of_a_thousand_items(name: str, temperature: float) -> None:
    embeddings, label_distances = batch(2, 1000, 64)
    assert_equals_the_plain_formula(name, embeddings, label_distances, temperature=temperature)


@names
def test_computed_in_float32_under_autocast(name: str) -> None:
    embeddings, label_distances = batch(8, 8, dtype=torch.float32)
    plain = FUNCTIONS[name](embeddings, label_distances)
    with torch.autocast("cpu", torch.bfloat16):
        under = FUNCTIONS[name](embeddings, label_distances)
        coarse = FUNCTIONS[name](embeddings.bfloat16(), label_distances)
    assert under.item() == plain.item()
    assert under.dtype == coarse.dtype == torch.float32
    assert coarse.item() == pytest.approx(FUNCTIONS[name](embeddings.bfloat16().float(), label_distances).item())


@names
def test_bad_arguments_are_named(name: str) -> None:
    embeddings, label_distances = batch(3, 5)
    function, module = FUNCTIONS[name], losses.get(name)
    module.fit(torch.ones(3))
    for bad, message in (
        ((embeddings, label_distances[:, :4]), "one column per embedding, 5. Got 4"),
        ((embeddings[:3], label_distances.T), "1 <= A <= B"),
        ((embeddings, label_distances.bool()), "'label_distances' must be a floating-point"),
        ((embeddings[0], label_distances), "'embeddings' must be a floating-point"),
    ):
        for one in (function, module):
            with pytest.raises(UserError, match=message):
                one(*bad)
    with pytest.raises(UserError, match=r"'mask' must be a bool tensor \(A, B\)"):
        function(embeddings, label_distances, mask=label_distances)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rank-n-contrast(temperature=0)", "'temperature' must be a finite number above 0. Got 0"),
        ("relaxed-contrastive(sigma=0)", "'sigma'"),
        ("relaxed-contrastive(delta=-1)", "'delta'"),
        ("graded-contrastive(reach=0)", "'reach'"),
        ("graded-contrastive(margin=-1)", "'margin'"),
        ("graded-contrastive(label_scale=0)", "'label_scale' must be a finite number above 0"),
        ("soft-target(label_temperature=0)", "'label_temperature'"),
        ("soft-target(temperature=nan)", "'temperature'"),
        ("soft-target(label_scale=median)", "'label_scale' must be a number above 0 or 'auto'. Got 'median'"),
        ("kernel-supcon(bandwidth=0)", "'bandwidth'"),
        ("cosent(scale=300)", "'scale' must be a finite number above 0 and below 300"),
        ("regression(penalty=cubic)", "'penalty' must be one of squared, absolute, huber. Got 'cubic'"),
        ("rkd-distance(temperature=1)", "has no setting 'temperature'"),
    ],
)
def test_settings_out_of_range_are_named(written: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        losses.registry.make(written)


@names
def test_what_the_lists_and_the_trainer_ask_of_a_loss(name: str) -> None:
    module = losses.get(name)
    assert isinstance(module, LabelDistanceLoss)
    assert module.labels == "label distances"
    assert module.info.cost.startswith("O(A B")
    assert all("\n" not in text and text for text in (module.info.source, module.info.when))
    assert module.normalize == (name not in {"rank-n-contrast", "rkd-distance", "relaxed-contrastive"})
    again = losses.registry.make(f"{name}({module.extra_repr()})")
    assert again.extra_repr() == module.extra_repr()


def test_rank_n_contrast_whose_scores_lie_too_far_apart_for_powers() -> None:
    embeddings, label_distances = batch(6, 9)
    label_distances[:, 5:8] = 1  # ties
    with torch.no_grad():
        embeddings *= 2000
    value, gradient = value_and_gradient(rank_n_contrast_loss(embeddings, label_distances), embeddings)
    true, true_gradient = value_and_gradient(slow_losses.rank_n_contrast(embeddings, label_distances), embeddings)
    assert value == pytest.approx(true, rel=1e-12)
    assert relative(gradient, true_gradient) < 1e-10


def test_both_ways_to_sum_rank_n_contrast_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, label_distances = batch(6, 9)
    label_distances = label_distances.round()
    value, gradient = value_and_gradient(rank_n_contrast_loss(embeddings, label_distances), embeddings)
    monkeypatch.setattr(rank_n_contrast, "_WIDE", -1.0)
    other, other_gradient = value_and_gradient(rank_n_contrast_loss(embeddings, label_distances), embeddings)
    assert other == pytest.approx(value, rel=1e-12)
    assert relative(other_gradient, gradient) < 1e-10


def test_relations_between_the_losses() -> None:
    embeddings, label_distances = batch(5, 9)
    # the kernel's exponent as a label distance, and a temperature of cosines twice as one of squared distances
    soft = soft_target_loss(embeddings, label_distances**2, label_temperature=2 * 1.5**2, temperature=0.4)
    assert soft.item() == pytest.approx(
        kernel_supcon_loss(embeddings, label_distances, bandwidth=1.5, temperature=0.2).item(), rel=1e-12
    )
    # one item near, all others far: InfoNCE
    one_positive = torch.full((1, 9), 1e6, dtype=torch.float64)
    one_positive[0, 3] = 0
    f = torch.nn.functional.normalize(embeddings)
    logits = (f[0] @ f[1:].T) / 0.1
    info_nce = torch.nn.functional.cross_entropy(logits[None], torch.tensor([2]))
    assert kernel_supcon_loss(embeddings, one_positive, bandwidth=1.0).item() == pytest.approx(
        info_nce.item(), rel=1e-12
    )
    # label distances proportional to embedding distances are what RKD asks for
    proportional = 7 * torch.cdist(embeddings.detach(), embeddings.detach())
    assert rkd_distance_loss(embeddings, proportional).item() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("penalty", ["squared", "absolute", "huber"])
def test_regression_equals_plain_loops(penalty: Penalty) -> None:
    generator = torch.Generator().manual_seed(0)
    predictions = torch.randn(6, 3, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    value, gradient = value_and_gradient(regression_loss(predictions, targets, penalty=penalty), predictions)
    true, true_gradient = value_and_gradient(slow_losses.regression(predictions, targets, penalty), predictions)
    assert value == pytest.approx(true, rel=1e-12)
    assert relative(gradient, true_gradient) < 1e-12
    assert torch.autograd.gradcheck(lambda f: regression_loss(f, targets, penalty=penalty), (predictions,))
    with torch.autocast("cpu", torch.bfloat16):
        assert regression_loss(predictions.float(), targets.float(), penalty=penalty).dtype == torch.float32


def test_regression_ranks_in_standardised_units_as_in_true_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([100.0, -3.0]) + torch.tensor([20.0, 1.0]) * torch.randn(50, 2, generator=generator)
    module = RegressionLoss()
    with pytest.raises(UserError, match="call prepare"):
        module(labels, labels)
    module.prepare(labels, dimension=2, names=(), generator=generator)
    exact = (labels - labels.mean(dim=0)) / labels.var(dim=0, correction=0).mean().sqrt()
    assert module(exact, labels).item() == pytest.approx(0, abs=1e-10)
    assert module(torch.zeros(50, 2), labels).item() == pytest.approx(1, rel=1e-5)
    torch.testing.assert_close(module.predict(exact), labels)
    torch.testing.assert_close(torch.pdist(exact) * module.scale, torch.pdist(labels))
    restored = RegressionLoss()
    restored.prepare(torch.randn(4, 2), dimension=2, names=(), generator=generator)
    restored.load_state_dict(module.state_dict())
    assert restored(exact, labels + 1).item() == module(exact, labels + 1).item()
    assert module.labels == "vectors"


def test_regression_trains_and_embeds_labels() -> None:
    places = np.random.default_rng(0).uniform(2, 14, 120)  # of a bright bar
    light = 255 * np.exp(-((np.arange(16)[None, :] - places[:, None]) ** 2) / 4)
    images = np.tile(light[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8)
    config = TrainConfig(
        backbone="small-cnn",
        weights="none",
        image_size=(16, 16),
        sampler="random(batch_size=16)",
        loss="regression",
        dimension=1,
        steps=60,
        learning_rate=3e-3,
        workers=0,
    )
    model = cml.fit(images[:80], places[:80], config, quiet=True)
    found = np.corrcoef(model.embed(images[80:])[:, 0], places[80:])[0, 1]
    assert found > 0.8
    head = cml.fit(images[:80], places[:80], replace(config, freeze_backbone=True), quiet=True)
    found = np.corrcoef(head.embed(images[80:])[:, 0], places[80:])[0, 1]
    assert found > 0.8  # random starting weights, as large as they are for one dimension, would drown what is learnt
    with pytest.raises(UserError, match=r"set dimension=1\. Got dimension=8"):
        cml.fit(images, places, replace(config, dimension=8), quiet=True)


def test_regression_refuses_what_does_not_fit() -> None:
    labels = torch.randn(5, 3)
    generator = torch.Generator()
    with pytest.raises(UserError, match=r"set dimension=3. Got dimension=128"):
        RegressionLoss().prepare(labels, dimension=128, names=(), generator=generator)
    with pytest.raises(UserError, match="labels that differ"):
        RegressionLoss().prepare(torch.ones(5, 3), dimension=3, names=(), generator=generator)
    module = RegressionLoss()
    module.prepare(labels, dimension=3, names=(), generator=generator)
    with pytest.raises(UserError, match=r"must both be \(B, V\). Got \(5, 3\) and \(5, 5\)"):
        module(labels, torch.rand(5, 5))
    with pytest.raises(UserError, match="must be floating-point tensors"):
        regression_loss(labels, torch.ones(5, 3, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sorted_rows_and_their_ties(dtype: torch.dtype) -> None:
    values = torch.tensor([[3.0, 1.0, -0.0, 1.0, torch.inf], [0.0, 0.0, 0.0, 2.0, 2.0]], dtype=dtype)
    ascending, columns = ascending_rows(values)
    assert torch.equal(ascending, values.sort(dim=1).values)
    assert torch.equal(values.gather(1, columns), ascending)
    runs = tie_runs(ascending)
    assert runs is not None
    assert runs[0].tolist() == [[0, 1, 1, 3, 4], [0, 0, 0, 3, 3]]
    assert runs[1].tolist() == [[0, 2, 2, 3, 4], [2, 2, 2, 4, 4]]
    assert tie_runs(torch.tensor([[0.0, 1.0, torch.inf, torch.inf]])) is None


@pytest.mark.parametrize("module", [name.replace("-", "_") for name in [*FUNCTIONS, "regression"]])
def test_examples(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"cml.losses.{module}"))
    assert tried > 0
    assert failed == 0


OVER_DISTANCES = [name for name in losses.names() if losses.registry.entry(name).labels == "label distances"]  # type: ignore[attr-defined]
NEEDED = {"binary": {"loss": "contrastive", "k": 2}, "binary-triplet": {"k": 2}}


@pytest.mark.parametrize("name", OVER_DISTANCES)
@pytest.mark.parametrize(("value", "written"), [(math.nan, "nan"), (-0.5, "-0.5"), (-math.inf, "-inf")])
def test_label_distance_that_is_nan_or_negative_is_one_error_that_says_where(
    name: str, value: float, written: str
) -> None:
    loss = losses.get(name, **NEEDED.get(name, {}))
    embeddings, label_distances = batch(5, 6)
    upper = torch.triu_indices(5, 6, 1)
    loss.fit(label_distances[upper[0], upper[1]])
    assert loss(embeddings, label_distances).isfinite()
    label_distances[3, 1] = value
    with pytest.raises(UserError, match=f"at least 0, .* Got {written} between items 3 and 1 of the batch \\(1 such"):
        loss(embeddings, label_distances)


def test_label_distances_that_are_left_out_may_hold_anything() -> None:
    embeddings, label_distances = batch(5, 6)
    mask = torch.ones(5, 6, dtype=torch.bool)
    mask[2, 4] = False
    expected = rkd_distance_loss(embeddings, label_distances, mask=mask)
    label_distances[2, 4] = math.nan
    label_distances.diagonal().fill_(-1)
    assert rkd_distance_loss(embeddings, label_distances, mask=mask) == expected


@pytest.mark.parametrize(("name", "bar"), [(VARIANTS[0], 1e-6), ("log-ratio", 1e-5), ("rkd-distance", 1e-5)])
def test_float32_keeps_its_digits_in_tight_clusters(name: str, bar: float) -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(16, 128, generator=generator))
    around = torch.randn(256, 128, generator=generator) / 128**0.5
    points = centres[torch.arange(256) % 16] + 0.01 * around
    label_distances = torch.rand(256, 256, generator=generator) + 0.1
    loss = losses.get(name).fit(label_distances.flatten())
    rough, exact = points.clone().requires_grad_(), points.double().requires_grad_()
    _, gradient = value_and_gradient(loss(rough, label_distances), rough)
    _, true_gradient = value_and_gradient(loss(exact, label_distances), exact)
    assert relative(gradient, true_gradient) < bar


def test_every_loss_on_scenarios_that_break_numerics() -> None:
    count, bad = findings(written(), sizes=(2, 8), every=17)
    assert count > 150
    assert bad == []


@pytest.mark.parametrize("name", [*FUNCTIONS, "log-ratio", "dense-triplet", "binary-triplet"])
@pytest.mark.parametrize("scale", [1e18, 1e-20])
def test_embeddings_whose_squares_do_not_fit_are_right_or_named(name: str, scale: float) -> None:
    embeddings, label_distances = batch(8, 8, dtype=torch.float32)
    loss = losses.get(name).fit(label_distances[label_distances > 0])
    usual = loss(embeddings, label_distances).item()
    extreme = (embeddings.detach() * scale).requires_grad_()
    if loss.normalize:
        assert loss(extreme, label_distances).item() == pytest.approx(usual, rel=1e-5)
    else:
        with pytest.raises(UserError, match=r"largest number of the embeddings must be in .*the network has (di|coll)"):
            loss(extreme, label_distances)


@pytest.mark.parametrize("name", [*FUNCTIONS, "log-ratio", "dense-triplet", "binary-triplet(k=1)"])
def test_the_diagonal_may_hold_anything(name: str) -> None:
    embeddings, label_distances = batch(6, 6)
    loss = losses.get(name).fit(label_distances[label_distances > 0])
    usual = value_and_gradient(loss(embeddings, label_distances), embeddings)
    for anything in (torch.nan, -1.0, torch.inf):
        odd = label_distances.masked_fill(torch.eye(6, dtype=torch.bool), anything)
        value, gradient = value_and_gradient(loss(embeddings, odd), embeddings)
        assert value == usual[0]
        assert torch.equal(gradient, usual[1])


def test_an_item_far_from_all_others_has_the_nearest_for_its_positive() -> None:
    embeddings, label_distances = batch(5, 5, dtype=torch.float32)
    label_distances[0, 1:] = torch.tensor([3e30, 1e30, 2e30, 3e38])
    for name in ("kernel-supcon(label_scale=0.001)", "soft-target(label_scale=0.001)"):
        cosines = (
            torch.nn.functional.normalize(embeddings.detach())[0] @ torch.nn.functional.normalize(embeddings.detach()).T
        )
        expected = -(cosines[1:] / 0.1).log_softmax(0)[1]
        assert losses.get(name)(embeddings, label_distances[:1]).item() == pytest.approx(expected.item(), rel=1e-4)


def test_rank_n_contrast_says_where_embeddings_lie_too_far_apart() -> None:
    embeddings, label_distances = batch(6, 6)
    with pytest.raises(UserError, match="must lie less than 1e"):
        rank_n_contrast_loss(embeddings * 1e13, label_distances)


def test_a_sum_is_the_weighted_sum_of_its_parts_with_their_own_constants() -> None:
    embeddings, label_distances = batch(6, 9)
    sample = label_distances[label_distances > 0]
    both = losses.get("sum(log-ratio, 0.3*cosent(scale=2.0))").fit(sample)
    one, other = losses.get("log-ratio").fit(sample), losses.get("cosent", scale=2.0)
    expected = one(embeddings, label_distances) + 0.3 * other(embeddings, label_distances)
    assert both(embeddings, label_distances).item() == pytest.approx(expected.item(), rel=1e-12)
    assert both.constants() == {f"1.{name}": value for name, value in one.constants().items()}
    again = losses.get(str(Choice.parse("sum(log-ratio, 0.3*cosent(scale=2.0))")))
    again.load_state_dict(both.state_dict())
    assert again(embeddings, label_distances).item() == both(embeddings, label_distances).item()
    assert torch.autograd.gradcheck(lambda points: both(points, label_distances), embeddings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum(log-ratio, proxy-anchor)", "'proxy-anchor' is a loss over classes; take one over label distances here"),
        ("sum(log-ratio, 0*cosent)", "'weight' must be a finite number above 0"),
        ("sum(log-ratio, rank-n-contrast)", "must agree on normalising embeddings"),
        ("sum(parts=[])", "A sum lists its losses"),
        ("sum(parts=['', 'cosent'])", "A sum lists its losses"),
        ("sum(log-ratio, cosen)", "Unknown loss 'cosen'. Did you mean 'cosent'"),
        ("matryoshka(loss=matryoshka)", "A Matryoshka loss cannot hold another one; name all sizes in one"),
        ("matryoshka(loss='sum(log-ratio, matryoshka)')", "A Matryoshka loss cannot hold another one"),
        ("matryoshka(dimensions=(0,))", "'dimensions' must be a whole number of at least 1"),
        ("log-ratio(uniform)", "should read 'name(setting=value, ...)'"),
    ],
)
def test_what_is_no_sum_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(").replace(")", r"\)")):
        losses.get(text)


def test_matryoshka_is_the_mean_over_the_first_dimensions() -> None:
    embeddings, label_distances = batch(6, 9, dimensions=8)
    loss = losses.get("matryoshka(loss=cosent(scale=2.0), dimensions=(2, 4, 64))")
    parts = [cosent_loss(embeddings[:, :size], label_distances, scale=2.0).item() for size in (2, 4, 8)]
    assert loss(embeddings, label_distances).item() == pytest.approx(sum(parts) / 3, rel=1e-12)
    assert torch.autograd.gradcheck(lambda points: loss(points, label_distances), embeddings)
