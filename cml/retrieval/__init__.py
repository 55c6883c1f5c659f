"""Retrieval: rank a gallery by embedding distance, and measure the ranking against label distances."""

from cml.retrieval.evaluation import Evaluation, Metric, Ranker, embedding_ranker, evaluate, random_ranker

__all__ = ["Evaluation", "Metric", "Ranker", "embedding_ranker", "evaluate", "random_ranker"]
