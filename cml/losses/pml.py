"""Losses and miners of pytorch-metric-learning, called as they are.

The library is imported where one of its losses is made. Those that have a name in cml have a file each, whose class
maps cml's settings to the library's and says where it differs from the paper. A rule for continuous labels
(``binary.py``) takes any of them by the library's own names. The library decides by numbers what it computes, so its
losses wait for a GPU, and ``torch.compile`` breaks their graph.
"""

import functools
import importlib
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.pairs import embedding_points, is_transformed, rescale_rows
from cml.losses.proxy_loss import ProxyLoss
from cml.losses.squared_distances import plain_distances
from cml.registry import Choice
from cml.settings import check_flag

_EXAMPLES = {"losses": "TripletMarginLoss or CircleLoss", "miners": "BatchHardMiner or MultiSimilarityMiner"}
_PARTS = ("distances", "reducers", "regularizers")  # the library's modules that a setting may name something of


class PmlPairLoss(ClassLoss):
    """A loss over pairs or triplets of pytorch-metric-learning, with one of its miners or without."""

    needs_classes = False

    def __init__(self, inner: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.miner = miner
        self.normalize = bool(getattr(getattr(inner, "distance", None), "normalize_embeddings", False))

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The library's value of a batch (B, D), (B,)."""
        check_classes(embeddings, classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = rescale_rows(embeddings) if self.normalize else embedding_points(embeddings, normalize=False)
            indices = None if self.miner is None else self.miner(points.detach(), classes)
            value: Tensor = self.inner(points, classes, indices)
        return value


class PmlProxyLoss(ProxyLoss):
    """A loss over proxies of pytorch-metric-learning, which ``prepare`` makes."""

    def __init__(self, library: str, **settings: float | nn.Module) -> None:
        super().__init__()
        self.inner: Any = None
        self._library, self._settings, self._count = library, settings, 0

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the library's loss, which makes its proxies."""
        kind = getattr(pml("losses"), self._library)
        self.inner, self._count = kind(classes, dimension, **self._settings), classes

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        self.check_prepared()
        check_classes(embeddings, classes, self._count)
        with torch.autocast(embeddings.device.type, enabled=False):
            value: Tensor = self.inner(rescale_rows(embeddings), classes)
        return value


def pml(module: str) -> Any:  # noqa: ANN401 - of an untyped library
    """Import a module of pytorch-metric-learning, such as "losses"."""
    return importlib.import_module(f"pytorch_metric_learning.{module}")


def lp_distance(normalize: bool, power: int = 1, *, exact: bool = True) -> nn.Module:
    """The library's Euclidean distance (``power`` 2: squared), which transforms of ``torch.func`` may follow.

    ``exact`` computes it from differences: the library's own matrix product is noise where embeddings nearly coincide.
    """
    normalize = check_flag("normalize", normalize)
    mode = "donot_use_mm_for_euclid_dist" if exact else "use_mm_for_euclid_dist_if_necessary"

    class LpDistance(pml("distances").LpDistance):  # type: ignore[misc]
        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor | None) -> Tensor:
            others = query_emb if ref_emb is None else ref_emb
            # cdist has no forward derivative
            if is_transformed(query_emb) or is_transformed(others) or not _has_second_derivative():
                return plain_distances((query_emb[:, None] - others).square().sum(dim=2))
            return torch.cdist(query_emb, others, compute_mode=mode)

    distance: nn.Module = LpDistance(normalize_embeddings=normalize, power=power)
    return distance


@functools.cache
def _has_second_derivative() -> bool:
    """Whether torch differentiates ``cdist`` twice, as 2.4 does not."""
    point = torch.ones(1, 1, requires_grad=True)
    with torch.enable_grad():
        try:
            (slope,) = torch.autograd.grad(torch.cdist(point, 2 * point), point, create_graph=True)
            torch.autograd.grad(slope, point)
        except NotImplementedError:
            return False
    return True


def build_module(text: str, module: str) -> nn.Module:
    """Build one of the library's "losses" or "miners" from text, as in ``TripletMarginLoss(margin=0.1)``.

    A setting may name a distance, reducer or regularizer in turn: ``TripletMarginLoss(distance=LpDistance(power=2))``.
    """
    choice = Choice.parse(text)
    kind = _find_class(choice.name, module)
    if kind is None:
        raise UserError(
            f"pytorch-metric-learning has no {choice.name!r} among its {module}; "
            f"the names read like {_EXAMPLES.get(module, 'LpDistance')}."
        )
    settings = {name: _build_setting(value) for name, value in choice.settings.items()}
    try:
        built: nn.Module = kind(**settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"pytorch-metric-learning cannot make {text}: {error}.") from None
    return built


def _find_class(name: str, module: str) -> Any:  # noqa: ANN401 - a class of an untyped library
    kind = getattr(pml(module), name, None)
    return kind if isinstance(kind, type) and issubclass(kind, nn.Module) else None


def _build_setting(value: Any) -> Any:  # noqa: ANN401 - any setting
    """The object that a setting names, or the setting as it is."""
    try:
        name = Choice.parse(value).name
    except UserError:  # no text, or one that names nothing
        return value
    module = next((module for module in _PARTS if _find_class(name, module) is not None), None)
    return value if module is None else build_module(value, module)
