"""The ridge regression of labels in closed form, against that of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cml.retrieval.label_regression import ALPHAS, fit_ridge_weights


@pytest.mark.parametrize(
    ("items", "columns", "noise"),
    [(100, 20, 0.1), (100, 20, 30.0), (60, 200, 1.0), (50, 50, 1.0), (51, 50, 0.1), (12, 8, 1e-6)],
)
def test_ridge_is_that_of_scikit_learn(items: int, columns: int, noise: float) -> None:
    rng = np.random.default_rng(items + columns)
    features = rng.normal(size=(items, columns)) * np.geomspace(0.01, 10, columns)
    features[:, 0] = 3  # a constant
    features[:, 2] = features[:, 1]  # and a copy
    targets = features @ rng.normal(size=(columns, 2)) + noise * rng.normal(size=(items, 2))
    known = make_pipeline(StandardScaler(), RidgeCV(alphas=ALPHAS)).fit(features, targets)
    weight, bias = fit_ridge_weights(features, targets)
    np.testing.assert_allclose(features @ weight.T + bias, known.predict(features), atol=1e-7)
