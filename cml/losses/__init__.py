"""Losses by name: ``cml.losses.get("log-ratio")``."""

from cml.losses.loss import Loss
from cml.registry import Registry

registry: Registry[Loss] = Registry(
    "loss",
    {
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
        "regression": "cml.losses.regression:RegressionLoss",
    },
    group="cml.losses",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["Loss", "get", "names", "register", "registry"]
