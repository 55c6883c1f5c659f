"""Retrieval: rank a gallery by embedding distance, and measure the ranking against label distances.

``evaluate_embeddings`` takes the embeddings of any network; ``evaluate`` takes rankers of any kind.
"""

from cml.retrieval.embedding_ranker import Ranker, embedding_ranker
from cml.retrieval.embeddings import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.evaluation import evaluate
from cml.retrieval.gallery import Gallery
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.reference_rows import random_ranker
from cml.retrieval.results import Evaluation

__all__ = [
    "EvaluateOptions",
    "Evaluation",
    "Gallery",
    "MetricResult",
    "Ranker",
    "embedding_ranker",
    "evaluate",
    "evaluate_embeddings",
    "random_ranker",
]


def __dir__() -> list[str]:
    return __all__
