"""What torch may do with every registered loss beside a plain backward pass, against the formulas written slowly.

Gradients of gradients, ``torch.func``, ``torch.compile``, and label distances that are integers or ask for gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import slow_class_losses
import slow_losses
import torch
from torch import Tensor, nn

from cml import losses
from cml.errors import UserError
from cml.losses.binary_rules import nearest
from cml.losses.loss import Loss
from cml.losses.pairs import Pairs
from cml.losses.row_blocks import mean_over_pairs

CLASSES = torch.tensor([0, 2, 1, 0, 2, 1, 0, 2, 1])
WORDS = {"cat": [0.3, 0.8, -0.1], "gull": [-0.5, 0.2, 0.4], "wren": [-0.4, 0.5, 0.6]}
Oracle = Callable[[Loss, Tensor, Tensor], Tensor]  # of the loss, the embeddings and the target


def unit(f: Tensor) -> Tensor:
    return slow_losses.unit(f)


def proxy(loss: Loss) -> Tensor:
    (table,) = loss.proxies()
    return table


def slow_log_ratio(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    exponent, floor = loss.constant("label_exponent"), loss.constant("floor")
    return slow_losses.log_ratio(f, y, None, exponent, floor, weights="rank", normalize=True)


def slow_sum(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    return slow_log_ratio(loss.terms[0], f, y) + 0.3 * slow_losses.cosent(f, y, scale=2.0)


def slow_matryoshka(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    return (slow_log_ratio(loss.terms[0], f[:, :3], y) + slow_log_ratio(loss.terms[0], f, y)) / 2


def slow_binary(_: Loss, f: Tensor, y: Tensor) -> Tensor:
    return slow_class_losses.contrastive_pairs(unit(f), *nearest(y, 3), 1.0)


def slow_guidance(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    guidance = slow_class_losses.language_guidance(f, loss.texts, y.tolist(), loss.gamma, loss.temperature)
    return slow_class_losses.multi_similarity(unit(f), y.tolist()) + loss.weight * guidance


def slow_soft_triple(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    centers = proxy(loss).T.reshape(3, 3, -1)
    return slow_class_losses.soft_triple(f, centers, y.tolist(), 20.0, 0.1, 0.01)


def slow_regression(loss: Loss, f: Tensor, y: Tensor) -> Tensor:
    return slow_losses.regression(f, (y - loss.center) / loss.scale)


CASES: dict[str, tuple[str, Oracle]] = {
    "log-ratio": ("log-ratio", slow_log_ratio),
    "pair-log-ratio": (
        "pair-log-ratio",
        lambda loss, f, y: slow_losses.pair_log_ratio(f, y, loss.constant("label_exponent"), loss.constant("floor")),
    ),
    "logistic-triplet": (
        "logistic-triplet",
        lambda loss, f, y: slow_losses.logistic_triplet(f, y, loss.scale, loss.flip_rate),
    ),
    "dense-triplet": ("dense-triplet", lambda _, f, y: slow_losses.dense_triplet(f, y)),
    "binary-triplet": ("binary-triplet(k=3)", lambda _, f, y: slow_losses.binary_triplet(f, *nearest(y, 3))),
    "binary": ("binary(loss=contrastive, k=3)", slow_binary),
    "rank-n-contrast": ("rank-n-contrast", lambda _, f, y: slow_losses.rank_n_contrast(f, y)),
    "rkd-distance": ("rkd-distance", lambda _, f, y: slow_losses.rkd_distance(f, y)),
    "relaxed-contrastive": (
        "relaxed-contrastive(sigma=0.5)",
        lambda loss, f, y: slow_losses.relaxed_contrastive(f, y, None, loss.constant("label_scale"), sigma=0.5),
    ),
    "graded-contrastive": (
        "graded-contrastive(margin=1.5)",
        lambda loss, f, y: slow_losses.graded_contrastive(f, y, None, loss.constant("label_scale"), margin=1.5),
    ),
    "soft-target": (
        "soft-target",
        lambda loss, f, y: slow_losses.soft_target(f, y, None, 0.1 * loss.constant("label_scale")),
    ),
    "kernel-supcon": (
        "kernel-supcon",
        lambda loss, f, y: slow_losses.kernel_supcon(f, y, None, 0.5 * loss.constant("label_scale")),
    ),
    "cosent": ("cosent", lambda _, f, y: slow_losses.cosent(f, y)),
    "h-ap": ("h-ap(neighbors=3)", lambda _, f, y: slow_losses.h_ap(f, y, neighbors=3)),
    "lambda-ndcg": ("lambda-ndcg(neighbors=3)", lambda _, f, y: slow_losses.lambda_ndcg(f, y, neighbors=3)),
    "sum": ("sum", slow_sum),
    "matryoshka": ("matryoshka(dimensions=3)", slow_matryoshka),
    "regression": ("regression", slow_regression),
    "contrastive": ("contrastive", lambda _, f, y: slow_class_losses.contrastive(unit(f), y.tolist(), 1.0, True)),
    "triplet": (
        "triplet(mining=all, margin=0.6)",
        lambda _, f, y: slow_class_losses.triplet(unit(f), y.tolist(), 0.6, "all", True),
    ),
    "n-pair": ("n-pair", lambda _, f, y: slow_class_losses.n_pair(f, y.tolist())),
    "lifted-structure": (
        "lifted-structure",
        lambda _, f, y: slow_class_losses.lifted_structure(unit(f), y.tolist(), 1.0),
    ),
    "multi-similarity": ("multi-similarity", lambda _, f, y: slow_class_losses.multi_similarity(unit(f), y.tolist())),
    "proxy-nca": (
        "proxy-nca",
        lambda loss, f, y: slow_class_losses.proxy_nca(unit(f), unit(proxy(loss)), y.tolist(), 1.0),
    ),
    "proxy-nca-pp": (
        "proxy-nca-pp",
        lambda loss, f, y: slow_class_losses.proxy_nca(unit(f), unit(proxy(loss)), y.tolist(), 9.0),
    ),
    "proxy-anchor": (
        "proxy-anchor(alpha=5)",
        lambda loss, f, y: slow_class_losses.proxy_anchor(unit(f), unit(proxy(loss)), y.tolist(), 5.0, 0.1),
    ),
    "proxy-gml": (
        "proxy-gml(per_class=2, share=0.8)",
        lambda loss, f, y: slow_class_losses.proxy_gml(unit(f), unit(proxy(loss)), y.tolist(), 2, 5, 0.3),
    ),
    "soft-triple": ("soft-triple(centers=3)", slow_soft_triple),
    "direction-triplet": (
        "direction-triplet",
        lambda _, f, y: slow_class_losses.direction_triplet(unit(f), y.tolist(), 0.2, 0.3),
    ),
    "direction-multi-similarity": (
        "direction-multi-similarity",
        lambda _, f, y: slow_class_losses.multi_similarity(unit(f), y.tolist(), gamma=0.3),
    ),
    "direction-proxy-nca": (
        "direction-proxy-nca(gamma=0.7)",
        lambda loss, f, y: slow_class_losses.direction_proxy_nca(unit(f), unit(proxy(loss)), y.tolist(), 0.7),
    ),
    "language-guidance": ("language-guidance", slow_guidance),
}
# of torch.func and the compiler, of their own doing
ignore_warnings_of_torch = pytest.mark.filterwarnings(
    *(f"ignore::{kind}Warning" for kind in ("Future", "Deprecation", "User"))
)
every_loss = pytest.mark.parametrize("name", losses.names())
OVER_DISTANCES = [name for name in losses.names() if issubclass(losses.registry.entry(name), losses.LabelDistanceLoss)]
every_loss_over_distances = pytest.mark.parametrize("name", OVER_DISTANCES)
UNDER_FUNC = [name for name in losses.names() if name != "n-pair"]


class Batch(NamedTuple):
    """A prepared loss with its oracle, and a batch for it."""

    loss: Loss
    oracle: Oracle
    embeddings: Tensor
    target: Tensor


@pytest.fixture
def batch_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Batch]:
    vectors = tmp_path_factory.mktemp("words") / "words.txt"
    vectors.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in WORDS.items()))

    def make(name: str, dtype: torch.dtype = torch.float64) -> Batch:
        generator = torch.Generator().manual_seed(1)
        embeddings = torch.randn(9, 6, generator=generator, dtype=torch.float64).to(dtype)
        labels = torch.randn(9, 2, generator=generator, dtype=torch.float64)
        text, oracle = CASES[name]
        loss: Loss = losses.get(text, **({"vectors": str(vectors)} if name == "language-guidance" else {}))
        if isinstance(loss, losses.LabelDistanceLoss):
            target = torch.cdist(labels, labels).to(dtype)
            loss.fit(target)
        elif loss.labels == "classes":
            target = CLASSES
            loss.prepare(target, dimension=6, names=list(WORDS), generator=torch.Generator().manual_seed(3))
        elif loss.labels == "triplets":
            target = torch.tensor([[0, 1, 2, 1], [3, 5, 4, 2], [8, 6, 7, 1], [0, 4, 1, 3], [2, 1, 0, 1]])
            loss.prepare(target, dimension=6)
        else:
            target = torch.randn(9, 6, generator=generator, dtype=torch.float64).to(dtype)
            loss.prepare(target, dimension=6)
        return Batch(loss.to(dtype), oracle, embeddings, target)

    return make


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


@every_loss
def test_the_gradient_of_a_gradient_penalty_is_that_of_the_formula(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, oracle, embeddings, target = batch_of(name)
    expected = penalty_gradients(lambda f: oracle(loss, f, target), embeddings, loss)
    assert_near(penalty_gradients(lambda f: loss(f, target), embeddings, loss), expected, 1e-8)


@ignore_warnings_of_torch
@every_loss_over_distances
@pytest.mark.filterwarnings("ignore:Some anchors:RuntimeWarning")
def test_pairs_that_cannot_be_compared_leave_second_derivatives_right(
    name: str, batch_of: Callable[..., Batch]
) -> None:
    loss, oracle, embeddings, target = batch_of(name)
    odd = target[:6].clone()  # some items are no anchors
    odd[0, 4] = odd[1, 7] = odd[5, 0] = torch.inf
    odd[2] = torch.inf
    odd[3] = odd[3].where(torch.arange(9) == 5, torch.inf)  # one item alone
    odd[1, 2] = odd[1, 3]  # a tie
    expected = penalty_gradients(lambda f: oracle(loss, f, odd), embeddings, loss)
    assert_near(penalty_gradients(lambda f: loss(f, odd), embeddings, loss), expected, 1e-8)
    gradient = torch.func.grad(lambda f: torch.func.grad(lambda g: loss(g, odd))(f).square().sum())(embeddings)
    assert_near([gradient], expected[:1], 1e-8)


@every_loss
def test_the_gradient_of_a_gradient_penalty_keeps_its_digits_in_float32(
    name: str, batch_of: Callable[..., Batch]
) -> None:
    loss, _, embeddings, target = batch_of(name, torch.float32)
    exact = batch_of(name)
    expected = penalty_gradients(lambda f: exact.loss(f, exact.target), exact.embeddings, exact.loss)
    assert_near(penalty_gradients(lambda f: loss(f, target), embeddings, loss), expected, 1e-4)


@every_loss
def test_a_graph_leaves_the_gradient_as_it_is(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    leaf = embeddings.requires_grad_()
    (usual,) = torch.autograd.grad(loss(leaf, target), leaf)
    (with_graph,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
    assert not usual.requires_grad
    torch.testing.assert_close(with_graph.detach(), usual, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["log-ratio", "rkd-distance", "rank-n-contrast", "h-ap"])
def test_second_and_third_derivatives_by_gradcheck(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    leaf = embeddings[:5, :3].clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda f: loss(f, target[:4, :5]), (leaf,))

    def slope(f: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss(f, target[:4, :5]), f, create_graph=True)
        return gradient.square().sum()

    assert torch.autograd.gradgradcheck(slope, (leaf,))


@pytest.mark.parametrize("name", ["log-ratio", "soft-target", "rank-n-contrast", "rkd-distance"])
def test_a_penalty_on_a_network_and_several_heads(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, oracle, inputs, target = batch_of(name)
    network = nn.Linear(6, 8, dtype=torch.float64)

    def gradients(value: Callable[[Tensor], Tensor]) -> list[Tensor]:
        leaf = inputs.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(value(network(leaf)), leaf, create_graph=True)
        return list(torch.autograd.grad(gradient.square().sum(), [leaf, network.weight]))

    def of_heads(f: Tensor) -> Tensor:
        heads = torch.stack([f[:, :4], f[:, 4:]])  # (H, B, D)
        assert isinstance(loss, losses.LabelDistanceLoss)
        return (loss.mean(heads, target).loss * torch.tensor([1.0, 2.0])).sum()

    expected = gradients(lambda f: oracle(loss, f[:, :4], target) + 2 * oracle(loss, f[:, 4:], target))
    assert_near(gradients(of_heads), expected, 1e-8)


@pytest.mark.parametrize("name", ["log-ratio", "rkd-distance", "rank-n-contrast", "relaxed-contrastive", "contrastive"])
def test_second_derivatives_of_coincident_embeddings_are_finite(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    embeddings[4] = embeddings[0]
    for gradient in penalty_gradients(lambda f: loss(f, target), embeddings, loss):
        assert gradient.isfinite().all()


def test_a_loss_of_ones_own_over_pairs_is_differentiable_twice() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(6, 3, generator=generator, dtype=torch.float64).requires_grad_()
    label_distances = torch.rand(6, 6, generator=generator, dtype=torch.float64)

    def stress(pairs: Pairs) -> tuple[Tensor, Tensor]:
        terms = (pairs.distances - pairs.labels).square() * pairs.used
        return terms.sum(dim=1), pairs.used.sum(dim=1)

    def value(f: Tensor) -> Tensor:
        return mean_over_pairs(f, label_distances, stress, normalize=False).loss

    assert torch.autograd.gradgradcheck(value, (embeddings,))


@ignore_warnings_of_torch
@pytest.mark.parametrize("name", UNDER_FUNC)
def test_torch_func_gives_gradients_and_hessians(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, oracle, embeddings, target = batch_of(name)

    def value(f: Tensor) -> Tensor:
        result: Tensor = loss(f, target)
        return result

    leaf = embeddings.clone().requires_grad_()
    (exact,) = torch.autograd.grad(oracle(loss, leaf, target), leaf, create_graph=True)
    (of_penalty,) = torch.autograd.grad(exact.square().sum(), leaf)
    gradients = [transform(value)(embeddings) for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd)]
    assert_near(gradients, 3 * [exact.detach()], 1e-8)
    twice = torch.func.grad(lambda f: torch.func.grad(value)(f).square().sum())(embeddings)
    hessian = torch.func.hessian(value)(embeddings)  # (B, D, B, D)
    assert_near([twice, 2 * torch.tensordot(hessian, gradients[0])], 2 * [of_penalty], 1e-8)


@ignore_warnings_of_torch
@pytest.mark.parametrize("name", ["log-ratio", "dense-triplet", "rank-n-contrast", "cosent", "triplet"])
def test_torch_func_in_float32(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name, torch.float32)
    leaf = embeddings.clone().requires_grad_()
    (usual,) = torch.autograd.grad(loss(leaf, target), leaf)
    for transform in (torch.func.grad, torch.func.jacfwd):
        assert_near([transform(lambda f: loss(f, target))(embeddings)], [usual.double()], 1e-5)


@ignore_warnings_of_torch
@every_loss
def test_vmap_is_refused_in_one_line(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    message = "'n-pair' does not run inside" if name == "n-pair" else "does not run under torch.func.vmap"
    with pytest.raises(UserError, match=message) as refusal:
        torch.func.vmap(lambda f: loss(f, target))(torch.stack([embeddings, embeddings]))
    assert "\n" not in str(refusal.value)


@ignore_warnings_of_torch
def test_n_pair_names_what_to_use_in_place_of_torch_func(batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of("n-pair")
    with pytest.raises(UserError, match=r"'n-pair' does not run inside .* Use torch.autograd"):
        torch.func.grad(lambda f: loss(f, target))(embeddings)


def assert_compiles(batch: Batch) -> None:
    loss, _, embeddings, target = batch
    torch._dynamo.reset()
    try:
        of_each = []
        for module in (loss, torch.compile(loss, backend="eager")):
            leaf = embeddings.clone().requires_grad_()
            value = module(leaf, target)
            (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
            (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
            of_each.append((value.detach(), gradient.detach(), second))
        torch.testing.assert_close(of_each[1], of_each[0], rtol=1e-5, atol=1e-6)
    finally:
        torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.timeout(120)
@ignore_warnings_of_torch
@pytest.mark.parametrize("name", ["log-ratio", "dense-triplet", "binary-triplet"])
def test_torch_compile_runs_the_losses_with_compiled_loops(name: str, batch_of: Callable[..., Batch]) -> None:
    assert_compiles(batch_of(name, torch.float32))


@pytest.mark.slow
@pytest.mark.timeout(120)
@ignore_warnings_of_torch
@every_loss
def test_torch_compile_runs_every_loss(name: str, batch_of: Callable[..., Batch]) -> None:
    assert_compiles(batch_of(name, torch.float32))


@ignore_warnings_of_torch
@pytest.mark.parametrize("name", ["log-ratio", "rank-n-contrast", "dense-triplet", "cosent"])
def test_many_gradients_at_once_are_those_of_one_after_the_other(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    together = torch.autograd.functional.hessian(lambda f: loss(f, target), embeddings, vectorize=True)
    torch.testing.assert_close(together, torch.autograd.functional.hessian(lambda f: loss(f, target), embeddings))


@pytest.mark.parametrize("name", ["log-ratio", "rkd-distance", "rank-n-contrast", "soft-target", "h-ap"])
def test_autocast_changes_no_derivative(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name, torch.float32)
    usual = penalty_gradients(lambda f: loss(f, target), embeddings, loss)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(penalty_gradients(lambda f: loss(f, target), embeddings, loss), usual)


@every_loss_over_distances
def test_integer_label_distances_are_numbers(name: str, batch_of: Callable[..., Batch]) -> None:
    loss, _, embeddings, target = batch_of(name)
    whole = (3 * target).round()
    expected = loss(embeddings, whole).item()
    for integer in (torch.int64, torch.int32, torch.uint8):
        assert loss(embeddings, whole.to(integer)).item() == expected
    assert loss(embeddings, whole.long().numpy()).item() == expected
    single = loss(embeddings.float(), whole.float()).item()
    assert loss(embeddings.float(), whole.long()).item() == single
    assert loss(embeddings.bfloat16(), whole.long()).isfinite()


def test_integers_with_a_mask_and_beyond_half_precision() -> None:
    embeddings = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    whole = torch.tensor([[0, 70_000, 3, 90_000], [5, 0, 80_000, 2]])
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    value = losses.dense_triplet_loss(embeddings, whole, mask=mask)
    assert value.item() == losses.dense_triplet_loss(embeddings, whole.float(), mask=mask).item()
    half = losses.dense_triplet_loss(embeddings.half(), whole)
    assert half.item() == losses.dense_triplet_loss(embeddings.half(), whole.float()).item()  # none became infinite


@ignore_warnings_of_torch
@every_loss_over_distances
def test_label_distances_that_require_a_gradient_are_refused_in_words(
    name: str, batch_of: Callable[..., Batch]
) -> None:
    loss, _, embeddings, target = batch_of(name)
    learned = target.clone().requires_grad_()
    message = r"'label_distances' must not require a gradient: .* Pass label_distances\.detach\(\)"
    for leaf in (embeddings, embeddings.clone().requires_grad_()):
        with pytest.raises(UserError, match=message):
            loss(leaf, learned)
    with pytest.raises(UserError, match=message):
        torch.func.grad(lambda y: loss(embeddings, y))(target)
    with torch.no_grad():  # nothing is to be differentiated
        assert loss(embeddings, learned).item() == loss(embeddings, target).item()
