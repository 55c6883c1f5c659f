from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_metric_learning.distances as pml_distances
import pytorch_metric_learning.losses as pml_losses
import pytorch_metric_learning.miners as pml_miners
import pytorch_metric_learning.regularizers as pml_regularizers
import slow_class_losses as slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cml import losses
from cml.errors import UserError
from cml.losses.class_loss import ClassLoss
from cml.losses.language_guidance import LanguageGuidanceLoss, text_embeddings
from cml.losses.loss import Loss

CLASSES = torch.tensor([0, 2, 1, 0, 2, 1, 0, 2, 1])
PAIR_LOSSES = ("contrastive", "triplet", "lifted-structure", "multi-similarity")
PROXY_LOSSES = (
    "proxy-nca",
    "soft-triple",
    "proxy-anchor",
    "proxy-nca-pp",
    "proxy-gml(share=0.6)",
    "direction-proxy-nca",
)
ALL = (*PAIR_LOSSES, "n-pair", "ranked-list", "direction-triplet", "direction-multi-similarity", *PROXY_LOSSES)


def points(rows: int = 9, columns: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=dtype).requires_grad_()


def made(name: str, classes: Tensor = CLASSES, dimension: int = 4) -> Loss:
    loss = losses.registry.make(name)
    loss.prepare(classes, dimension=dimension, names=(), generator=torch.Generator().manual_seed(3))
    return loss.double()


def assert_same(value: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    assert value.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-12)
    for found, wanted in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9)


PAIR_CASES: list[tuple[str, Callable[[Tensor, list[int]], Tensor], bool]] = [
    ("contrastive", lambda f, y: slow.contrastive(f, y, 1.0, True), True),
    ("contrastive(margin=2.5, squared=False)", lambda f, y: slow.contrastive(f, y, 2.5, False), True),
    ("contrastive(margin=2.5, normalize=False)", lambda f, y: slow.contrastive(f, y, 2.5, True), False),
    ("triplet", lambda f, y: slow.triplet(f, y, 0.2, "semi-hard", True), True),
    ("triplet(margin=0.6, mining=all)", lambda f, y: slow.triplet(f, y, 0.6, "all", True), True),
    (
        "triplet(mining=batch-hard, squared=False, normalize=False)",
        lambda f, y: slow.triplet(f, y, 0.2, "batch-hard", False),
        False,
    ),
    ("n-pair", slow.n_pair, False),
    ("n-pair(normalize=True)", slow.n_pair, True),
    ("lifted-structure", lambda f, y: slow.lifted_structure(f, y, 1.0), True),
    ("multi-similarity", slow.multi_similarity, True),
    (
        "multi-similarity(alpha=3, beta=10, base=0.2, epsilon=none)",
        lambda f, y: slow.multi_similarity(f, y, 3, 10, 0.2, None),
        True,
    ),
    ("ranked-list", lambda f, y: slow.ranked_list(f, y, 1.2, 0.4, 10.0), True),
    ("ranked-list(alpha=1.6, margin=0.9, temperature=2)", lambda f, y: slow.ranked_list(f, y, 1.6, 0.9, 2.0), True),
    ("direction-triplet", lambda f, y: slow.direction_triplet(f, y, 0.2, 0.3), True),
    (
        "direction-triplet(margin=1, gamma=0.7, normalize=False)",
        lambda f, y: slow.direction_triplet(f, y, 1.0, 0.7),
        False,
    ),
    ("direction-multi-similarity", lambda f, y: slow.multi_similarity(f, y, gamma=0.3), True),
    (
        "direction-multi-similarity(alpha=3, beta=10, base=0.2, epsilon=none, gamma=2)",
        lambda f, y: slow.multi_similarity(f, y, 3, 10, 0.2, None, 2.0),
        True,
    ),
]


@pytest.mark.parametrize(("name", "oracle", "normalized"), PAIR_CASES, ids=[case[0] for case in PAIR_CASES])
def test_pair_losses_are_their_formulas(
    name: str, oracle: Callable[[Tensor, list[int]], Tensor], normalized: bool
) -> None:
    for seed in range(3):
        f = points(seed=seed)
        loss = made(name)
        assert loss.normalize == normalized
        expected = oracle(slow.unit(f) if normalized else f, CLASSES.tolist())
        assert_same(loss(f, CLASSES), expected, f)


def proxies_of(loss: Loss) -> Tensor:
    (proxy,) = loss.proxies()
    return proxy


def test_proxy_losses_are_their_formulas() -> None:
    y = CLASSES.tolist()
    for seed in range(3):
        f = points(seed=seed)
        for name, oracle in (
            ("proxy-nca(scale=2)", lambda f, p: slow.proxy_nca(f, p, y, 2.0)),
            ("proxy-nca-pp", lambda f, p: slow.proxy_nca(f, p, y, 9.0)),
            ("proxy-anchor(alpha=5, delta=0.2)", lambda f, p: slow.proxy_anchor(f, p, y, 5.0, 0.2)),
            ("direction-proxy-nca(gamma=0.7)", lambda f, p: slow.direction_proxy_nca(f, p, y, 0.7)),
            ("proxy-gml(per_class=2, share=0.8)", lambda f, p: slow.proxy_gml(f, p, y, 2, 5, 0.3)),
        ):
            loss = made(name)
            proxy = proxies_of(loss)
            assert_same(loss(f, CLASSES), oracle(slow.unit(f), slow.unit(proxy)), f, proxy)
        loss = made("soft-triple(centers=3)")
        centers = proxies_of(loss)  # (D, C M) in the library
        expected = slow.soft_triple(f, centers.T.reshape(3, 3, 4), y, 20.0, 0.1, 0.01)
        assert_same(loss(f, CLASSES), expected, f, centers)


def test_soft_triple_merges_the_centres_of_a_class() -> None:
    y = CLASSES.tolist()
    f = points(seed=0)
    loss = made("soft-triple(centers=3, tau=0.2)")
    centers = proxies_of(loss)  # (D, C M) in the library
    by_class = centers.T.reshape(3, 3, 4)
    expected = slow.soft_triple(f, by_class, y, 20.0, 0.1, 0.01) + 0.2 * slow.spread_of_centers(by_class)
    assert_same(loss(f, CLASSES), expected, f, centers)
    library = pml_regularizers.SparseCentersRegularizer(3, 3)
    assert torch.allclose(library(centers.T), slow.spread_of_centers(by_class), rtol=1e-4)  # another small constant
    single, plain = made("soft-triple(centers=1, tau=0.2)"), made("soft-triple(centers=1)")
    assert torch.equal(single(f, CLASSES), plain(f, CLASSES))
    with torch.no_grad():
        centers.copy_(centers[:, :1].expand_as(centers))  # all centres coincide
    loss(f, CLASSES).backward()
    assert centers.grad is not None
    assert centers.grad.isfinite().all()


def test_wrapped_losses_are_pytorch_metric_learnings() -> None:
    f = points(dtype=torch.float32)
    lp, squared = pml_distances.LpDistance(), pml_distances.LpDistance(power=2)
    raw_dot = pml_distances.DotProductSimilarity(normalize_embeddings=False)
    direct: dict[str, tuple[Any, Any]] = {
        "contrastive(squared=False)": (pml_losses.ContrastiveLoss(), None),
        "triplet": (
            pml_losses.TripletMarginLoss(0.2, distance=squared),
            pml_miners.TripletMarginMiner(0.2, "semihard", distance=squared),
        ),
        "triplet(margin=0.05, mining=all, squared=False)": (pml_losses.TripletMarginLoss(), None),
        "triplet(margin=0.3, mining=batch-hard, squared=False)": (
            pml_losses.TripletMarginLoss(0.3, distance=lp),
            pml_miners.BatchHardMiner(distance=lp),
        ),
        "n-pair(normalize=True)": (pml_losses.NPairsLoss(), None),
        "n-pair": (pml_losses.NPairsLoss(distance=raw_dot), None),
        "lifted-structure": (pml_losses.LiftedStructureLoss(), None),
        "multi-similarity": (pml_losses.MultiSimilarityLoss(), pml_miners.MultiSimilarityMiner()),
        "multi-similarity(epsilon=none)": (pml_losses.MultiSimilarityLoss(), None),
        "proxy-nca": (pml_losses.ProxyNCALoss(3, 4), None),
        "soft-triple": (pml_losses.SoftTripleLoss(3, 4), None),
        "proxy-anchor": (pml_losses.ProxyAnchorLoss(3, 4), None),
    }
    for name, (inner, miner) in direct.items():
        loss = made(name).float()
        with torch.no_grad():
            for ours, theirs in zip(loss.proxies(), inner.parameters(), strict=True):
                theirs.copy_(ours)
        mined = None if miner is None else miner(f, CLASSES)
        value, expected = loss(f, CLASSES), inner(f, CLASSES, mined)
        assert value.item() == expected.item() > 0, name
        torch.testing.assert_close(torch.autograd.grad(value, f), torch.autograd.grad(expected, f), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Values of Tp or Tn")
def test_ranked_list_is_the_librarys_but_for_the_gradient_of_its_weights() -> None:
    for seed in range(3):
        for temperature in (0.0, 10.0):
            f = points(seed=seed)
            library = pml_losses.RankedListLoss(margin=0.4, Tn=temperature, alpha=1.2)
            value = made(f"ranked-list(temperature={temperature})")(f, CLASSES)
            expected = library(f, CLASSES)
            assert value.item() == pytest.approx(expected.item(), rel=1e-4)  # it adds 1e-5 to each weight of a sum
            if temperature == 0:
                (found,), (wanted,) = (torch.autograd.grad(one, f) for one in (value, expected))
                torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)


def test_the_gradient_of_ranked_list_takes_its_weights_for_constants() -> None:
    f = points()
    apart = torch.cdist(slow.unit(f), slow.unit(f)).tolist()

    def weights(a: int, n: int) -> float:
        return math.exp(10 * (1.2 - apart[a][n]))

    def frozen(moved: Tensor) -> Tensor:
        return slow.ranked_list(slow.unit(moved), CLASSES.tolist(), 1.2, 0.4, 10.0, weights)

    assert torch.autograd.gradcheck(frozen, (f,))  # its gradient is that of finite differences
    assert_same(made("ranked-list")(f, CLASSES), frozen(f), f)


def test_ranked_list_leaves_pairs_beyond_the_spheres_alone() -> None:
    f = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    value = made("ranked-list").float()(f, torch.tensor([0, 0, 1, 1]))
    (gradient,) = torch.autograd.grad(value, f)
    assert value.item() == 0
    assert not gradient.any()
    for text, said in (
        ("ranked-list(alpha=0.4)", "'alpha' must be a finite number above 0.4 and below 2. Got 0.4"),
        ("ranked-list(alpha=2)", "above 0.4 and below 2. Got 2"),
        ("ranked-list(margin=0)", "'margin' must be a finite number above 0 and below 2. Got 0"),
        ("ranked-list(temperature=-1)", "'temperature' must be a finite number at least 0. Got -1"),
    ):
        with pytest.raises(UserError, match=said):
            losses.get(text)


def with_proxies(text: str, f: Tensor, proxies: Tensor, classes: Tensor) -> Tensor:
    """The loss with given proxies."""
    loss = losses.registry.make(text)
    loss.prepare(torch.arange(3), dimension=f.shape[1])
    value: Tensor = torch.func.functional_call(loss, {"proxy": proxies}, (f, classes))
    return value


def guidance(f: Tensor, texts: Tensor, classes: Tensor, gamma: float = 1.0) -> Tensor:
    loss = LanguageGuidanceLoss(gamma=gamma)
    loss.texts = texts
    return loss.guidance(f, classes)


def test_regularisation_of_n_pairs_is_the_embeddings_mean_length() -> None:
    f = points()
    lengths = (f**2).sum(dim=1).sqrt().mean()
    assert made("n-pair(regularization=0.5)")(f, CLASSES).item() == pytest.approx(
        (made("n-pair")(f, CLASSES) + 0.5 * lengths).item(), rel=1e-12
    )


def test_relations_between_losses() -> None:
    f, proxies = points(), points(3, seed=1)
    plain = losses.DirectionMultiSimilarityLoss(gamma=0.0)(f, CLASSES)
    assert plain.item() == pytest.approx(made("multi-similarity")(f, CLASSES).item(), rel=1e-9)
    plain = losses.DirectionTripletLoss(gamma=0.0)(f, CLASSES)
    assert plain.item() == pytest.approx(made("triplet(mining=all)")(f, CLASSES).item(), rel=1e-9)
    inner = pml_losses.ProxyNCALoss(3, 4, softmax_scale=5.0).double()
    inner.proxies.data = proxies.detach()
    assert with_proxies("proxy-nca-pp(temperature=0.2)", f, proxies, CLASSES).item() == pytest.approx(
        inner(f, CLASSES).item(), rel=1e-9
    )
    everything = with_proxies("proxy-gml(per_class=1, share=1.0, regularization=0)", f, proxies, CLASSES)
    cosines = slow.unit(f) @ slow.unit(proxies).T
    assert everything.item() == pytest.approx(nn.functional.cross_entropy(cosines, CLASSES).item(), rel=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_normalised_losses_are_blind_to_rotation_scale_and_order(seed: int, scale: float) -> None:
    f = points(seed=seed).detach()
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    order = torch.randperm(9, generator=generator)
    moved = (scale * f @ rotation)[order]
    for name in ("direction-triplet", "direction-multi-similarity", "multi-similarity", "ranked-list"):
        loss = made(name)
        assert loss(moved, CLASSES[order]).item() == pytest.approx(loss(f, CLASSES).item(), rel=1e-6, abs=1e-9)
    proxies = points(6, seed=1).detach()
    for function in (
        lambda f, p, y: with_proxies("proxy-nca-pp", f, p[:3], y),
        lambda f, p, y: with_proxies("direction-proxy-nca", f, p[:3], y),
        lambda f, p, y: with_proxies("proxy-gml(per_class=2, share=0.66)", f, p, y),
    ):
        turned = function(moved, scale * proxies @ rotation, CLASSES[order])
        assert turned.item() == pytest.approx(function(f, proxies, CLASSES).item(), rel=1e-9)


def test_gradcheck() -> None:
    f, proxies, texts = points(6, 3), points(4, 3, seed=1), points(2, 5, seed=2).detach()
    classes = torch.tensor([0, 1, 0, 1, 0, 1])
    for function in (
        lambda f, p: losses.DirectionTripletLoss(margin=0.5)(f, classes),
        lambda f, p: losses.DirectionTripletLoss(normalize=False, margin=9.0)(f, classes),
        lambda f, p: losses.DirectionMultiSimilarityLoss(beta=10)(f, classes),
        lambda f, p: with_proxies("direction-proxy-nca", f, p, classes),
        lambda f, p: with_proxies("proxy-nca-pp", f, p, classes),
        lambda f, p: with_proxies("proxy-gml(per_class=2, share=0.7)", f, p, classes),
        lambda f, p: guidance(f, texts, classes),
    ):
        assert torch.autograd.gradcheck(function, (f, proxies))


def test_negatives_beside_the_positive_are_pushed_less() -> None:
    def value(negative: list[float], gamma: float) -> float:
        f = torch.tensor([[0.0, 0.0], [1.0, 0.0], negative])
        return losses.DirectionTripletLoss(9.0, gamma, normalize=False).value(f, torch.tensor([0, 0, 1])).item()

    assert value([0.5, 1.0], 0.5) < value([0.5, 1.0], 0.0)  # between both anchors: both cosines are positive
    assert value([2.0, 0.0], 0.5) == pytest.approx(value([2.0, 0.0], 0.0))  # on their line beyond one: 1 and -1


def test_coincident_points_stay_finite() -> None:
    same = torch.ones(6, 4, requires_grad=True)
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    for name in ALL:
        loss = made(name, classes).float()
        value = loss(same, classes)
        (gradient,) = torch.autograd.grad(value, same)
        assert value.isfinite(), name
        assert gradient.isfinite().all(), name


def test_near_points_keep_their_direction_in_float32() -> None:
    f = points(6, 16)
    f = (torch.ones(16, dtype=torch.float64) + 1e-3 * f).detach()
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    exact = losses.DirectionTripletLoss(gamma=1.0, normalize=False)(f, classes)
    expected = slow.direction_triplet(f, classes.tolist(), 0.2, 1.0)
    assert exact.item() == pytest.approx(expected.item(), rel=1e-3)
    rounded = losses.DirectionTripletLoss(gamma=1.0, normalize=False)(f.float(), classes)
    assert rounded.item() == pytest.approx(
        slow.direction_triplet(f.float().double(), classes.tolist(), 0.2, 1.0).item(), rel=1e-3
    )


def test_autocast_and_half_precision_compute_in_float32() -> None:
    f = points(dtype=torch.float32).detach()
    for name in ALL:
        loss = made(name).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert loss(f, CLASSES).item() == loss(f, CLASSES).float().item(), name
            half = loss(f.bfloat16(), CLASSES)
        assert half.dtype == torch.float32, name
        assert half.item() == loss(f.bfloat16().float(), CLASSES).item(), name


def test_float_labels_into_a_class_loss() -> None:
    f = points(dtype=torch.float32)
    for name in ALL:
        loss = made(name).float()
        with pytest.raises(UserError, match=r"continuous labels, torch.float32, .* binary\(loss=triplet, rule=nearest"):
            loss(f, torch.rand(9))


def test_wrong_arguments() -> None:
    f = points(dtype=torch.float32)
    for name in ALL:
        loss = made(name).float()
        with pytest.raises(UserError, match=r"one torch.int64 number per embedding, \(9,\). Got shape \(8,\)"):
            loss(f, CLASSES[:8])
        with pytest.raises(UserError, match=r"torch.int32 instead"):
            loss(f, CLASSES.int())
        with pytest.raises(UserError, match=r"floating-point tensor \(B, D\)"):
            loss(CLASSES, CLASSES)
        with pytest.raises(UserError, match="at least 2 items"):
            loss(f[:1], CLASSES[:1])
    for name in PROXY_LOSSES:
        with pytest.raises(UserError, match=r"must be in 0\.\.2, the class of a proxy. Got 0\.\.3"):
            made(name).float()(f, CLASSES + (CLASSES == 2))
        with pytest.raises(UserError, match=r"has no proxies yet: call prepare"):
            losses.registry.make(name)(f, CLASSES)
    with pytest.raises(UserError, match=r"one dimension D. Got 4 and 3"):
        with_proxies("proxy-nca-pp", f, torch.ones(3, 3), CLASSES)
    with pytest.raises(UserError, match=r"at least 2 rows"):
        with_proxies("proxy-nca-pp", f, torch.ones(1, 4), torch.zeros(9, dtype=torch.int64))
    with pytest.raises(UserError, match=r"must be 'per_class' of every class. Got 5 with per_class=2"):
        with_proxies("proxy-gml(per_class=2, share=0.7)", f, torch.ones(5, 4), CLASSES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("contrastive(margin=0)", "'margin' must be a finite number above 0"),
        ("triplet(mining=hardest)", "'mining' must be one of all, semi-hard, batch-hard. Got 'hardest'"),
        ("triplet(margin=-1)", "'margin' must be a finite number at least 0"),
        ("n-pair(regularization=-1)", "'regularization'"),
        ("lifted-structure(margin=0)", "'margin'"),
        ("multi-similarity(alpha=0)", "'alpha' must be a finite number above 0"),
        ("multi-similarity(epsilon=-0.1)", "'epsilon'"),
        ("proxy-nca(scale=0)", "'scale'"),
        ("soft-triple(centers=0)", "'centers' must be a whole number of at least 1. Got 0"),
        ("soft-triple(gamma=0)", "'gamma'"),
        ("soft-triple(tau=-1)", "'tau' must be a finite number at least 0"),
        ("proxy-anchor(alpha=0)", "'alpha'"),
        ("proxy-nca-pp(temperature=0)", "'temperature'"),
        ("proxy-gml(per_class=1.5)", "'per_class' must be a whole number"),
        ("proxy-gml(share=0)", "'share' must be above 0 and at most 1"),
        ("direction-triplet(gamma=-1)", "'gamma'"),
        ("direction-multi-similarity(beta=0)", "'beta'"),
        ("direction-proxy-nca(gamma=-1)", "'gamma'"),
        (
            "language-guidance(loss=log-ratio)",
            "goes with a loss over classes, such as multi-similarity. Got 'log-ratio'",
        ),
        ("language-guidance(weight=-1)", "'weight'"),
        ("language-guidance(loss=multi-similarity(beat=3))", "no setting 'beat'"),
        ("multi-similarty", "Did you mean 'multi-similarity'"),
    ],
)
def test_settings_out_of_range(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        losses.registry.make(name)


def test_proxy_gml_must_keep_somebody_elses_proxy() -> None:
    with pytest.raises(UserError, match=r"keeps 2 of 36 proxies, 12 of them its own .* Set share above 0.333"):
        made("proxy-gml")


def test_batches_without_positives_or_negatives_are_counted_and_said_once() -> None:
    f = points(4)
    for name in (*PAIR_LOSSES, "n-pair", "direction-triplet", "direction-multi-similarity"):
        loss = made(name)
        assert isinstance(loss, ClassLoss)
        some, none = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 3])
        with pytest.warns(RuntimeWarning, match="Some items of a batch have no positive or no negative"):
            loss(f, some)
        assert loss.skipped_anchors == 2
        with pytest.warns(RuntimeWarning, match=r"No item of a batch has both .* per-class"):
            loss(f, none)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss(f, none)
            loss(f, some)
        assert loss.skipped_anchors == 2 + 4 + 4 + 2
    one_class = made("multi-similarity")
    with pytest.warns(RuntimeWarning, match="No item of a batch has both"):
        one_class(f, torch.zeros(4, dtype=torch.int64))


def test_not_a_number_is_not_hidden_by_our_own() -> None:
    broken = points().detach().clone()
    broken[2, 1] = torch.nan
    for name in ("direction-multi-similarity", "proxy-nca-pp", "proxy-gml(share=0.6)", "direction-proxy-nca"):
        assert made(name)(broken, CLASSES).isnan(), name


@pytest.fixture
def words(tmp_path: Path) -> str:
    rows = {"black": [1, 0, 0], "footed": [0, 1, 0], "albatross": [0, 0, 1], "gull": [0, 0.5, 1], "Wren": [1, 1, 0]}
    text = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items())
    (tmp_path / "words.txt").write_text(text)
    return str(tmp_path / "words.txt")


def test_class_names_are_read_as_words(words: str) -> None:
    texts = text_embeddings(["001.Black_footed_Albatross", "gull 7", "Wren"], words)
    torch.testing.assert_close(texts, torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0, 0.5, 1], [1, 1, 0]]))
    with pytest.raises(UserError, match=r"know none in '042'"):
        text_embeddings(["Gull", "042"], words)
    with pytest.raises(UserError, match=r"differ in their words. Got 2 that read like 'gull 1'"):
        text_embeddings(["gull 1", "gull 2"], words)
    with pytest.raises(UserError, match=r"differ in their words. Got none"):
        text_embeddings([], words)
    with pytest.raises(UserError, match=r"cannot be read"):
        text_embeddings(["gull"], "nowhere.txt")


def test_language_guidance(words: str) -> None:
    names = ["black gull", "gull", "Wren"]
    loss = losses.get("language-guidance", loss="proxy-anchor", vectors=words, weight=2.0, gamma=0.7, temperature=0.5)
    with pytest.raises(UserError, match="has no class names yet"):
        loss(points(), CLASSES)
    loss.prepare(CLASSES, dimension=4, names=names, generator=torch.Generator().manual_seed(3))
    loss.double()
    f = points()
    inner = made("proxy-anchor")
    with torch.no_grad():
        proxies_of(inner).copy_(proxies_of(loss))
    expected = inner(f, CLASSES) + 2 * slow.language_guidance(f, loss.texts, CLASSES.tolist(), 0.7, 0.5)
    assert_same(loss(f, CLASSES), expected, f)
    assert loss.normalize
    assert len(loss.proxies()) == 1


def test_gamma_acts_on_the_own_class_alone_and_guidance_is_zero_where_both_agree(words: str) -> None:
    texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    classes = torch.tensor([0, 1])
    assert guidance(texts, texts, classes, gamma=0.0).item() == pytest.approx(0, abs=1e-7)
    assert guidance(texts, texts, classes, gamma=1.0).item() > 0.01
    one = torch.tensor([0, 0])  # gamma on a whole row does nothing
    first, second = (guidance(points(2, 3), texts, one, gamma=gamma).item() for gamma in (0.0, 5.0))
    assert first == pytest.approx(second, rel=1e-6)


def test_proxies_start_from_the_seed_alone() -> None:
    for name in PROXY_LOSSES:
        before = torch.get_rng_state()
        first, again = made(name), made(name)
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(proxies_of(first), proxies_of(again))
        other = losses.registry.make(name)
        other.prepare(CLASSES, dimension=4, names=("a", "b", "c"), generator=torch.Generator().manual_seed(4))
        assert not torch.equal(proxies_of(first), proxies_of(other).double())


def test_proxy_losses_take_float64() -> None:
    f = points()
    for name in ("proxy-nca-pp", "proxy-gml(share=0.6)", "proxy-anchor"):
        loss = made(name).float()
        assert loss(f, CLASSES).item() == pytest.approx(loss(f.float(), CLASSES).item(), rel=1e-5), name


def test_lifted_structure_says_beforehand_what_it_would_take() -> None:
    f, classes = torch.randn(700, 4), torch.arange(700) % 100
    with pytest.raises(UserError, match=r"4,200 positive with 485,100 negative pairs of this batch, .* 51 GB"):
        losses.get("lifted-structure")(f, classes)


def test_pairs_that_nearly_coincide_keep_their_distance_in_float32() -> None:
    """From 26 items on the library's own distance is a matrix product."""
    middle = torch.nn.functional.normalize(points(4, 16)).detach()
    f, classes = middle.repeat(16, 1) + 1e-4 * points(64, 16).detach(), torch.arange(64) // 2 % 8
    rough, exact = f.float().requires_grad_(), f.requires_grad_()
    for name in ("contrastive", "triplet(mining=batch-hard)", "lifted-structure"):
        loss = made(name, classes)
        (found,) = torch.autograd.grad(loss.float()(rough, classes), rough)
        (true,) = torch.autograd.grad(loss.double()(exact, classes), exact)
        assert float((found - true).norm() / true.norm()) < 0.01, name
