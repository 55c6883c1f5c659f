"""What a retrieval report says of judgements: how well each method agrees with them, and how well one can at most."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.retrieval.judgement_agreement import TRIPLET_AGREEMENT, measure_agreement
from cml.retrieval.oracle_row import ORACLE
from cml.runs.trained_run import Embeddings, TrainedRun

_SEED = 0
DISAGREEMENT = "disagreement"


class JudgedReport(NamedTuple):
    """What a report says of judgements.

    Attributes:
        table: The agreement of each method: a header and a row a method.
        disagreement: Method to the share of each query's triplets that it does not agree with, (Q,), NaN for a query
            without any; empty of pairs, whose distances are known.
    """

    table: Sequence[Sequence[str]]
    disagreement: Mapping[str, Float64]

    def select_best(self, methods: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
        """Select the method that agrees with most triplets, such as the best form of vectors.

        Args:
            methods: Method to embeddings, of some of the methods that were compared.

        Returns:
            The method with its embeddings; nothing if there are no methods.
        """
        best = sorted(methods, key=lambda name: float(np.nanmean(self.disagreement[name])))[:1]
        return {name: methods[name] for name in best}


def report_judgements(trained: TrainedRun, methods: Mapping[str, Embeddings]) -> JudgedReport | None:
    """Compare methods by the judgements of a run's queries.

    Args:
        trained: The run.
        methods: Method to embeddings of queries and gallery, which are the same.

    Returns:
        What the report says; None where the labels are no judgements.
    """
    if not trained.dataset.info.queries_are_gallery:
        return None
    rows = {name: embeddings[0] for name, embeddings in methods.items()}
    agreement = measure_agreement([*rows, ORACLE], trained.distance, trained.query_labels, rows, seed=_SEED)
    if agreement is None:
        return None
    metrics = list(agreement.rows[ORACLE])
    count = f"{agreement.repeated_questions} questions"
    heads = [f"{name} ({count})" if name.startswith("repeated") else name for name in metrics]
    table = [["method", *heads]]
    table += [[name, *(f"{row[metric].mean:.3f}" for metric in metrics)] for name, row in agreement.rows.items()]
    if agreement.ceiling is not None:
        table.append(["ceiling", "", f"{agreement.ceiling:.3f}"])
    if TRIPLET_AGREEMENT not in metrics:
        return JudgedReport(table, {})
    return JudgedReport(table, {name: 1 - agreement.rows[name][TRIPLET_AGREEMENT].per_query for name in rows})
