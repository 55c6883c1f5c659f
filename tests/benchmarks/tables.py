"""How well embeddings of tables mirror their labels: a linear head by log-ratio beside what the field has for vectors.

Run: python tests/benchmarks/tables.py [--tables diabetes wine series] [--seeds 5] [--json FILE]

Each seed holds out 30 % of the rows. The figure is the mean over held-out rows of Spearman's rho between the embedding
and the label distances to all other held-out rows: 1 is the order of the labels. Tables, from packages alone:

- diabetes: 442 patients, 10 columns, the progression of the disease (scikit-learn);
- wine: 178 wines, 12 chemical columns, the alcohol (scikit-learn);
- series: 1,000 drawn oscillations with noise, 64 columns, their frequency: not linear in the columns.

Rows: the standardised columns; PLS; a random forest and a ridge regression, whose predictions are embeddings of one
number; supervised UMAP (``umap-learn``); MLKR of ``metric-learn``, if that is installed (version 0.7.0 calls functions
of scikit-learn by names that they have no longer: an adapter here gives them back); log-ratio with a linear head and
with a network, by the defaults of ``cml.fit`` and the options below.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler

import cml
from cml.retrieval import EvaluateOptions, evaluate_embeddings
from cml.retrieval.label_regression import fit_ridge

Rows = NDArray[np.float64]
Labels = NDArray[np.float64]
Method = Callable[[Rows, Labels, Rows, int], NDArray[Any]]  # training rows and labels, test rows, seed: embeddings
_HELD_OUT = 0.3
_STEPS = 300


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each table and method: mean and standard deviation over seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="the most rows of a table")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, dict[str, list[float]]] = {}
    for table in options.tables:
        rows, labels = (part[: options.rows] for part in TABLES[table]())
        figures[table] = {}
        for method in options.methods:
            try:
                values = [measure(METHODS[method], rows, labels, seed) for seed in range(options.seeds)]
            except ImportError as error:
                print(f"{table:9} {method:20} not installed: {error}", flush=True)
                continue
            figures[table][method] = values
            print(f"{table:9} {method:20} {np.mean(values):.3f} +- {np.std(values):.3f}", flush=True)
    write_figures(options.json, figures)


def measure(method: Method, rows: Rows, labels: Labels, seed: int) -> float:
    """Hold out rows, and measure the embeddings of a method on them.

    Args:
        method: The method.
        rows: (N, F).
        labels: (N,).
        seed: Of the split and of the method.

    Returns:
        The mean of Spearman's rho over held-out rows.
    """
    order = np.random.default_rng(seed).permutation(len(rows))
    held_out, train = np.split(order, [round(_HELD_OUT * len(rows))])
    with warnings.catch_warnings(action="ignore"):
        embeddings = method(rows[train], labels[train], rows[held_out], seed)
    found = evaluate_embeddings(
        embeddings.reshape(len(held_out), -1), labels[held_out], options=EvaluateOptions(seed=seed)
    )
    return found.rows["embedding"]["spearman_rho"].mean


def draw_series() -> tuple[Rows, Labels]:
    """Oscillations of random phase and height with noise, and their frequency."""
    rng = np.random.default_rng(7)
    frequency, phase = rng.uniform(1, 6, 1000), rng.uniform(0, 2 * np.pi, 1000)
    times = np.linspace(0, 1, 64)
    waves = np.sin(2 * np.pi * frequency[:, None] * times + phase[:, None])
    return rng.uniform(0.5, 2, (1000, 1)) * waves + rng.normal(0, 0.3, waves.shape), frequency


def load_wine_alcohol() -> tuple[Rows, Labels]:
    """The chemical columns of wines but alcohol, and alcohol."""
    columns = load_wine().data
    return columns[:, 1:], columns[:, 0]


def embed_columns(rows: Rows, labels: Labels, test: Rows, seed: int) -> NDArray[Any]:
    """Standardise the columns."""
    return StandardScaler().fit(rows).transform(test)  # type: ignore[no-any-return]


def embed_pls(rows: Rows, labels: Labels, test: Rows, seed: int, components: int = 2) -> NDArray[Any]:
    """Project on the directions of the largest covariance with the label."""
    return PLSRegression(components).fit(rows, labels).transform(test)  # type: ignore[no-any-return]


def embed_forest(rows: Rows, labels: Labels, test: Rows, seed: int) -> NDArray[Any]:
    """Predict the label by a random forest."""
    return RandomForestRegressor(300, random_state=seed).fit(rows, labels).predict(test)  # type: ignore[no-any-return]


def embed_ridge(rows: Rows, labels: Labels, test: Rows, seed: int) -> NDArray[Any]:
    """Predict the label by a ridge regression."""
    return fit_ridge(rows, labels[:, None])(test)


def embed_umap(rows: Rows, labels: Labels, test: Rows, seed: int) -> NDArray[Any]:
    """Map by UMAP with the label as target."""
    umap = importlib.import_module("umap")
    scaler = StandardScaler().fit(rows)
    mapper = umap.UMAP(target_metric="l2", random_state=seed).fit(scaler.transform(rows), labels)
    return mapper.transform(scaler.transform(test))  # type: ignore[no-any-return]


def embed_mlkr(rows: Rows, labels: Labels, test: Rows, seed: int) -> NDArray[Any]:
    """Learn a linear map by metric learning for kernel regression (Weinberger and Tesauro, AISTATS 2007)."""
    checks = importlib.import_module("metric_learn._util")
    for name in ("check_array", "check_X_y"):
        setattr(checks, name, _with_old_names(getattr(importlib.import_module("sklearn.utils"), name)))
    mlkr = importlib.import_module("metric_learn").MLKR
    scaler = StandardScaler().fit(rows)
    learner = mlkr(init="pca", max_iter=100, random_state=seed).fit(scaler.transform(rows), labels)
    return learner.transform(scaler.transform(test))  # type: ignore[no-any-return]


def embed_log_ratio(
    rows: Rows, labels: Labels, test: Rows, seed: int, backbone: str = "none", steps: int = _STEPS
) -> NDArray[Any]:
    """Train an embedding by cml."""
    options: dict[str, Any] = {"backbone": backbone, "weights": "none", "steps": steps, "seed": seed}
    return cml.fit(rows, labels, quiet=True, **options).embed(test)


def _with_old_names(check: Callable[..., Any]) -> Callable[..., Any]:
    """A check of scikit-learn that also takes the name that an option had before version 1.6."""

    @functools.wraps(check)
    def checked(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - another library's
        if "force_all_finite" in options:
            options["ensure_all_finite"] = options.pop("force_all_finite")
        return check(*arguments, **options)

    return checked


TABLES: dict[str, Callable[[], tuple[Rows, Labels]]] = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "wine": load_wine_alcohol,
    "series": draw_series,
}
METHODS: dict[str, Method] = {
    "columns": embed_columns,
    "PLS, 2": embed_pls,
    "PLS, 1": functools.partial(embed_pls, components=1),
    "random forest": embed_forest,
    "supervised UMAP": embed_umap,
    "MLKR": embed_mlkr,
    "ridge": embed_ridge,
    "log-ratio, linear": embed_log_ratio,
    "log-ratio, network": functools.partial(embed_log_ratio, backbone="mlp(128, 128)"),
}

if __name__ == "__main__":
    main()
