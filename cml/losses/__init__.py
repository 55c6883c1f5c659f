"""Losses, by class, by function and by name: ``LogRatioLoss()``, ``log_ratio_loss(..)``, ``get("log-ratio")``.

``get`` takes what the command line takes, too: ``cml.losses.get("log-ratio(weights=uniform)")``. In a loop of your own
a loss over label distances is a module like any other; ``fit`` takes its constants from the training set:

    >>> from cml import distances, losses
    >>> ages = [31, 35, 60, 18, 44]
    >>> distance = distances.get("euclidean")
    >>> loss = losses.LogRatioLoss().fit(distance, ages)

A loss with proxies wants ``prepare(classes, dimension=D)`` instead, with the class numbers (N,) of the training items,
before the optimiser is made that shall hold its parameters. What is named here is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cml.registry import Registry

if TYPE_CHECKING:
    from cml.losses.binary import BinaryLoss
    from cml.losses.binary_triplet import BinaryTripletLoss, binary_triplet_loss
    from cml.losses.class_loss import ClassLoss, ProxyLoss
    from cml.losses.class_pairs import ContrastiveLoss, LiftedStructureLoss, MultiSimilarityLoss, NPairLoss, TripletLoss
    from cml.losses.class_proxies import ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss
    from cml.losses.cosent import CoSENTLoss, cosent_loss
    from cml.losses.dense_triplet import DenseTripletLoss, dense_triplet_loss
    from cml.losses.direction_multi_similarity import DirectionMultiSimilarityLoss, direction_multi_similarity_loss
    from cml.losses.direction_proxy_nca import DirectionProxyNCALoss, direction_proxy_nca_loss
    from cml.losses.direction_triplet import DirectionTripletLoss, direction_triplet_loss
    from cml.losses.graded_contrastive import GradedContrastiveLoss, graded_contrastive_loss
    from cml.losses.h_ap import HAPLoss, h_ap_loss
    from cml.losses.kernel_supcon import KernelSupConLoss, kernel_supcon_loss
    from cml.losses.label_distance_loss import LabelDistanceLoss
    from cml.losses.lambda_ndcg import LambdaNDCGLoss, lambda_ndcg_loss
    from cml.losses.language_guidance import LanguageGuidanceLoss, language_guidance_loss
    from cml.losses.log_ratio import LogRatioLoss, log_ratio_loss
    from cml.losses.loss import About, LabelSource, Loss, VectorLoss
    from cml.losses.memory import CrossBatchMemory, leave_out_copies
    from cml.losses.proxy_gml import ProxyGMLLoss, proxy_gml_loss
    from cml.losses.proxy_nca_pp import ProxyNCAPlusPlusLoss, proxy_nca_pp_loss
    from cml.losses.rank_n_contrast import RankNContrastLoss, rank_n_contrast_loss
    from cml.losses.regression import RegressionLoss, regression_loss
    from cml.losses.relaxed_contrastive import RelaxedContrastiveLoss, relaxed_contrastive_loss
    from cml.losses.rkd_distance import RKDDistanceLoss, rkd_distance_loss
    from cml.losses.soft_target import SoftTargetLoss, soft_target_loss
    from cml.losses.weighted_sum import MatryoshkaLoss, SumLoss

_ENTRIES = {
    "log-ratio": "cml.losses.log_ratio:LogRatioLoss",
    "dense-triplet": "cml.losses.dense_triplet:DenseTripletLoss",
    "binary-triplet": "cml.losses.binary_triplet:BinaryTripletLoss",
    "binary": "cml.losses.binary:BinaryLoss",
    "contrastive": "cml.losses.class_pairs:ContrastiveLoss",
    "triplet": "cml.losses.class_pairs:TripletLoss",
    "n-pair": "cml.losses.class_pairs:NPairLoss",
    "lifted-structure": "cml.losses.class_pairs:LiftedStructureLoss",
    "multi-similarity": "cml.losses.class_pairs:MultiSimilarityLoss",
    "proxy-nca": "cml.losses.class_proxies:ProxyNCALoss",
    "soft-triple": "cml.losses.class_proxies:SoftTripleLoss",
    "proxy-anchor": "cml.losses.class_proxies:ProxyAnchorLoss",
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
    "soft-target": "cml.losses.soft_target:SoftTargetLoss",
    "kernel-supcon": "cml.losses.kernel_supcon:KernelSupConLoss",
    "cosent": "cml.losses.cosent:CoSENTLoss",
    "h-ap": "cml.losses.h_ap:HAPLoss",
    "lambda-ndcg": "cml.losses.lambda_ndcg:LambdaNDCGLoss",
    "sum": "cml.losses.weighted_sum:SumLoss",
    "matryoshka": "cml.losses.weighted_sum:MatryoshkaLoss",
    "regression": "cml.losses.regression:RegressionLoss",
}
registry: Registry[Loss] = Registry("loss", _ENTRIES, group="cml.losses")
get = registry.get
register = registry.register
names = registry.names

__all__ = ["About", "BinaryLoss", "BinaryTripletLoss", "ClassLoss", "CoSENTLoss", "ContrastiveLoss"]
__all__ += ["CrossBatchMemory", "DenseTripletLoss", "DirectionMultiSimilarityLoss", "DirectionProxyNCALoss"]
__all__ += ["DirectionTripletLoss", "GradedContrastiveLoss", "KernelSupConLoss", "LabelDistanceLoss", "LabelSource"]
__all__ += ["LanguageGuidanceLoss", "LiftedStructureLoss", "LogRatioLoss", "Loss", "MultiSimilarityLoss", "NPairLoss"]
__all__ += ["ProxyAnchorLoss", "ProxyGMLLoss", "ProxyLoss", "ProxyNCALoss", "ProxyNCAPlusPlusLoss", "RKDDistanceLoss"]
__all__ += ["RankNContrastLoss", "RegressionLoss", "RelaxedContrastiveLoss", "SoftTargetLoss", "SoftTripleLoss"]
__all__ += ["TripletLoss", "VectorLoss", "binary_triplet_loss", "cosent_loss", "dense_triplet_loss"]
__all__ += ["direction_multi_similarity_loss", "direction_proxy_nca_loss", "direction_triplet_loss", "get"]
__all__ += ["graded_contrastive_loss", "kernel_supcon_loss", "language_guidance_loss", "log_ratio_loss", "names"]
__all__ += ["proxy_gml_loss", "proxy_nca_pp_loss", "rank_n_contrast_loss", "register", "registry", "regression_loss"]
__all__ += ["HAPLoss", "LambdaNDCGLoss", "relaxed_contrastive_loss", "rkd_distance_loss", "soft_target_loss"]
__all__ += ["MatryoshkaLoss", "SumLoss", "h_ap_loss", "lambda_ndcg_loss", "leave_out_copies"]

_FUNCTIONS = [name for name in __all__ if name.endswith("_loss")]
_HOMES = {
    **{name: home for home, _, name in (entry.rpartition(":") for entry in _ENTRIES.values())},
    **{name: _ENTRIES[name.removesuffix("_loss").replace("_", "-")].partition(":")[0] for name in _FUNCTIONS},
    **dict.fromkeys(("ClassLoss", "ProxyLoss"), "cml.losses.class_loss"),
    **dict.fromkeys(("About", "LabelSource", "Loss", "VectorLoss"), "cml.losses.loss"),
    "LabelDistanceLoss": "cml.losses.label_distance_loss",
    **dict.fromkeys(("CrossBatchMemory", "leave_out_copies"), "cml.losses.memory"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name not in _HOMES:
        raise AttributeError(f"module 'cml.losses' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
