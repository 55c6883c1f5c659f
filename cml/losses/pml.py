"""Losses and miners of pytorch-metric-learning, called as they are.

The library is imported where one of them is made. Not for: what a loss means (class_pairs.py, class_proxies.py), nor
rules that make pairs of continuous labels (binary.py).
"""

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.embeddings import points, rescaled
from cml.registry import Choice

_LIKE = {"losses": "TripletMarginLoss or CircleLoss", "miners": "BatchHardMiner or MultiSimilarityMiner"}
_PARTS = ("distances", "reducers", "regularizers")  # the library's modules that a setting may name something of


class PmlPairLoss(ClassLoss):
    """A loss over pairs or triplets of pytorch-metric-learning, with a miner or without.

    Attributes:
        inner: The library's loss.
        miner: The library's miner, or None.
        needs_classes: True if the library cannot compute it from pairs alone.
    """

    needs_classes = False

    def __init__(self, inner: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.miner = miner
        self.normalize = bool(getattr(getattr(inner, "distance", None), "normalize_embeddings", False))

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        check_classes(embeddings, classes)
        self.count_classes(classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            full = rescaled(embeddings) if self.normalize else points(embeddings, normalize=False)
            mined = None if self.miner is None else self.miner(full.detach(), classes)
            value: Tensor = self.inner(full, classes, mined)
        return value


def made(text: str, module: str) -> nn.Module:
    """Make what ``text`` names among the library's "losses" or "miners", as in ``TripletMarginLoss(margin=0.1)``.

    A setting may name a distance, reducer or regulariser in turn: ``TripletMarginLoss(distance=LpDistance(power=2))``.

    Raises:
        UserError: there is no such class, or it cannot be made with these settings.
    """
    choice = Choice.parse(text)
    kind = _entry(choice.name, module)
    if kind is None:
        raise UserError(
            f"pytorch-metric-learning has no {choice.name!r} among its {module}; the names read like {_LIKE[module]}."
        )
    settings = {name: _setting(value) for name, value in choice.settings.items()}
    try:
        thing: nn.Module = kind(**settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"pytorch-metric-learning cannot make {text}: {error}.") from None
    return thing


def lp_distance(normalize: bool, power: int = 1) -> nn.Module:
    """The library's Euclidean distance by differences: its matrix product is noise where embeddings nearly coincide.

    ``power`` is 2 for squared distances.
    """
    from pytorch_metric_learning.distances import LpDistance

    class ExactLpDistance(LpDistance):  # type: ignore[misc]
        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor | None) -> Tensor:
            others = query_emb if ref_emb is None else ref_emb
            return torch.cdist(query_emb, others, compute_mode="donot_use_mm_for_euclid_dist")

    made: nn.Module = ExactLpDistance(normalize_embeddings=normalize, power=power)
    return made


def _entry(name: str, module: str) -> Any:  # noqa: ANN401 - a class of an untyped library
    found = getattr(importlib.import_module(f"pytorch_metric_learning.{module}"), name, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _setting(value: Any) -> Any:  # noqa: ANN401 - any setting
    if not isinstance(value, str):
        return value
    try:
        name = Choice.parse(value).name
    except UserError:
        return value
    for module in _PARTS:
        if _entry(name, module) is not None:
            return made(value, module)
    return value
