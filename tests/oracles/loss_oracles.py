"""Every registered loss with the formula that it computes, written slowly, and batches for both."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import slow_class_losses
import slow_losses
import torch
from torch import Tensor

from cml import losses
from cml.losses.binary_rules import nearest
from cml.losses.loss import Loss

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
    "generalised-contrastive": (
        "generalised-contrastive",
        lambda loss, f, y: slow_losses.generalised_contrastive(f, y, None, loss.constant("label_reach")),
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
    "ranked-list": (
        "ranked-list(temperature=0)",  # no weights, which numeric derivatives would not take for constants
        lambda _, f, y: slow_class_losses.ranked_list(unit(f), y.tolist(), 1.2, 0.4, 0.0),
    ),
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
OVER_DISTANCES = [name for name in losses.names() if issubclass(losses.registry.entry(name), losses.LabelDistanceLoss)]
VARIANTS = {  # settings that take another way through a formula
    "log-ratio, published": (
        "log-ratio(label_exponent=1.5, floor_quantile=0, weights=uniform, normalize=false, published_offsets=true)",
        lambda _, f, y: slow_losses.log_ratio(f, y, label_exponent=1.5, published_offsets=True),
    ),
    "log-ratio, no floor": (
        "log-ratio(label_exponent=1.5, floor_quantile=0, rank_offset=0.5, normalize=false)",
        lambda _, f, y: slow_losses.log_ratio(f, y, label_exponent=1.5, weights="rank", rank_offset=0.5),
    ),
    "log-ratio, floor": (
        "log-ratio(floor_quantile=0.3, zero_factor=1.0, weights=uniform)",
        lambda loss, f, y: slow_losses.log_ratio(
            f, y, None, loss.constant("label_exponent"), loss.constant("floor"), normalize=True, zero_factor=1.0
        ),
    ),
    "dense-triplet, not normalised": (
        "dense-triplet(margin=2.0, normalize=false)",
        lambda _, f, y: slow_losses.dense_triplet(f, y, margin=2.0, normalize=False),
    ),
    "rank-n-contrast, normalised": (
        "rank-n-contrast(temperature=0.1, normalize=true)",
        lambda _, f, y: slow_losses.rank_n_contrast(f, y, temperature=0.1, normalize=True),
    ),
    "rank-n-contrast, wide": (
        "rank-n-contrast(temperature=0.001)",
        lambda _, f, y: slow_losses.rank_n_contrast(f, y, temperature=0.001),
    ),
    "rkd-distance, normalised": (
        "rkd-distance(normalize=true)",
        lambda _, f, y: slow_losses.rkd_distance(f, y, normalize=True),
    ),
    "relaxed-contrastive, normalised": (
        "relaxed-contrastive(label_scale=2.0, delta=1.5, normalize=true)",
        lambda _, f, y: slow_losses.relaxed_contrastive(f, y, None, 2.0, sigma=0.5, delta=1.5, normalize=True),
    ),
    "graded-contrastive, not normalised": (
        "graded-contrastive(label_scale=5.0, margin=3.0, normalize=false)",
        lambda _, f, y: slow_losses.graded_contrastive(f, y, None, 5.0, margin=3.0, normalize=False),
    ),
    "generalised-contrastive, inverse ranks": (
        "generalised-contrastive(label_reach=2.5, weights=inverse, temperature=3.0, normalize=false)",
        lambda _, f, y: slow_losses.generalised_contrastive(
            f, y, None, 2.5, "inverse", temperature=3.0, normalize=False
        ),
    ),
    "soft-target, not normalised": (
        "soft-target(label_scale=1.0, label_temperature=2.0, temperature=3.0, normalize=false)",
        lambda _, f, y: slow_losses.soft_target(f, y, None, 2.0, temperature=3.0, normalize=False),
    ),
    "kernel-supcon, wide": (
        "kernel-supcon(label_scale=3.0, bandwidth=1.0, temperature=1.0)",
        lambda _, f, y: slow_losses.kernel_supcon(f, y, None, 3.0, temperature=1.0),
    ),
    "cosent, steep": ("cosent(scale=20.0)", lambda _, f, y: slow_losses.cosent(f, y, scale=20.0)),
    "h-ap, flat": (
        "h-ap(temperature=0.7, neighbors=100, normalize=false)",
        lambda _, f, y: slow_losses.h_ap(f, y, temperature=0.7, neighbors=100, normalize=False),
    ),
    "lambda-ndcg, flat": (
        "lambda-ndcg(temperature=0.7, neighbors=100, normalize=false)",
        lambda _, f, y: slow_losses.lambda_ndcg(f, y, temperature=0.7, neighbors=100, normalize=False),
    ),
}  # fmt: skip


class Batch(NamedTuple):
    """A prepared loss with its oracle, and a batch for it."""

    loss: Loss
    oracle: Oracle
    embeddings: Tensor
    target: Tensor


def make_batch(name: str, dtype: torch.dtype = torch.float64, *, seed: int = 1, items: int = 9) -> Batch:
    """A batch of random items, of which all are anchors, for a registered loss or a variant."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(items, 6, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randn(items, 2, generator=generator, dtype=torch.float64)
    text, oracle = {**CASES, **VARIANTS}[name]
    loss: Loss = losses.get(text, **({"vectors": word_vectors()} if name == "language-guidance" else {}))
    if isinstance(loss, losses.LabelDistanceLoss):
        target = torch.cdist(labels, labels).to(dtype)
        loss.fit(target)
    elif loss.labels == "classes":
        target = torch.arange(items) * 2 % 3
        loss.prepare(target, dimension=6, names=list(WORDS), generator=torch.Generator().manual_seed(3))
    elif loss.labels == "triplets":
        rows = [torch.randperm(items, generator=generator)[:3] for _ in range(5)]
        target = torch.cat([torch.stack(rows), torch.tensor([[1], [2], [1], [3], [1]])], dim=1)
        loss.prepare(target, dimension=6)
    else:
        target = torch.randn(items, 6, generator=generator, dtype=torch.float64).to(dtype)
        loss.prepare(target, dimension=6)
    return Batch(loss.to(dtype), oracle, embeddings, target)


def word_vectors() -> str:
    """The path of a file of word vectors for the names of the classes."""
    path = Path(tempfile.gettempdir()) / "cml-loss-oracles-words.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in WORDS.items()))
    return str(path)
