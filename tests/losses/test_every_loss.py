"""What holds for every registered loss: it is its formula, whatever torch does with it, and says what is wrong.

The formulas written slowly are in ``loss_oracles.py``. What is true of one loss alone has a test beside this file.
"""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_oracles import CASES, OVER_DISTANCES, VARIANTS, Batch, make_batch
from loss_scenarios import findings, written
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from cml import losses
from cml.errors import UserError
from cml.losses import anchor_blocks, closed_form
from cml.losses.loss import Loss
from cml.losses.pml import PmlPairLoss, PmlProxyLoss

# of torch.func and the compiler, of their own doing; and of random batches
pytestmark = pytest.mark.filterwarnings(
    *(f"ignore::{kind}Warning" for kind in ("Future", "Deprecation", "User")),
    "ignore:Some anchors:RuntimeWarning",
    "ignore:Some items:RuntimeWarning",
    "ignore:No anchor:RuntimeWarning",
)
STEPPED = ("h-ap", "lambda-ndcg", "dense-triplet", "binary-triplet", "binary")  # slopes jump where items change places
COSINE = {"kernel-supcon", "cosent", "kernel-supcon, wide", "cosent, steep"}
every_loss = pytest.mark.parametrize("name", CASES)
over_distances = pytest.mark.parametrize("name", OVER_DISTANCES)
any_loss = st.sampled_from(sorted(CASES))
any_over_distances = st.sampled_from([*OVER_DISTANCES, *VARIANTS])
seeds = st.integers(0, 1000)


def gradient_of(value: Tensor, leaf: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(value, leaf)
    return gradient.double()


def value_and_gradient(loss: Callable[..., Tensor], embeddings: Tensor, target: Tensor) -> tuple[float, Tensor]:
    leaf = embeddings.detach().clone().requires_grad_()
    value = loss(leaf, target)
    return value.item(), gradient_of(value, leaf)


def assert_alike(ours: tuple[float, Tensor], theirs: tuple[float, Tensor], bar: float) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=bar, abs=bar)
    assert float((ours[1] - theirs[1]).norm()) <= bar * max(float(theirs[1].norm()), 1e-3)


def penalty_gradients(value: Callable[[Tensor], Tensor], embeddings: Tensor, loss: Loss) -> list[Tensor]:
    """The gradient of a gradient penalty, in the embeddings and in the parameters of a loss."""
    leaf = embeddings.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf, create_graph=True)
    penalty = gradient.square().sum()
    return list(torch.autograd.grad(penalty, [leaf, *loss.parameters()], materialize_grads=True))


def assert_near(values: list[Tensor], expected: list[Tensor], bar: float) -> None:
    for value, exact in zip(values, expected, strict=True):
        assert float(exact.norm()) > 0
        assert float((value.detach().double() - exact).norm() / exact.norm()) < bar


def odd(target: Tensor, seed: int, kind: str) -> Tensor:
    """Label distances with what is met in practice."""
    generator = torch.Generator().manual_seed(seed)
    anchors = int(torch.randint(1, len(target) + 1, (), generator=generator))
    some = target[:anchors].clone()
    if kind == "ties":
        some = (2 * some).round() / 2
    if kind == "infinite":
        some[torch.rand(some.shape, generator=generator) < 0.3] = torch.inf
    if kind == "lonely":  # an anchor of one item, one of none, one of nothing but ties
        some[0, 2:] = torch.inf
        some[-1] = torch.inf
        some[len(some) // 2] = 1
        some[len(some) // 2, len(some) // 2] = 0
    return some


def is_plain(name: str) -> bool:
    """Whether a loss is all plain torch, without a closed form, a library or a list of triplets."""
    if name in ("log-ratio", "pair-log-ratio", "dense-triplet", "binary-triplet", "binary", "h-ap", "lambda-ndcg"):
        return False
    if name in ("sum", "matryoshka", "language-guidance"):  # of log-ratio, and of a library's loss
        return False
    return not issubclass(losses.registry.entry(name), PmlPairLoss | PmlProxyLoss)


def slow_but(names: list[str], *quick: str) -> list[Any]:
    """The names, of which only some are not marked as slow."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


PLAIN = [*filter(is_plain, CASES), *(name for name in VARIANTS if is_plain(name.partition(",")[0]))]
# how wide scores are spread is looked at in the first call alone, and in a compiled graph not at all
UNWATCHED = [name for name in PLAIN if name != "rank-n-contrast, wide"]


def test_every_registered_loss_has_a_formula_written_slowly() -> None:
    assert set(CASES) == set(losses._ENTRIES)


@given(name=any_loss, seed=seeds, dtype=st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=40)
def test_value_and_gradient_are_those_of_the_formula(name: str, seed: int, dtype: torch.dtype) -> None:
    loss, oracle, embeddings, target = make_batch(name, dtype, seed=seed)
    exact = make_batch(name, seed=seed)
    ours = value_and_gradient(loss, embeddings, target)
    theirs = value_and_gradient(lambda f, y: oracle(exact.loss, f, y), exact.embeddings, exact.target)
    assert_alike(ours, theirs, 1e-10 if dtype == torch.float64 else 1e-4)


@given(name=any_over_distances, seed=seeds, kind=st.sampled_from(["plain", "ties", "infinite", "lonely"]))
@settings(deadline=None, max_examples=60)
def test_odd_label_distances_are_those_of_the_formula(name: str, seed: int, kind: str) -> None:
    loss, oracle, embeddings, target = make_batch(name, seed=seed)
    some = odd(target, seed, kind)
    ours = value_and_gradient(loss, embeddings, some)
    try:
        theirs = value_and_gradient(lambda f, y: oracle(loss, f, y), embeddings, some)
    except (RuntimeError, ZeroDivisionError, ValueError):  # plain loops over nothing
        assert ours[0] == 0 or math.isfinite(ours[0])
        return
    assert_alike(ours, theirs, 1e-9)


@given(name=any_over_distances, seed=seeds, among_anchors=st.booleans())
@settings(deadline=None, max_examples=40)
def test_the_order_of_items_changes_nothing(name: str, seed: int, among_anchors: bool) -> None:
    loss, _, embeddings, target = make_batch(name, seed=seed)
    target = (2 * target).round() / 2
    generator = torch.Generator().manual_seed(seed)
    if among_anchors:
        order = torch.randperm(9, generator=generator)
        there, moved = target, target[order][:, order]
    else:
        order = torch.cat([torch.arange(3), 3 + torch.randperm(6, generator=generator)])
        there, moved = target[:3], target[:3, order]
    value, gradient = value_and_gradient(loss, embeddings, there)
    other, other_gradient = value_and_gradient(loss, embeddings[order], moved)
    assert_alike((other, other_gradient), (value, gradient[order]), 1e-10)


@given(name=any_over_distances, seed=seeds, scale=st.floats(0.1, 10))
@settings(deadline=None, max_examples=40)
def test_rotation_and_where_a_loss_says_so_shift_and_scale_change_nothing(name: str, seed: int, scale: float) -> None:
    loss, _, embeddings, target = make_batch(name, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    moved = embeddings @ torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    if not loss.normalize and name not in COSINE and not hasattr(loss, "part_losses"):
        moved = moved + torch.randn(6, generator=generator, dtype=torch.float64)
    elif name not in ("matryoshka", "binary"):
        moved = scale * moved
    if name == "matryoshka":  # whose first numbers are not those of rotated embeddings
        moved = scale * embeddings
    expected = loss(embeddings, target).item()
    assert loss(moved, target).item() == pytest.approx(expected, rel=1e-8, abs=1e-10)


@given(
    name=st.sampled_from(["rank-n-contrast", "cosent", "dense-triplet", "binary-triplet"]),
    seed=seeds,
    power=st.floats(0.3, 3),
    scale=st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=40)
def test_losses_over_ranks_take_any_growing_change_of_the_label_distance(
    name: str, seed: int, power: float, scale: float
) -> None:
    loss, _, embeddings, target = make_batch(name, seed=seed)
    levels, place = ((2 * target).round()).unique(return_inverse=True)  # equal ones stay equal to the last digit
    expected = loss(embeddings, levels[place]).item()
    assert loss(embeddings, (scale * levels**power)[place]).item() == expected


@given(name=st.sampled_from(OVER_DISTANCES), seed=seeds, scale=st.floats(0.01, 100))
@settings(deadline=None, max_examples=30)
def test_constants_that_are_fitted_take_any_unit_of_the_label_distance(name: str, seed: int, scale: float) -> None:
    loss, _, embeddings, target = make_batch(name, seed=seed)
    expected = loss(embeddings, target).item()
    assert isinstance(loss, losses.LabelDistanceLoss)
    assert loss.fit(scale * target)(embeddings, scale * target).item() == pytest.approx(expected, rel=1e-8, abs=1e-12)


@over_distances
def test_an_infinite_label_distance_is_as_if_the_item_were_not_there(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    some, without = target[:2].clone(), [0, 1, 2, 3, 5, 6, 7, 8]
    some[:, 4] = torch.inf
    expected = loss(embeddings[without], some[:, without]).item()
    assert loss(embeddings, some).item() == pytest.approx(expected, rel=1e-10)


@over_distances
def test_an_anchors_own_column_is_left_out_but_for_similarities(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    value, gradient = value_and_gradient(loss, embeddings, target)
    rounding = 1e-4 * target.max().item()
    for anything in (math.nan, -1.0, math.inf, rounding):
        other = value_and_gradient(loss, embeddings, target.clone().fill_diagonal_(anything))
        assert other[0] == value
        assert torch.equal(other[1], gradient)
    for _ in range(2):  # each time, not in the first call alone
        with pytest.raises(UserError, match=r"between item 3 of the batch and itself, which should be 0.*similarities"):
            loss(embeddings, target.clone().index_put((torch.tensor(3),) * 2, target.max() / 2))


@given(name=any_over_distances, dtype=st.sampled_from([torch.float32, torch.bfloat16]), case=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_coincident_embeddings_and_equal_labels_stay_finite(name: str, dtype: torch.dtype, case: int) -> None:
    loss, _, embeddings, target = make_batch(name, torch.float32)
    same = [
        embeddings[:1].repeat(9, 1),
        torch.cat([embeddings[:6], embeddings[:3]]),
        torch.zeros(9, 6),
        torch.cat([embeddings[:6], embeddings[:3] + 1e-6]),
    ][case]
    value, gradient = value_and_gradient(loss, same.to(dtype), target.masked_fill(target < 1, 0))
    assert math.isfinite(value)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", [name for name in [*OVER_DISTANCES, *VARIANTS] if name != "binary"])
def test_parts_of_the_anchors_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, _, embeddings, target = make_batch(name, items=31)
    some = (4 * target[:30]).round() / 4
    whole = value_and_gradient(loss, embeddings, some), penalty_gradients(lambda f: loss(f, some), embeddings, loss)
    rows = closed_form.mean_over_rows
    monkeypatch.setattr(anchor_blocks, "_WHOLE_BYTES", 0)
    monkeypatch.setattr(anchor_blocks, "_BLOCK_BYTES", 7 * 31 * 6 * 8)

    def in_parts(*arguments: Any, **options: Any) -> anchor_blocks.AnchorMean:  # noqa: ANN401
        return rows(*arguments, **{**options, "block_bytes": 7 * 31 * 8})

    for module in ("log_ratio", "dense_triplet", "graded_rank"):
        monkeypatch.setattr(importlib.import_module(f"cml.losses.{module}"), "mean_over_rows", in_parts)
    assert_alike(value_and_gradient(loss, embeddings, some), whole[0], 1e-11)
    assert_near(penalty_gradients(lambda f: loss(f, some), embeddings, loss), whole[1], 1e-8)


@pytest.mark.parametrize("name", OVER_DISTANCES)
def test_float32_keeps_its_digits(name: str) -> None:
    exact = make_batch(name, items=300)
    rough = make_batch(name, torch.float32, items=300)
    exact.loss.load_state_dict(rough.loss.state_dict())
    ours = value_and_gradient(rough.loss, rough.embeddings, rough.target)
    theirs = value_and_gradient(exact.loss, rough.embeddings.double(), rough.target.double())
    # of two items within rounding of each other, either may come first in a ranking
    assert_alike(ours, theirs, 1e-3 if name in STEPPED else 2e-5)


@pytest.mark.parametrize("name", OVER_DISTANCES)
def test_float32_keeps_its_digits_in_tight_clusters(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    centres = nn.functional.normalize(torch.randn(16, 64, generator=generator))
    points = centres[torch.arange(128) % 16] + 0.01 * torch.randn(128, 64, generator=generator) / 8
    places = torch.rand(128, 3, generator=generator)
    label_distances = (torch.cdist(places, places) + 0.1).fill_diagonal_(0)
    loss = make_batch(name, torch.float32).loss
    ours = value_and_gradient(loss, points, label_distances)
    theirs = value_and_gradient(loss.double(), points.double(), label_distances.double())
    assert_alike(ours, theirs, 5e-2 if name in STEPPED else 1e-4)


@given(name=any_loss, seed=seeds)
@settings(deadline=None, max_examples=20)
def test_the_gradient_of_a_gradient_penalty_is_that_of_the_formula(name: str, seed: int) -> None:
    loss, oracle, embeddings, target = make_batch(name, seed=seed)
    expected = penalty_gradients(lambda f: oracle(loss, f, target), embeddings, loss)
    found = penalty_gradients(lambda f: loss(f, target), embeddings, loss)
    for value, exact in zip(found, expected, strict=True):
        assert float((value - exact).norm()) <= 1e-7 * max(float(exact.norm()), 1e-6)


@over_distances
def test_pairs_that_cannot_be_compared_leave_second_derivatives_right(name: str) -> None:
    loss, oracle, embeddings, target = make_batch(name)
    some = target[:6].clone()  # some items are no anchors
    some[0, 4] = some[1, 7] = some[5, 0] = torch.inf
    some[2] = torch.inf
    some[3] = some[3].where(torch.arange(9) == 5, torch.inf)  # one item alone
    some[1, 2] = some[1, 3]  # a tie
    expected = penalty_gradients(lambda f: oracle(loss, f, some), embeddings, loss)
    assert_near(penalty_gradients(lambda f: loss(f, some), embeddings, loss), expected, 1e-8)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_losses_differentiate_twice_by_gradcheck(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    leaf = embeddings.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: loss(f, target), (leaf,))
    assert torch.autograd.gradgradcheck(lambda f: loss(f, target), (leaf,))


@pytest.mark.parametrize("name", ["log-ratio", "rkd-distance", "rank-n-contrast", "h-ap", "soft-target"])
def test_third_derivatives_by_gradcheck(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    leaf = embeddings[:5, :3].clone().requires_grad_()

    def slope(f: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss(f, target[:4, :5]), f, create_graph=True)
        return gradient.square().sum()

    assert torch.autograd.gradgradcheck(slope, (leaf,))


@pytest.mark.parametrize("name", ["log-ratio", "rkd-distance", "rank-n-contrast", "relaxed-contrastive", "contrastive"])
def test_second_derivatives_of_coincident_embeddings_are_finite(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    embeddings[4] = embeddings[0]
    for gradient in penalty_gradients(lambda f: loss(f, target), embeddings, loss):
        assert gradient.isfinite().all()


@every_loss
def test_torch_func_gives_gradients_and_hessians(name: str) -> None:
    loss, oracle, embeddings, target = make_batch(name)

    def value(f: Tensor) -> Tensor:
        result: Tensor = loss(f, target)
        return result

    if name == "n-pair":
        with pytest.raises(UserError, match=r"'n-pair' does not run inside .* Use torch.autograd"):
            torch.func.grad(value)(embeddings)
        return
    leaf = embeddings.clone().requires_grad_()
    (exact,) = torch.autograd.grad(oracle(loss, leaf, target), leaf, create_graph=True)
    (of_penalty,) = torch.autograd.grad(exact.square().sum(), leaf)
    gradients = [transform(value)(embeddings) for transform in (torch.func.grad, torch.func.jacfwd)]
    assert_near(gradients, 2 * [exact.detach()], 1e-8)
    hessian = torch.func.hessian(value)(embeddings)  # (B, D, B, D)
    assert_near([2 * torch.tensordot(hessian, gradients[0])], [of_penalty], 1e-8)
    copy.deepcopy(loss)  # nothing of a transform is kept
    assert_near([torch.func.grad(value)(embeddings)], [exact.detach()], 1e-8)


@every_loss
def test_vmap_is_refused_in_one_line(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    message = "'n-pair' does not run inside" if name == "n-pair" else "does not run under torch.func.vmap"
    with pytest.raises(UserError, match=message) as refusal:
        torch.func.vmap(lambda f: loss(f, target))(torch.stack([embeddings, embeddings]))
    assert "\n" not in str(refusal.value)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", slow_but(UNWATCHED, "rank-n-contrast", "cosent", "direction-triplet", "proxy-gml"))
def test_plain_losses_compile_without_a_graph_break(name: str) -> None:
    batch = make_batch(name, torch.float32)
    assert_compiles(batch, fullgraph=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", slow_but([name for name in CASES if not is_plain(name)], "log-ratio"))
def test_other_losses_run_under_torch_compile(name: str) -> None:
    assert_compiles(make_batch(name, torch.float32), fullgraph=False)


def assert_compiles(batch: Batch, *, fullgraph: bool) -> None:
    loss, _, embeddings, target = batch
    torch._dynamo.reset()
    try:
        compiled = torch.compile(loss, backend="eager", fullgraph=fullgraph)
        for _ in range(2):
            before = loss.skipped_anchors
            got = value_and_gradient(compiled, embeddings, target)
            between = loss.skipped_anchors
            assert_alike(got, value_and_gradient(loss, embeddings, target), 1e-5)
            assert between - before == loss.skipped_anchors - between
    finally:
        torch._dynamo.reset()


class Reads(TorchDispatchMode):
    """Notes the tensors whose numbers the processor reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.largest = 0

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple[Any, ...] = (), kwargs: object = None
    ) -> object:
        assert kwargs is None or isinstance(kwargs, dict)
        if str(func) in ("aten._local_scalar_dense.default", "aten.nonzero.default", "aten.masked_select.default"):
            self.read.append(str(func))
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, list | tuple) else [made]:
            if isinstance(one, Tensor):
                self.largest = max(self.largest, one.numel())
        return made


@pytest.mark.parametrize("name", UNWATCHED)
def test_plain_losses_read_no_number_after_the_first_call_on_a_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, _, embeddings, target = make_batch(name, torch.float32)
    expected = value_and_gradient(loss, embeddings, target)
    monkeypatch.setattr(Loss, "may_check_numbers", lambda self, _: False)  # as on a device, and under torch.compile
    with Reads() as reads:
        leaf = embeddings.clone().requires_grad_()
        value = loss(leaf, target)
        (gradient,) = torch.autograd.grad(value, leaf)
    assert reads.read == []
    assert_alike((value.item(), gradient), expected, 1e-6)


@pytest.mark.parametrize("name", ["h-ap", "lambda-ndcg", "rank-n-contrast", "soft-target", "cosent", "rkd-distance"])
def test_no_tensor_of_float32_is_larger_than_anchors_times_items(name: str) -> None:
    loss, _, embeddings, target = make_batch(name, torch.float32, items=50)
    with Reads() as reads:
        loss(embeddings.requires_grad_(), target[:40]).backward()
    assert 0 < reads.largest <= 2 * 40 * 50  # CoSENT has two numbers of each pair


def test_a_device_is_looked_at_in_the_first_call_alone() -> None:
    loss = losses.get("rkd-distance")
    embeddings = torch.empty(4, 3, device="meta")
    assert loss.may_check_numbers(embeddings)
    loss(torch.rand(4, 3), torch.rand(4, 4).fill_diagonal_(0))
    assert not loss.may_check_numbers(embeddings)
    assert loss.may_check_numbers(torch.empty(4, 3))


@pytest.mark.parametrize("name", ["log-ratio", "rank-n-contrast", "dense-triplet", "cosent", "soft-target"])
def test_many_gradients_at_once_are_those_of_one_after_the_other(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    together = torch.autograd.functional.hessian(lambda f: loss(f, target), embeddings, vectorize=True)
    torch.testing.assert_close(together, torch.autograd.functional.hessian(lambda f: loss(f, target), embeddings))


@over_distances
def test_computed_in_float32_under_autocast(name: str) -> None:
    loss, _, embeddings, target = make_batch(name, torch.float32)
    expected = value_and_gradient(loss, embeddings, target)
    coarse = loss(embeddings.bfloat16().float(), target).item()
    leaf = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        under = loss(leaf, target)
        assert loss(embeddings.bfloat16(), target).dtype == torch.float32
        assert loss(embeddings.bfloat16(), target).item() == pytest.approx(coarse)
    assert under.item() == expected[0]
    assert torch.equal(gradient_of(under, leaf), expected[1])


@over_distances
def test_integer_label_distances_are_numbers(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    whole = (3 * target).round()
    expected = loss(embeddings, whole).item()
    for integer in (torch.int64, torch.uint8):
        assert loss(embeddings, whole.to(integer)).item() == expected
    assert loss(embeddings, whole.long().numpy()).item() == expected
    assert loss(embeddings.half(), 70_000 * whole.long()).isfinite()  # beyond half precision


@over_distances
def test_what_a_batch_may_not_hold_is_named(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    some = target[:5].clone()
    some[3, 1] = math.nan
    for bad, message in (
        ((embeddings, target[:5, :4]), "one column per embedding, 9. Got 4"),
        (
            (embeddings, target[:, :4]),
            "one column per embedding, 9. Got 9 x 4 numbers, which look like labels. Pass the",
        ),
        ((embeddings, target[:, 0].long()), "Got 9 numbers, which look like labels"),
        ((embeddings[:3], target[:, :3]), "1 <= A <= B"),
        ((embeddings[:1], target[:1, :1]), "Got A=1, B=1"),
        ((embeddings, target.bool()), r"'label_distances' must be a floating-point tensor \(A, B\).*torch.bool"),
        ((embeddings[0], target), "'embeddings' must be a floating-point"),
        ((embeddings.long(), target), "int64"),
        ((embeddings, target.clone().requires_grad_()), r"must not require a gradient: .*label_distances\.detach\(\)"),
        ((embeddings, some), r"at least 0, .* Got nan between items 3 and 1 of the batch \(1 such"),
        ((embeddings, some.nan_to_num(-0.5)), r"at least 0, .* Got -0.5 between items 3 and 1"),
    ):
        with pytest.raises(UserError, match=message):
            loss(*bad)
    with torch.no_grad():  # nothing is to be differentiated
        assert loss(embeddings, target.clone().requires_grad_()).item() == loss(embeddings, target).item()


@pytest.mark.parametrize("name", OVER_DISTANCES)
def test_nothing_to_learn_is_counted_and_warned_of_and_has_no_gradient(name: str) -> None:
    loss, _, embeddings, target = make_batch(name)
    nothing = torch.full((4, 9), torch.inf, dtype=torch.float64)
    before = loss.skipped_anchors
    with pytest.warns(RuntimeWarning, match="No anchor of the batch has"):
        value, gradient = value_and_gradient(loss, embeddings, nothing)
    assert value == 0
    assert not gradient.any()
    assert loss.skipped_anchors == before + 4
    one = target.clone()
    one[1] = torch.inf
    loss(embeddings, one)
    assert loss.skipped_anchors == before + 5


@pytest.mark.parametrize("name", OVER_DISTANCES)
@pytest.mark.parametrize("scale", [1e18, 1e-20])
def test_embeddings_whose_squares_do_not_fit_are_right_or_named(name: str, scale: float) -> None:
    loss, _, embeddings, target = make_batch(name, torch.float32)
    usual = loss(embeddings, target).item()
    if loss.normalize and name != "binary":  # whose library normalises
        assert loss(embeddings * scale, target).item() == pytest.approx(usual, rel=1e-4)
    else:
        with pytest.raises(UserError, match=r"largest number of the embeddings must be in .*the network has (di|coll)"):
            loss(embeddings * scale, target)


@every_loss
def test_a_module_given_for_a_setting_gets_the_message_of_its_check(name: str) -> None:
    kind = losses.registry.entry(name)
    for setting in inspect.signature(kind).parameters:
        given = {"rule": "threshold"} if setting in ("distance", "quantile") else {}
        if name == "binary" and setting != "loss":
            given["loss"] = "contrastive"
        with pytest.raises(UserError, match="Linear") as refusal:
            kind(**{**given, setting: nn.Linear(2, 2)})
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "nope(loss=nought)",
        "sum(nope, 0*cosent)",
        "matryoshka(loss=nope, dimensions=(0,))",
        "language-guidance(loss=nope, weight=-1)",
        "binary(loss=nope, k=0)",
    ],
)
def test_a_loss_that_nobody_knows_is_refused_by_name_before_anything_else(text: str) -> None:
    with pytest.raises(UserError, match="'nope'"):
        losses.get(text)


def test_every_loss_on_scenarios_that_break_numerics() -> None:
    count, bad = findings(written(), sizes=(2, 8), every=37)
    assert count > 70
    assert bad == []


@pytest.mark.parametrize("module", sorted({losses.registry.entry(name).__module__ for name in losses._ENTRIES}))
def test_examples(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried > 0
    assert failed == 0
