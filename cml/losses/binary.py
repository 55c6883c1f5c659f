"""Any pair or triplet loss of pytorch-metric-learning on continuous labels: a rule makes the pairs that it is given.

Behind the rule the label distances are gone, which is what such losses lose by; this file is here to measure by how
much. ``binary-triplet`` is the one to take for triplets of large batches, as it holds no tensor of triplets.
"""

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.anchor_blocks import AnchorMean
from cml.losses.binary_rules import BinaryPairs, RuleLoss, RuleName
from cml.losses.loss import LossInfo
from cml.losses.pairs import check_matrix, embedding_points
from cml.losses.pml import PmlPairLoss, build_module, pml
from cml.processes.own_generator import draw_from
from cml.registry import Choice

Indices = tuple[Tensor, ...]  # (anchors, positives, anchors, negatives), or (anchors, positives, negatives)


class BinaryLoss(RuleLoss):
    """A loss of pytorch-metric-learning over the pairs or triplets that a rule makes of label distances.

    Written ``binary(loss=multi-similarity, rule=nearest, k=5)``, ``binary(loss=triplet(mining=batch-hard),
    rule=threshold, quantile=0.2)``, or with the library's own names: ``binary(loss=TripletMarginLoss(margin=0.1),
    miner=MultiSimilarityMiner(epsilon=0.2), rule=graph, k=5)``.

    The loss is given the library's ``indices_tuple`` and no labels, so every loss works that can be computed from
    pairs or triplets alone. A miner is shown one anchor at a time, with its positives and negatives as two classes. It
    picks what it would pick for two real classes; only a miner that compares anchors with each other (HDCMiner) picks
    otherwise.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``binary-triplet`` is the mean over all triplets of a rule, without a tensor of triplets.

    Args:
        loss: A pair or triplet loss of cml (contrastive, triplet, lifted-structure, multi-similarity), which brings its
            miner, or one of the library by its class name.
        rule: "nearest", "graph" or "threshold".
        k: For "nearest" and "graph": the number of neighbours, at least 1. ``None``: 5.
        distance: For "threshold": the largest label distance of a positive, in the label's unit, at least 0.
        quantile: For "threshold", in place of a distance: this quantile of the label distances of training pairs, in
            [0, 1). ``fit`` finds it.
        miner: A miner of the library by its class name. ``None``: the loss's own, or none.

    Raises:
        UserError: a setting is out of range, unknown, or names a loss that cannot be computed from pairs.

    Example:
        >>> import torch
        >>> loss = BinaryLoss("multi-similarity", rule="nearest", k=2)
        >>> ages = torch.rand(8, 1)
        >>> loss(torch.randn(8, 4), torch.cdist(ages, ages)).shape
        torch.Size([])
    """

    info = LossInfo(
        cost="that of the loss that it makes pairs for",
        source="rules: Hadsell et al., CVPR 2006; Kim et al., CVPR 2019",
        when="A baseline: any pair or triplet loss, on continuous labels that a rule makes binary.",
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
        for name, value in (("loss", loss), ("miner", miner)):
            if not isinstance(value, str | None):
                raise UserError(
                    f"The {name!r} of binary is a text that names it, such as "
                    f"'{type(value).__name__}(...)' with its settings. Got an object instead."
                )
        inner = _pair_loss(loss)
        super().__init__(rule, k, distance, quantile)
        self.loss = loss
        self.inner = inner
        if miner is not None:
            self.inner.miner = build_module(miner, "miners")
        self.normalize = self.inner.normalize
        _probe(self.inner, loss)

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> AnchorMean:
        """The library's value of the pairs, with the number of triplets of each anchor."""
        check_matrix("embeddings", embeddings)
        counts = pairs.positives.sum(dim=1) * pairs.negatives.sum(dim=1)  # (A,) triplets
        with torch.autocast(embeddings.device.type, enabled=False):
            loss = _value(self.inner, embedding_points(embeddings, normalize=False), pairs)
        return AnchorMean(loss, counts)


def pair_indices(pairs: BinaryPairs) -> Indices:
    """The pairs as the library takes them: anchors and their positives (P,), anchors and their negatives (N,)."""
    return (*pairs.positives.nonzero(as_tuple=True), *pairs.negatives.nonzero(as_tuple=True))


def triplet_indices(pairs: BinaryPairs) -> Indices:
    """Every triplet (T,), sorted, as the library takes triplets. No (B, B, B) tensor is made."""
    anchor, positive = pairs.positives.nonzero(as_tuple=True)  # (P,)
    pair, negative = pairs.negatives[anchor].nonzero(as_tuple=True)  # (T,)
    return anchor[pair], positive[pair], negative


def mine_pairs(miner: nn.Module, embeddings: Tensor, pairs: BinaryPairs) -> Indices:
    """Pick pairs or triplets of a batch (B, D) by a miner of the library, which is shown one anchor at a time.

    They are item numbers as the library takes them: of pairs if the miner picks pairs or nothing, else of triplets.
    """
    picked_per_anchor: list[Indices] = []
    own_class = torch.ones(1, dtype=torch.int64, device=embeddings.device)
    for anchor in range(len(pairs.positives)):
        near, far = pairs.positives[anchor], pairs.negatives[anchor]
        if not bool(near.any()) or not bool(far.any()):
            continue
        others = (near | far).nonzero().squeeze(1)  # (O,)
        picked: Indices = miner(embeddings[anchor : anchor + 1], own_class, embeddings[others], near[others].long())
        # the 1st of each kind of numbers is the anchor's, in a batch of one; the others count among those shown
        anchor_places = (0,) if len(picked) == 3 else (0, 2)
        indices = (
            numbers + anchor if place in anchor_places else others[numbers.to(others.device)]
            for place, numbers in enumerate(picked)
        )
        picked_per_anchor.append(tuple(indices))
    if not picked_per_anchor:
        return (torch.empty(0, dtype=torch.int64, device=embeddings.device),) * 4
    return tuple(torch.cat(parts) for parts in zip(*picked_per_anchor, strict=True))


def _value(inner: PmlPairLoss, embeddings: Tensor, pairs: BinaryPairs) -> Tensor:
    if inner.miner is not None:
        with torch.no_grad():
            indices = mine_pairs(inner.miner, embeddings.detach(), pairs)
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
        return PmlPairLoss(build_module(text, "losses"))
    loss = registry.make(text)
    if not isinstance(loss, PmlPairLoss) or loss.needs_classes:
        raise UserError(
            f"The loss {name!r} cannot be computed from pairs. A rule takes contrastive, triplet, lifted-structure, "
            "multi-similarity, or a pair or triplet loss of pytorch-metric-learning by its class name."
        )
    return loss


def _probe(inner: PmlPairLoss, text: str) -> None:
    """Try the loss on four points, so that it fails here and not in the middle of a run."""
    points = torch.tensor([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.2, 0.8]])
    same = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=torch.bool)
    try:
        with torch.no_grad(), draw_from(torch.Generator()):
            _value(inner, points, BinaryPairs(same, ~same & ~torch.eye(4, dtype=torch.bool)))
    except (ValueError, TypeError, AssertionError, NotImplementedError, AttributeError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
        raise UserError(
            f"The loss {text!r} cannot be computed from pairs alone (pytorch-metric-learning: {reason}); "
            "take a pair or triplet loss, such as ContrastiveLoss or TripletMarginLoss."
        ) from None
