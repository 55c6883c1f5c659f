"""Metrics of retrieval by name, each in a file of its name; a metric of one's own is registered like a loss.

Every registered metric that suits the labels is measured by ``cml evaluate`` and ``cml.retrieval.evaluate``.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cml.errors import UserError
from cml.registry import Registry
from cml.retrieval.evaluate_options import DISTANCE_KS, HIT_KS, NDCG_KS, EvaluateOptions
from cml.retrieval.metrics.metric import LABEL_DISTANCE, Metric, MetricInfo, cut_ks, family

if TYPE_CHECKING:
    from cml.retrieval.metrics.h_ap import compute_h_ap
    from cml.retrieval.metrics.hit import compute_hits
    from cml.retrieval.metrics.kendall_tau import compute_kendall_tau
    from cml.retrieval.metrics.label_distance import compute_label_distance
    from cml.retrieval.metrics.map_at_r import compute_map_at_r
    from cml.retrieval.metrics.ndcg import compute_ndcg
    from cml.retrieval.metrics.pair_spearman import compute_pair_spearman
    from cml.retrieval.metrics.r_precision import compute_r_precision
    from cml.retrieval.metrics.recall import compute_recall
    from cml.retrieval.metrics.spearman_rho import compute_spearman_rho
    from cml.retrieval.metrics.triplet_agreement import compute_triplet_agreement

M = TypeVar("M", bound=type[Metric])

_ENTRIES = {
    "label_distance": "cml.retrieval.metrics.label_distance:LabelDistanceAtK",
    "score": "cml.retrieval.metrics.score:Score",
    "worst_decile": "cml.retrieval.metrics.worst_decile:WorstDecile",
    "ndcg": "cml.retrieval.metrics.ndcg:NDCG",
    "hit": "cml.retrieval.metrics.hit:Hit",
    "recall": "cml.retrieval.metrics.recall:Recall",
    "map_at_r": "cml.retrieval.metrics.map_at_r:MAPAtR",
    "r_precision": "cml.retrieval.metrics.r_precision:RPrecision",
    "kendall_tau": "cml.retrieval.metrics.kendall_tau:KendallTau",
    "spearman_rho": "cml.retrieval.metrics.spearman_rho:SpearmanRho",
    "h_ap": "cml.retrieval.metrics.h_ap:HAP",
    "pair_spearman": "cml.retrieval.metrics.pair_spearman:PairSpearman",
    "triplet_agreement": "cml.retrieval.metrics.triplet_agreement:TripletAgreement",
    "repeated_spearman": "cml.retrieval.metrics.repeated_spearman:RepeatedSpearman",
    "repeated_agreement": "cml.retrieval.metrics.repeated_agreement:RepeatedAgreement",
}
registry: Registry[Metric] = Registry("metric", _ENTRIES, group="cml.metrics")
BUILT_IN = tuple(_ENTRIES)
"""The names of cml's own metrics, in the order of the columns of a table."""

__all__ = [
    "BUILT_IN",
    "LABEL_DISTANCE",
    "Metric",
    "MetricInfo",
    "compute_h_ap",
    "compute_hits",
    "compute_kendall_tau",
    "compute_label_distance",
    "compute_map_at_r",
    "compute_ndcg",
    "compute_pair_spearman",
    "compute_r_precision",
    "compute_recall",
    "compute_spearman_rho",
    "compute_triplet_agreement",
    "describe",
    "family",
    "make_metrics",
    "names",
    "own_names",
    "read_class",
    "register",
    "registry",
]

_HOMES = {
    "compute_h_ap": "h_ap",
    "compute_hits": "hit",
    "compute_kendall_tau": "kendall_tau",
    "compute_label_distance": "label_distance",
    "compute_map_at_r": "map_at_r",
    "compute_ndcg": "ndcg",
    "compute_pair_spearman": "pair_spearman",
    "compute_r_precision": "r_precision",
    "compute_recall": "recall",
    "compute_spearman_rho": "spearman_rho",
    "compute_triplet_agreement": "triplet_agreement",
}


def register(name: str) -> Callable[[M], M]:
    """Decorator that registers a class of metrics under ``name``."""
    return registry.register(name)


def names() -> list[str]:
    """The names of all registered metrics: cml's own in the order of a table's columns, then the others, sorted."""
    return [*BUILT_IN, *own_names()]


def own_names() -> list[str]:
    """The names of the metrics that plugins, packages and scripts have registered, sorted."""
    return [name for name in registry.names() if name not in _ENTRIES]


def describe(column: str) -> MetricInfo:
    """Direction, unit and note of the metric that a column of a table belongs to.

    Example:
        >>> describe("label_distance@10").higher_is_better
        False
    """
    name = family(column)
    if name not in _ENTRIES and name not in registry.names():
        return MetricInfo()
    info = getattr(registry.entry(name), "info", None)
    return info if isinstance(info, MetricInfo) else MetricInfo()


def read_class(name: str) -> type[Metric]:
    """Return the class that is registered under a name."""
    entry = registry.entry(name)
    if not (isinstance(entry, type) and issubclass(entry, Metric)):
        raise UserError(f"The metric {name!r} must be a class derived from cml.retrieval.metrics.Metric.")
    return entry


def make_metrics(options: EvaluateOptions, gallery: int) -> list[Metric]:
    """Make every registered metric that is measured in an evaluation, in the order of a table's columns."""
    classes = bool(options.recall_ks) and options.recall_within == 0
    available = {
        "top_k": True,
        "whole_ranking": options.whole_ranking,
        "classes": classes,
        "all_queries": True,
        "pairs": False,
    }
    metrics = []
    for name in names():
        entry = read_class(name)
        if not available.get(entry.needs, False):
            continue
        metric = entry(options, gallery)
        metric.name = name
        if metric.columns:
            metrics.append(metric)
    return metrics


def cut_options(options: EvaluateOptions, known_items: int, gallery: int) -> EvaluateOptions:
    """Cut the default K to the items that a query ranks, as they are cut to a small gallery.

    The sample for metrics of the whole ranking becomes as much larger as the gallery is.
    """
    distance_ks, ndcg_ks, hit_ks = options.distance_ks, options.ndcg_ks, options.hit_ks
    if tuple(distance_ks) == DISTANCE_KS:
        distance_ks = cut_ks(DISTANCE_KS, known_items)
    if tuple(ndcg_ks) == NDCG_KS:
        ndcg_ks = cut_ks(NDCG_KS, known_items)
    if tuple(hit_ks) == HIT_KS and 10 * options.hit_neighbors > known_items:
        hit_ks = ()  # a random ranking would hit more often than not
    sample = options.ranking_sample * gallery // max(1, min(known_items, gallery))
    return replace(options, distance_ks=distance_ks, ndcg_ks=ndcg_ks, hit_ks=hit_ks, ranking_sample=sample)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name not in _HOMES:
        raise AttributeError(f"module 'cml.retrieval.metrics' has no attribute {name!r}")
    return getattr(importlib.import_module(f"cml.retrieval.metrics.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
