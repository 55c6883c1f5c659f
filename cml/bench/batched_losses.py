"""Losses of ``cml.losses`` of many heads on one batch: what depends on labels alone once, on embeddings for all."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.cosent import CoSENTLoss
from cml.losses.kernel_supcon import KernelSupConLoss
from cml.losses.log_ratio import LogRatioLoss
from cml.losses.loss import Loss
from cml.losses.pairs import comparable
from cml.losses.rank_n_contrast import RankNContrastLoss
from cml.losses.rkd_distance import RKDDistanceLoss
from cml.losses.row_order import ascending_rows, rank_weights, tie_runs
from cml.losses.soft_target import SoftTargetLoss
from cml.losses.weighted_sum import SumLoss


class Batch:
    """Embeddings of H heads (H, B, D) and the label distances (B, B) that they share."""

    def __init__(self, embeddings: Tensor, labels: Tensor) -> None:
        points = embeddings.double()  # so that near points keep their digits
        points = points - points.mean(dim=1, keepdim=True)
        norms = points.square().sum(dim=2)
        self.points, self.labels = embeddings, labels
        squared = torch.baddbmm(norms[:, :, None] + norms[:, None, :], points, points.transpose(1, 2), alpha=-2)
        self.used = comparable(labels)  # (B, B)
        self.squared = squared.clamp(min=0).where(self.used, 0).float()  # (H, B, B)

    @property
    def distances(self) -> Tensor:
        """Euclidean, (H, B, B), with slope 0 at distance 0."""
        apart = self.squared > 0
        return self.squared.where(apart, 1).sqrt().where(apart, 0)


def batched(losses: Sequence[Loss]) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The values (H,) of H losses of one kind, by embeddings (H, B, D) and label distances (B, B); None of others."""
    parts = {tuple(map(type, one.losses())) if isinstance(one, SumLoss) else (type(one),) for one in losses}
    if len(parts) > 1 or any(kind not in _FORMS for kind in next(iter(parts))):
        return None
    form = _sum if isinstance(losses[0], SumLoss) else _FORMS[type(losses[0])]
    return lambda embeddings, labels: form(losses, Batch(embeddings, labels))


def _each(losses: Sequence[Loss], value: Callable[[Any], float]) -> Tensor:
    """A setting of every head, (H, 1, 1)."""
    return torch.tensor([float(value(one)) for one in losses])[:, None, None]


def _log_ratio(losses: Sequence[Any], batch: Batch) -> Tensor:
    exponents = _each(
        losses, lambda one: one.constant("label_exponent") if one.label_exponent == "auto" else one.label_exponent
    )
    floors = _each(losses, lambda one: one.constant("floor") if one.floor_quantile > 0 else 0.0)
    offsets = _each(losses, lambda one: one.rank_offset)
    ranked = _each(losses, lambda one: one.weights == "rank") > 0
    used = batch.used & ((floors > 0) | (batch.labels > 0))  # (H, B, B)
    counted = {zero: batch.used & ((batch.labels > 0) | zero) for zero in (True, False)}
    # the place of each column in its row, from 0, ties sharing their mean; (B, B)
    places = {zero: rank_weights(batch.labels, some, 1.0).clamp_min(1e-9) for zero, some in counted.items()}
    ranks = torch.where(floors > 0, places[True], places[False]).reciprocal() - 1
    weight = torch.where(ranked, 1 / (ranks + offsets), 1.0).where(used, 0)
    limits = torch.finfo(torch.float32)
    total = weight.sum(dim=2)  # (H, B)
    pairs = total.square() - weight.square().sum(dim=2)
    counts = pairs > 0
    scale = 2 * counts * total / pairs.clamp_min(limits.tiny)
    raised = torch.maximum(batch.labels, floors).clamp(limits.tiny * limits.eps, limits.max)
    residual = (batch.squared + _each(losses, lambda one: one.eps)).log() - exponents * raised.log()
    mean = (weight * residual).sum(dim=2) / total.clamp_min(limits.tiny)
    values = scale * (weight * (residual - mean[:, :, None]).square()).sum(dim=2)
    return values.sum(dim=1) / counts.sum(dim=1).clamp(min=1)


def _rkd(losses: Sequence[Any], batch: Batch) -> Tensor:
    pairs = batch.used.sum()
    labels = batch.labels.where(batch.used, 0)
    if pairs < 2 or labels.amax() == 0:
        return batch.squared.sum(dim=(1, 2)) * 0
    wanted = labels / (labels.sum() / pairs)
    distances = batch.distances
    mean = distances.sum(dim=(1, 2), keepdim=True) / pairs
    found = distances / mean.clamp(min=torch.finfo(mean.dtype).tiny)
    terms = functional.smooth_l1_loss(found, wanted.expand_as(found), reduction="none")
    return terms.where(batch.used, 0).sum(dim=(1, 2)) / pairs


def _row_cross_entropy(batch: Batch, log_weights: Tensor, temperatures: Tensor) -> Tensor:
    counts = batch.used.sum(dim=1) >= 2  # (B,)
    wanted = log_weights.masked_fill(~batch.used, -torch.inf).softmax(dim=2)
    shares = (batch.squared / -temperatures).masked_fill(~batch.used, -torch.inf).log_softmax(dim=2)
    terms = (wanted * shares.where(batch.used, 0)).where(batch.used & counts[:, None], 0)
    return -terms.sum(dim=(1, 2)) / counts.sum().clamp(min=1)


def _nearest(batch: Batch) -> tuple[Tensor, Tensor]:
    """Label distances, and that of the nearest of each row, (B, 1)."""
    labels = batch.labels.masked_fill(~batch.used, torch.inf)
    nearest = labels.amin(dim=1, keepdim=True).clamp(max=torch.finfo(labels.dtype).max)
    return batch.labels.where(batch.used, 0), nearest


def _soft_target(losses: Sequence[Any], batch: Batch) -> Tensor:
    labels, nearest = _nearest(batch)
    spread = _each(losses, lambda one: one.label_temperature * one.scale())
    return _row_cross_entropy(batch, (nearest - labels) / spread, _each(losses, lambda one: one.temperature))


def _kernel_supcon(losses: Sequence[Any], batch: Batch) -> Tensor:
    labels, nearest = _nearest(batch)
    bandwidth = _each(losses, lambda one: one.bandwidth * one.scale())
    log_weights = (nearest - labels) / bandwidth * ((labels / 2 + nearest / 2) / bandwidth)
    return _row_cross_entropy(batch, log_weights, _each(losses, lambda one: 2 * one.temperature))


def _rank_n_contrast(losses: Sequence[Any], batch: Batch) -> Tensor:
    number = batch.used.sum(dim=1)
    in_order, columns = ascending_rows(batch.labels.masked_fill(~batch.used, torch.inf))
    counted = in_order < torch.inf  # (B, B)
    scores = (batch.distances / -_each(losses, lambda one: one.temperature)).gather(2, columns.expand_as(batch.squared))
    scores = scores.double().masked_fill(~counted, -torch.inf)
    log_sums = scores.flip(2).logcumsumexp(2).flip(2)
    if (runs := tie_runs(in_order)) is not None:
        log_sums = log_sums.gather(2, runs[0].expand_as(log_sums))
    counts = torch.where(number >= 2, number, 0)
    taken = counted & (counts > 0)[:, None]
    terms = log_sums.where(taken, 0) - scores.where(taken, 0)
    return (terms.sum(dim=(1, 2)) / counts.sum().clamp(min=1)).float()


def _cosent(losses: Sequence[Any], batch: Batch) -> Tensor:
    once = batch.used.triu(1)
    labels, columns = ascending_rows(batch.labels[once][None])  # (1, P)
    cosines = (batch.points @ batch.points.transpose(1, 2))[:, once]  # (H, P)
    exponents = (_each(losses, lambda one: one.scale)[:, 0].double() * cosines.double()).gather(
        1, columns.expand_as(cosines)
    )
    farther = functional.pad(exponents.exp().flip(1).cumsum(1), (1, 0)).flip(1)
    runs = tie_runs(labels)
    farther = farther[:, 1:] if runs is None else farther.gather(1, (runs[1] + 1).expand_as(exponents))
    return (exponents.neg().exp() * farther).sum(dim=1).log1p().float()


def _sum(losses: Sequence[Any], batch: Batch) -> Tensor:
    parts = zip(*(one.losses() for one in losses), strict=True)
    weights = torch.tensor([one.weights for one in losses])  # (H, parts)
    return sum(
        (weights[:, place] * _FORMS[type(some[0])](some, batch) for place, some in enumerate(parts)),
        torch.zeros(len(losses)),
    )


_FORMS: dict[type, Callable[[Sequence[Any], Batch], Tensor]] = {
    LogRatioLoss: _log_ratio,
    RKDDistanceLoss: _rkd,
    SoftTargetLoss: _soft_target,
    KernelSupConLoss: _kernel_supcon,
    RankNContrastLoss: _rank_n_contrast,
    CoSENTLoss: _cosent,
}
