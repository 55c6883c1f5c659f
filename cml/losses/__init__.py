"""Losses, by class and by name: ``LogRatioLoss()``, ``get("log-ratio")``.

``get`` reads the same text as the command line: ``cml.losses.get("log-ratio(weights=uniform)")``. In a loop of your own
a loss over label distances is a module like any other; ``fit`` finds its constants in the training set:

    >>> from cml import distances, losses
    >>> ages = [31, 35, 60, 18, 44]
    >>> distance = distances.get("euclidean")
    >>> loss = losses.LogRatioLoss().fit(distance, ages)

Every loss may be differentiated any number of times. Those in plain torch compile without a graph break; five have a
gradient in closed form (``cml.losses.closed_form``).

A loss with proxies needs ``prepare(classes, dimension=D)`` instead, with the class numbers (N,) of the training items,
before the optimiser is made that shall hold its parameters. Every name here is imported lazily.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cml.errors import did_you_mean
from cml.registry import Registry

if TYPE_CHECKING:
    from cml.losses.binary import BinaryLoss
    from cml.losses.binary_triplet import BinaryTripletLoss
    from cml.losses.class_loss import ClassLoss
    from cml.losses.contrastive import ContrastiveLoss
    from cml.losses.cosent import CoSENTLoss
    from cml.losses.cross_batch_memory import CrossBatchMemory, mask_duplicates
    from cml.losses.dense_triplet import DenseTripletLoss
    from cml.losses.direction_multi_similarity import DirectionMultiSimilarityLoss
    from cml.losses.direction_proxy_nca import DirectionProxyNCALoss
    from cml.losses.direction_triplet import DirectionTripletLoss
    from cml.losses.generalised_contrastive import GeneralisedContrastiveLoss
    from cml.losses.graded_contrastive import GradedContrastiveLoss
    from cml.losses.h_ap import HAPLoss
    from cml.losses.kernel_supcon import KernelSupConLoss
    from cml.losses.label_distance_loss import LabelDistanceLoss
    from cml.losses.lambda_ndcg import LambdaNDCGLoss
    from cml.losses.language_guidance import LanguageGuidanceLoss
    from cml.losses.lifted_structure import LiftedStructureLoss
    from cml.losses.log_ratio import LogRatioLoss
    from cml.losses.logistic_triplet import LogisticTripletLoss
    from cml.losses.loss import LabelSource, Loss, LossInfo, VectorLoss
    from cml.losses.matryoshka import MatryoshkaLoss
    from cml.losses.multi_similarity import MultiSimilarityLoss
    from cml.losses.n_pair import NPairLoss
    from cml.losses.pair_log_ratio import PairLogRatioLoss
    from cml.losses.proxy_anchor import ProxyAnchorLoss
    from cml.losses.proxy_gml import ProxyGMLLoss
    from cml.losses.proxy_loss import ProxyLoss
    from cml.losses.proxy_nca import ProxyNCALoss
    from cml.losses.proxy_nca_pp import ProxyNCAPlusPlusLoss
    from cml.losses.rank_n_contrast import RankNContrastLoss
    from cml.losses.ranked_list import RankedListLoss
    from cml.losses.regression import RegressionLoss
    from cml.losses.relaxed_contrastive import RelaxedContrastiveLoss
    from cml.losses.rkd_distance import RKDDistanceLoss
    from cml.losses.soft_target import SoftTargetLoss
    from cml.losses.soft_triple import SoftTripleLoss
    from cml.losses.sum import SumLoss
    from cml.losses.triplet import TripletLoss

_ENTRIES = {
    "log-ratio": "cml.losses.log_ratio:LogRatioLoss",
    "pair-log-ratio": "cml.losses.pair_log_ratio:PairLogRatioLoss",
    "dense-triplet": "cml.losses.dense_triplet:DenseTripletLoss",
    "binary-triplet": "cml.losses.binary_triplet:BinaryTripletLoss",
    "binary": "cml.losses.binary:BinaryLoss",
    "contrastive": "cml.losses.contrastive:ContrastiveLoss",
    "triplet": "cml.losses.triplet:TripletLoss",
    "n-pair": "cml.losses.n_pair:NPairLoss",
    "lifted-structure": "cml.losses.lifted_structure:LiftedStructureLoss",
    "ranked-list": "cml.losses.ranked_list:RankedListLoss",
    "multi-similarity": "cml.losses.multi_similarity:MultiSimilarityLoss",
    "proxy-nca": "cml.losses.proxy_nca:ProxyNCALoss",
    "soft-triple": "cml.losses.soft_triple:SoftTripleLoss",
    "proxy-anchor": "cml.losses.proxy_anchor:ProxyAnchorLoss",
    "proxy-nca-pp": "cml.losses.proxy_nca_pp:ProxyNCAPlusPlusLoss",
    "proxy-gml": "cml.losses.proxy_gml:ProxyGMLLoss",
    "direction-triplet": "cml.losses.direction_triplet:DirectionTripletLoss",
    "direction-multi-similarity": "cml.losses.direction_multi_similarity:DirectionMultiSimilarityLoss",
    "direction-proxy-nca": "cml.losses.direction_proxy_nca:DirectionProxyNCALoss",
    "language-guidance": "cml.losses.language_guidance:LanguageGuidanceLoss",
    "rank-n-contrast": "cml.losses.rank_n_contrast:RankNContrastLoss",
    "rkd-distance": "cml.losses.rkd_distance:RKDDistanceLoss",
    "relaxed-contrastive": "cml.losses.relaxed_contrastive:RelaxedContrastiveLoss",
    "graded-contrastive": "cml.losses.graded_contrastive:GradedContrastiveLoss",
    "generalised-contrastive": "cml.losses.generalised_contrastive:GeneralisedContrastiveLoss",
    "soft-target": "cml.losses.soft_target:SoftTargetLoss",
    "kernel-supcon": "cml.losses.kernel_supcon:KernelSupConLoss",
    "cosent": "cml.losses.cosent:CoSENTLoss",
    "h-ap": "cml.losses.h_ap:HAPLoss",
    "lambda-ndcg": "cml.losses.lambda_ndcg:LambdaNDCGLoss",
    "sum": "cml.losses.sum:SumLoss",
    "matryoshka": "cml.losses.matryoshka:MatryoshkaLoss",
    "logistic-triplet": "cml.losses.logistic_triplet:LogisticTripletLoss",
    "regression": "cml.losses.regression:RegressionLoss",
}
registry: Registry[Loss] = Registry("loss", _ENTRIES, group="cml.losses")
get = registry.get
register = registry.register
names = registry.names

__all__ = [
    "BinaryLoss",
    "BinaryTripletLoss",
    "ClassLoss",
    "CoSENTLoss",
    "ContrastiveLoss",
    "CrossBatchMemory",
    "DenseTripletLoss",
    "DirectionMultiSimilarityLoss",
    "DirectionProxyNCALoss",
    "DirectionTripletLoss",
    "GeneralisedContrastiveLoss",
    "GradedContrastiveLoss",
    "HAPLoss",
    "KernelSupConLoss",
    "LabelDistanceLoss",
    "LabelSource",
    "LambdaNDCGLoss",
    "LanguageGuidanceLoss",
    "LiftedStructureLoss",
    "LogRatioLoss",
    "LogisticTripletLoss",
    "Loss",
    "LossInfo",
    "MatryoshkaLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "PairLogRatioLoss",
    "ProxyAnchorLoss",
    "ProxyGMLLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "RKDDistanceLoss",
    "RankNContrastLoss",
    "RankedListLoss",
    "RegressionLoss",
    "RelaxedContrastiveLoss",
    "SoftTargetLoss",
    "SoftTripleLoss",
    "SumLoss",
    "TripletLoss",
    "VectorLoss",
    "get",
    "mask_duplicates",
    "names",
    "register",
    "registry",
]

_HOMES = {
    **{name: module for module, _, name in (entry.rpartition(":") for entry in _ENTRIES.values())},
    **dict.fromkeys(("LossInfo", "LabelSource", "Loss", "VectorLoss"), "cml.losses.loss"),
    **dict.fromkeys(("CrossBatchMemory", "mask_duplicates"), "cml.losses.cross_batch_memory"),
    "ClassLoss": "cml.losses.class_loss",
    "LabelDistanceLoss": "cml.losses.label_distance_loss",
    "ProxyLoss": "cml.losses.proxy_loss",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name not in _HOMES:
        raise AttributeError(f"module 'cml.losses' has no attribute {name!r}.{did_you_mean(name, _HOMES)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
