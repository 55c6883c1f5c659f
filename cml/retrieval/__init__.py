"""Retrieval: rank a gallery by embedding distance, and measure the ranking against label distances.

``evaluate_embeddings`` takes the embeddings of any network; ``evaluate`` takes rankers of any kind.
"""

from cml.retrieval.embeddings import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.evaluation import Evaluation, Metric, Ranker, embedding_ranker, evaluate, random_ranker

__all__ = [
    "EvaluateOptions",
    "Evaluation",
    "Metric",
    "Ranker",
    "embedding_ranker",
    "evaluate",
    "evaluate_embeddings",
    "random_ranker",
]


def __dir__() -> list[str]:
    return __all__
