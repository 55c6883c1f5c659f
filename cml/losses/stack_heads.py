"""One loss for many heads: losses of one kind that differ in numbers only, on embeddings (H, B, D).

The heads share a batch, so what depends on its label distances alone is computed once. The formula is the one of a
single head: each setting that differs becomes a tensor (H, 1, 1), with one number per head.
"""

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import Loss, setting_names
from cml.losses.sum import SumLoss


def stack_key(loss: Loss) -> Hashable | None:
    """What losses must have in common to be stacked.

    Args:
        loss: A fitted loss.

    Returns:
        The same for losses that differ in numbers only; None if the loss takes one head at a time. A number that is 0
        turns part of a formula off, so it must be 0 for all of them.
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
    """One loss for the H heads of several losses.

    Args:
        losses: H fitted losses of one ``stack_key``.

    Returns:
        A loss that takes embeddings (H, B, D) and label distances (A, B), and gives the values (H,).
    """
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
    return isinstance(value, int | float) and not isinstance(value, bool)
