"""A metric of one's own: tables, JSON and comparisons show it with its direction and unit."""

from __future__ import annotations

import json

import numpy as np
import page_examples
import pytest

from cml.retrieval import Evaluation, evaluate_embeddings
from cml.retrieval.comparison import compared_columns
from cml.retrieval.metrics import LABEL_DISTANCE, describe, names


def test_a_metric_of_ones_own_is_shown_with_direction_and_unit() -> None:
    ages = np.arange(60.0)
    with pytest.MonkeyPatch.context() as patch:
        page_examples.forget_plugins(patch)
        exec(page_examples.read_files("extend/metric.md")["worst_of_top.py"], {"__name__": "worst_of_top"})
        evaluation = evaluate_embeddings(np.stack([ages, ages % 7], axis=1), ages)
    assert "worst_of_top" not in names()
    assert describe("worst_of_top@5").higher_is_better  # nothing is known of it any more
    again = Evaluation.from_json(json.loads(json.dumps(evaluation.to_json())))
    assert again.table() == evaluation.table()
    assert "worst_of_top in label units, lower is better: the farthest of the first K items" in again.table()
    for row in again.in_unit(12.0, "months").rows.values():
        result = row["worst_of_top@5"]
        assert not result.higher_is_better
        assert result.info.unit == LABEL_DISTANCE
    oracle = evaluation.rows["oracle"]["worst_of_top@5"]
    assert again.in_unit(12.0, "months").rows["oracle"]["worst_of_top@5"].mean == pytest.approx(12 * oracle.mean)
    assert oracle.mean <= evaluation.rows["random"]["worst_of_top@5"].mean
    assert "worst_of_top@5" in compared_columns(list(again.rows["oracle"].values()))
