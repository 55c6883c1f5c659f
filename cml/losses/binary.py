"""Any pair or triplet loss of pytorch-metric-learning on continuous labels: a rule makes the pairs that it is given.

Past the rule the label distances are gone; this file is here to measure what such losses lose by that.
"""

from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_pairs import PmlPairLoss, pml
from cml.losses.embeddings import points
from cml.losses.loss import About
from cml.losses.pairs import RowMean
from cml.losses.positives import BinaryPairs, RuleLoss, RuleName, with_warning
from cml.registry import Choice

_LIKE = {"losses": "TripletMarginLoss or CircleLoss", "miners": "BatchHardMiner or MultiSimilarityMiner"}
_PARTS = ("distances", "reducers", "regularizers")  # the library's modules that a setting may name something of
Indices = tuple[Tensor, ...]  # (anchors, positives, anchors, negatives), or (anchors, positives, negatives)


class BinaryLoss(RuleLoss):
    """A rule, then a loss of pytorch-metric-learning over the pairs or triplets that the rule makes.

    Written ``binary(loss=multi-similarity, rule=nearest, k=5)``, ``binary(loss=triplet(mining=batch-hard),
    rule=threshold, quantile=0.2)``, or with the library's own names: ``binary(loss=TripletMarginLoss(margin=0.1),
    miner=MultiSimilarityMiner(epsilon=0.2), rule=graph, k=5)``.

    The loss is given the library's ``indices_tuple`` and no labels, so every loss works that can be computed from
    pairs or triplets alone. A miner is shown one anchor at a time, with its positives and negatives as two classes:
    what it picks for an anchor it would pick for two real classes; only a miner that compares anchors with each other
    (HDCMiner) picks otherwise.

    Args:
        loss: A pair or triplet loss of cml (contrastive, triplet, lifted-structure, multi-similarity), which brings its
            miner, or one of the library by its class name.
        rule: "nearest", "graph" or "threshold".
        k: Of "nearest" and "graph". ``None``: 5.
        distance: Of "threshold", in the label's unit.
        quantile: Of "threshold", instead of a distance: this quantile of training pairs, in [0, 1), found by ``fit``.
        miner: A miner of the library by its class name. ``None``: the loss's own, or none.

    Raises:
        UserError: a setting is out of range, unknown, or names a loss that cannot do with pairs.

    Example:
        >>> loss = BinaryLoss("multi-similarity", rule="nearest", k=2)
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
    """

    about = About(
        "that of the loss that it makes pairs for",
        "rules: Hadsell et al., CVPR 2006; Kim et al., CVPR 2019",
        "A baseline: any pair or triplet loss, on continuous labels that a rule makes binary.",
    )

    def __init__(
        self,
        loss: str,
        rule: RuleName = "nearest",
        k: int | None = None,
        distance: float | None = None,
        quantile: float | None = None,
        miner: str | None = None,
    ) -> None:
        super().__init__(rule, k, distance, quantile)
        for name, value in (("loss", loss), ("miner", miner)):
            if not isinstance(value, str | None):
                raise UserError(
                    f"The {name!r} of binary is a text that says how to make it, such as "
                    f"'{type(value).__name__}(..)' with its settings. Got an object instead."
                )
        self.loss = loss
        self.inner = _pair_loss(loss)
        if miner is not None:
            self.inner.miner = made(miner, "miners")
        self.normalize = self.inner.normalize
        _probe(self.inner, loss)

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> RowMean:
        """What the library makes of the pairs, with the triplets of each anchor."""
        counts = pairs.positives.sum(dim=1) * pairs.negatives.sum(dim=1)  # (A,) triplets
        with torch.autocast(embeddings.device.type, enabled=False):
            return with_warning(RowMean(_value(self.inner, points(embeddings, normalize=False), pairs), counts))


def pair_indices(pairs: BinaryPairs) -> Indices:
    """The pairs as the library takes them: anchors and their positives, anchors and their negatives."""
    return (*pairs.positives.nonzero(as_tuple=True), *pairs.negatives.nonzero(as_tuple=True))


def triplet_indices(pairs: BinaryPairs) -> Indices:
    """Every (anchor, positive, negative), sorted, as the library takes triplets; no (B, B, B) tensor on the way."""
    anchor, positive = pairs.positives.nonzero(as_tuple=True)  # (P,)
    pair, negative = pairs.negatives[anchor].nonzero(as_tuple=True)  # (T,)
    return anchor[pair], positive[pair], negative


def mined(miner: nn.Module, embeddings: Tensor, pairs: BinaryPairs) -> Indices:
    """What a miner of the library picks among the pairs (A, B) of embeddings (B, D), shown one anchor at a time."""
    found: list[Indices] = []
    for anchor in range(len(pairs.positives)):
        near, far = (mask[anchor] for mask in pairs)
        if not bool(near.any()) or not bool(far.any()):
            continue
        others = (near | far).nonzero().squeeze(1)  # (O,)
        one = torch.ones(1, dtype=torch.int64, device=embeddings.device)
        picked: Indices = miner(embeddings[anchor : anchor + 1], one, embeddings[others], near[others].long())
        # the 1st of each kind of numbers is the anchor's, in a batch of one; the others count among those shown
        own = (0,) if len(picked) == 3 else (0, 2)
        indices = (ids + anchor if n in own else others[ids.to(others.device)] for n, ids in enumerate(picked))
        found.append(tuple(indices))
    if not found:
        return (torch.empty(0, dtype=torch.int64, device=embeddings.device),) * 4
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _value(inner: PmlPairLoss, embeddings: Tensor, pairs: BinaryPairs) -> Tensor:
    if inner.miner is not None:
        with torch.no_grad():
            indices = mined(inner.miner, embeddings.detach(), pairs)
    elif isinstance(inner.inner, pml("losses").TripletMarginLoss):
        indices = triplet_indices(pairs)  # the library would compare all positive with all negative pairs
    else:
        indices = pair_indices(pairs)
    value: Tensor = inner.inner(embeddings, indices_tuple=indices)
    return value


def _pair_loss(text: str) -> PmlPairLoss:
    from cml.losses import registry

    name = Choice.parse(text).name
    if name not in registry.names():
        return PmlPairLoss(made(text, "losses"))
    loss = registry.make(text)
    if not isinstance(loss, PmlPairLoss) or loss.needs_classes:
        raise UserError(
            f"The loss {name!r} cannot be computed from pairs. A rule takes contrastive, triplet, lifted-structure, "
            "multi-similarity, or a pair or triplet loss of pytorch-metric-learning by its class name."
        )
    return loss


def _probe(inner: PmlPairLoss, text: str) -> None:
    """Try the loss on four points: what it cannot do shows now, not in the middle of a run."""
    points = torch.tensor([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.2, 0.8]])
    same = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=torch.bool)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            _value(inner, points, BinaryPairs(same, ~same & ~torch.eye(4, dtype=torch.bool)))
    except (ValueError, TypeError, AssertionError, NotImplementedError, AttributeError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
        said = f"The loss {text!r} cannot be computed from pairs alone (pytorch-metric-learning: {reason});"
        raise UserError(f"{said} take a pair or triplet loss, such as ContrastiveLoss or TripletMarginLoss.") from None


def made(text: str, module: str) -> nn.Module:
    """Make what ``text`` names among the library's "losses" or "miners", as in ``TripletMarginLoss(margin=0.1)``.

    A setting may name a distance, reducer or regulariser in turn: ``TripletMarginLoss(distance=LpDistance(power=2))``.
    """
    choice = Choice.parse(text)
    kind = _entry(choice.name, module)
    if kind is None:
        said = f"pytorch-metric-learning has no {choice.name!r} among its {module};"
        raise UserError(f"{said} the names read like {_LIKE[module]}.")
    settings = {name: _setting(value) for name, value in choice.settings.items()}
    try:
        thing: nn.Module = kind(**settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"pytorch-metric-learning cannot make {text}: {error}.") from None
    return thing


def _entry(name: str, module: str) -> Any:  # noqa: ANN401 - a class of an untyped library
    found = getattr(pml(module), name, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _setting(value: Any) -> Any:  # noqa: ANN401 - any setting
    try:
        name = Choice.parse(value).name
    except UserError:  # no text, or one that names nothing
        return value
    module = next((module for module in _PARTS if _entry(name, module) is not None), None)
    return value if module is None else made(value, module)
