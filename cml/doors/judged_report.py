"""What a retrieval report says of judgements: how well each method agrees with them, and how well one can at most."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cml import losses
from cml.array_types import Float64
from cml.doors.trained_run import Embeddings, TrainedRun
from cml.errors import DataError, UserError
from cml.losses.loss import Loss
from cml.retrieval.judgement_agreement import TRIPLET_AGREEMENT, measure_agreement
from cml.retrieval.oracle_row import ORACLE
from cml.training.run_config import RunConfig
from cml.training.run_folder import LOSS

_SEED = 0
DISAGREEMENT = "disagreement"


class JudgedReport(NamedTuple):
    """What a report says of judgements."""

    table: Sequence[Sequence[str]]  # the agreement of each method: a header and a row a method
    # method to the share of each query's triplets that it does not agree with, (Q,), NaN for a query without any; empty
    # of pairs, whose distances are known
    disagreement: Mapping[str, Float64]

    def select_best(self, methods: Mapping[str, Embeddings]) -> dict[str, Embeddings]:
        """Select the method that agrees with most triplets, such as the best form of vectors."""
        best = sorted(methods, key=lambda name: float(np.nanmean(self.disagreement[name])))[:1]
        return {name: methods[name] for name in best}


def report_judgements(
    trained: TrainedRun, methods: Mapping[str, Embeddings]
) -> JudgedReport | None:  # what the report says; None where the labels are no judgements
    """Compare methods by the judgements of a run's queries."""
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


def describe_learned(
    folder: Path, config: RunConfig
) -> str:  # a sentence or two; "" where the loss learns nothing of them, is not registered here, or was not kept
    """Say what the loss of a run has learned of the labels."""
    path = folder / LOSS
    if config.train.tune or not path.is_file():
        return ""
    try:
        loss = losses.get(config.train.loss)
    except UserError:  # of a plugin that is not loaded
        return ""
    if type(loss).describe_learned is Loss.describe_learned:
        return ""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loss.load_state_dict(load_file(path), strict=False)  # the file holds no constants
    except (SafetensorError, OSError, RuntimeError) as error:
        raise DataError(f"{path} does not hold the parameters of {config.train.loss} ({error}). Train again.") from None
    return loss.describe_learned()
