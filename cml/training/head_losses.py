"""The losses of many heads on the same features, evaluated together where they differ in numbers only.

The heads share a batch, so what depends on its label distances alone is computed once. The formula is the one of a
single head: each setting that differs becomes a tensor (H, 1, 1), with one number per head. Closed forms are written
for it (log-ratio, pair-log-ratio, H-AP), and plain formulas broadcast.
"""

import copy
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import Loss, setting_names
from cml.losses.sum import SumLoss


class HeadLosses:
    """The losses of H heads, which are evaluated together where they differ in numbers only."""

    def __init__(self, losses: Sequence[Loss | str]) -> None:
        self.losses = list(losses)
        # why the training of each head failed, or ""
        self.failed = [loss if isinstance(loss, str) else "" for loss in losses]
        self._groups: list[tuple[list[int], Loss]] = []
        self._grouped_for: list[str] | None = None  # ``failed`` when the groups were made

    def slopes(
        self,
        embeddings: Tensor,  # (H, B, D)
        label_distances: Tensor,  # (A, B)
        vectors: Tensor | None,  # (B, V), for losses over vectors
    ) -> Tensor:  # (H, B, D), 0 for heads that have failed
        """The slopes of each head's loss in its embeddings; heads whose loss fails are noted in ``failed``."""
        embeddings.requires_grad_()
        total = embeddings.new_zeros(())
        for heads, loss in self._groups_of_working_heads():
            for head, value in zip(heads, self._values(heads, loss, embeddings, label_distances, vectors), strict=True):
                if value is None:
                    continue
                if bool(value.isfinite()):
                    total = total + value
                else:
                    self.failed[head] = f"its loss became {value.item():g}"
        if not total.requires_grad:
            return torch.zeros_like(embeddings)
        lost = torch.tensor([bool(reason) for reason in self.failed])
        return torch.autograd.grad(total, embeddings)[0].masked_fill(lost[:, None, None], 0)

    def _values(
        self, heads: list[int], loss: Loss, embeddings: Tensor, label_distances: Tensor, vectors: Tensor | None
    ) -> list[Tensor | None]:
        """The value of each head of a group; None where it fails."""
        target = vectors if loss.labels == "vectors" else label_distances
        if len(heads) > 1:
            chosen = embeddings if len(heads) == len(embeddings) else embeddings[heads]
            try:
                values: Tensor = loss(chosen, target)
            except UserError:  # of one head; find out which
                alone = [self._values([head], self._loss(head), embeddings, label_distances, vectors) for head in heads]
                return [value for one_head in alone for value in one_head]
            return [*values]
        try:
            return [loss(embeddings[heads[0]], target)]
        except UserError as error:  # embeddings that it cannot take
            self.failed[heads[0]] = str(error)
            return [None]

    def _groups_of_working_heads(self) -> list[tuple[list[int], Loss]]:
        if self._grouped_for != self.failed:
            self._grouped_for = list(self.failed)
            by_key: dict[Hashable, list[int]] = defaultdict(list)
            for head, reason in enumerate(self.failed):
                if not reason:
                    key = stack_key(self._loss(head))
                    by_key[head if key is None else key].append(head)
            self._groups = [(heads, self._group_loss(heads)) for heads in by_key.values()]
        return self._groups

    def _group_loss(self, heads: list[int]) -> Loss:
        return self._loss(heads[0]) if len(heads) == 1 else stack_heads([self._loss(head) for head in heads])

    def _loss(self, head: int) -> Loss:
        loss = self.losses[head]
        assert isinstance(loss, Loss)
        return loss


def stack_key(loss: Loss) -> Hashable | None:
    """What fitted losses must have in common to be stacked; None if the loss takes one head at a time.

    It is the same for losses that differ in numbers only. A number that is 0 turns part of a formula off, so it must be
    0 for all of them; and whole numbers count things, so they must be equal.
    """
    if isinstance(loss, SumLoss):
        keys = tuple(stack_key(part) for part in loss.part_losses())
        return None if None in keys else (SumLoss, keys)
    if not isinstance(loss, LabelDistanceLoss) or not loss.takes_heads:
        return None
    settings = {name: getattr(loss, name) for name in _stacked_names(loss)}
    words = tuple((name, value if not _is_number(value) else value == 0) for name, value in settings.items())
    return type(loss), words


def stack_heads(losses: Sequence[Loss]) -> LabelDistanceLoss:
    """One loss for H fitted losses of one ``stack_key``: of embeddings (H, B, D), it gives the values (H,)."""
    stacked = copy.deepcopy(losses[0])
    assert isinstance(stacked, LabelDistanceLoss)
    heads: Any = losses  # of the type of ``stacked``
    if isinstance(stacked, SumLoss):
        parts_of_heads = zip(*(head.part_losses() for head in heads), strict=True)
        stacked.terms = torch.nn.ModuleList([stack_heads(parts) for parts in parts_of_heads])
        weights: Any = [torch.tensor(column) for column in zip(*(head.weights for head in heads), strict=True)]
        stacked.weights = weights  # (H,) each
        return stacked
    for name in _stacked_names(stacked):
        values = [head.constant(name) if name in stacked.constant_names else getattr(head, name) for head in heads]
        if any(value != values[0] for value in values):
            setattr(stacked, name, torch.tensor(values, dtype=torch.float32)[:, None, None])
    return stacked


def _stacked_names(loss: LabelDistanceLoss) -> list[str]:
    """The settings, and the constants that are attributes."""
    return [*dict.fromkeys([*setting_names(loss), *loss.constant_names])]


def _is_number(value: object) -> bool:
    return isinstance(value, float)
