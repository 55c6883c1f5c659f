"""How well embeddings of tables mirror their labels: a linear head by log-ratio beside what the field has for vectors.

Run: python tests/benchmarks/tables.py [--tables diabetes wine ..] [--seeds 5] [--json FILE]

Each seed holds out 30 % of the rows. The figure is the mean over held-out rows of Spearman's rho between the embedding
and the label distances to all other held-out rows: 1 is the order of the labels. Tables, from packages alone:

- diabetes: 442 patients, 10 columns, the progression of the disease (scikit-learn);
- wine: 178 wines, 12 chemical columns, the alcohol (scikit-learn);
- series: 1,000 drawn oscillations with noise, 64 columns, their frequency: not linear in the columns;
- melting: 3,000 molecules, 1,024 counts of substructures, the melting point (extra ``molecules``);
- structure: the same molecules and counts, and the Tanimoto distance of their sets of substructures;
- captions: sentence vectors of 600 captions of drawn scenes, 384 columns, and the Word Mover's Distance of all captions
  of a scene (extra ``sentences``).

Rows: the standardised columns; PLS; a random forest and a ridge regression, whose predictions are embeddings (labels
that are no vectors become their classical MDS for the ridge; PLS, the forest, UMAP and MLKR do not take them);
supervised UMAP (``umap-learn``); MLKR of ``metric-learn``, if that is installed (version 0.7.0 calls functions of
scikit-learn by names that they have no longer: an adapter here gives them back); log-ratio with a linear head and with
a network, by the defaults of ``cml.fit`` and the options below; and a head that ``cml.fit(tune=True)`` chooses.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler

import cml
from cml.array_types import Float64, Int64
from cml.distances import as_label_distance
from cml.errors import UserError
from cml.retrieval import EvaluateOptions, evaluate_embeddings
from cml.retrieval.label_regression import fit_label_regression
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

Rows = Float64


class Table(NamedTuple):
    """Rows (N, F), their N labels (an array of numbers or of objects), and the label distance."""

    rows: Rows
    labels: NDArray[Any]
    distance: str = "euclidean"

    def take(self, items: Int64 | slice) -> Table:
        """Select rows with their labels."""
        return self._replace(rows=self.rows[items], labels=self.labels[items])


Method = Callable[[Table, Rows, int], NDArray[Any]]  # training rows, test rows, seed: embeddings
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
        figures[table] = {}
        try:
            whole = TABLES[table]().take(slice(options.rows))
        except UserError as error:
            print(f"{table:9} {error}", flush=True)
            continue
        for method in options.methods:
            if whole.labels.dtype == object and METHODS[method] not in OF_ANY_LABELS:
                continue
            try:
                values = [measure(METHODS[method], whole, seed) for seed in range(options.seeds)]
            except ImportError as error:
                print(f"{table:9} {method:20} not installed: {error}", flush=True)
                continue
            figures[table][method] = values
            print(f"{table:9} {method:20} {np.mean(values):.3f} +- {np.std(values):.3f}", flush=True)
    write_figures(options.json, figures)


def measure(method: Method, table: Table, seed: int) -> float:
    """Hold out rows, and measure the embeddings of a method on them.

    Args:
        method: The method.
        table: N rows with their labels.
        seed: Of the split and of the method.

    Returns:
        The mean of Spearman's rho over held-out rows.
    """
    order = np.random.default_rng(seed).permutation(len(table.rows))
    held_out, train = np.split(order, [round(_HELD_OUT * len(table.rows))])
    with warnings.catch_warnings(action="ignore"):
        embeddings = method(table.take(train), table.rows[held_out], seed)
    found = evaluate_embeddings(
        embeddings.reshape(len(held_out), -1),
        table.labels[held_out].tolist(),
        label_distance=table.distance,
        options=EvaluateOptions(seed=seed),
    )
    return found.rows["embedding"]["spearman_rho"].mean


def draw_series() -> Table:
    """Oscillations of random phase and height with noise, and their frequency."""
    rng = np.random.default_rng(7)
    frequency, phase = rng.uniform(1, 6, 1000), rng.uniform(0, 2 * np.pi, 1000)
    times = np.linspace(0, 1, 64)
    waves = np.sin(2 * np.pi * frequency[:, None] * times + phase[:, None])
    return Table(rng.uniform(0.5, 2, (1000, 1)) * waves + rng.normal(0, 0.3, waves.shape), frequency)


def load_diabetes_progression() -> Table:
    """The columns of patients, and the progression of their disease."""
    return Table(*load_diabetes(return_X_y=True))


def load_wine_alcohol() -> Table:
    """The chemical columns of wines but alcohol, and alcohol."""
    columns = load_wine().data
    return Table(columns[:, 1:], columns[:, 0])


def count_substructures(label: str) -> Table:
    """Molecules with their melting points, or with their sets of substructures."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = cml.prepare("molecules", Path(folder) / "set", label=label, count=3000, picture_size=16)
        splits = [dataset.split(role) for role in dataset.info.roles]
        rows = np.concatenate([split.vectors.read(np.arange(len(split))) for split in splits if split.vectors])
    labels = [value for split in splits for value in split.labels]
    return Table(rows.astype(np.float64), _as_objects(labels), dataset.info.details["label_distance"])


def load_captions() -> Table:
    """A sentence vector of the first caption of each drawn scene, and all captions of the scene."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = cml.prepare("scenes", Path(folder) / "set", count=600, size=32)
        captions = [label for role in dataset.info.roles for label in dataset.split(role).labels]
    rows = sentence_vectors(PACKAGED, [label[0] for label in captions])
    return Table(rows.astype(np.float64), _as_objects(captions), "captions(vectors=scene-words)")


def embed_columns(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Standardise the columns."""
    return StandardScaler().fit(table.rows).transform(test)  # type: ignore[no-any-return]


def embed_pls(table: Table, test: Rows, seed: int, components: int = 2) -> NDArray[Any]:
    """Project on the directions of the largest covariance with the label."""
    return PLSRegression(components).fit(table.rows, table.labels).transform(test)  # type: ignore[no-any-return]


def embed_forest(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Predict the label by a random forest."""
    return RandomForestRegressor(300, random_state=seed).fit(table.rows, table.labels).predict(test)  # type: ignore[no-any-return]


def embed_ridge(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Predict the label, or its place on the labels' classical MDS, by a ridge regression."""
    distance = as_label_distance(table.distance)
    return fit_label_regression(table.rows, distance.encode(table.labels.tolist()), distance)[1](test)


def embed_umap(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Map by UMAP with the label as target."""
    umap = importlib.import_module("umap")
    scaler = StandardScaler().fit(table.rows)
    mapper = umap.UMAP(target_metric="l2", random_state=seed).fit(scaler.transform(table.rows), table.labels)
    return mapper.transform(scaler.transform(test))  # type: ignore[no-any-return]


def embed_mlkr(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Learn a linear map by metric learning for kernel regression (Weinberger and Tesauro, AISTATS 2007)."""
    checks = importlib.import_module("metric_learn._util")
    for name in ("check_array", "check_X_y"):
        setattr(checks, name, _with_old_names(getattr(importlib.import_module("sklearn.utils"), name)))
    mlkr = importlib.import_module("metric_learn").MLKR
    scaler = StandardScaler().fit(table.rows)
    learner = mlkr(init="pca", max_iter=100, random_state=seed).fit(scaler.transform(table.rows), table.labels)
    return learner.transform(scaler.transform(test))  # type: ignore[no-any-return]


def embed_log_ratio(table: Table, test: Rows, seed: int, backbone: str = "none", steps: int = _STEPS) -> NDArray[Any]:
    """Train an embedding by cml."""
    options: dict[str, Any] = {"backbone": backbone, "weights": "none", "steps": steps, "seed": seed}
    options["label_distance"] = table.distance
    return cml.fit(table.rows, table.labels.tolist(), quiet=True, **options).embed(test)


def embed_tuned(table: Table, test: Rows, seed: int) -> NDArray[Any]:
    """Choose an embedding by cml on held-out training rows."""
    options: dict[str, Any] = {"label_distance": table.distance, "seed": seed, "tune": True}
    return cml.fit(table.rows, table.labels.tolist(), quiet=True, **options).embed(test)


def _with_old_names(check: Callable[..., Any]) -> Callable[..., Any]:
    """A check of scikit-learn that also takes the name that an option had before version 1.6."""

    @functools.wraps(check)
    def checked(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - another library's
        if "force_all_finite" in options:
            options["ensure_all_finite"] = options.pop("force_all_finite")
        return check(*arguments, **options)

    return checked


def _as_objects(labels: list[Any]) -> NDArray[Any]:
    """Labels as an array (N,): of numbers, or of lists of texts."""
    if isinstance(labels[0], float):
        return np.array(labels)
    objects = np.empty(len(labels), object)
    objects[:] = labels
    return objects


TABLES: dict[str, Callable[[], Table]] = {
    "diabetes": load_diabetes_progression,
    "wine": load_wine_alcohol,
    "series": draw_series,
    "melting": functools.partial(count_substructures, "melting-point"),
    "structure": functools.partial(count_substructures, "structure"),
    "captions": load_captions,
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
    "tuned": embed_tuned,
}
OF_ANY_LABELS = [METHODS[name] for name in ("columns", "ridge", "log-ratio, linear", "log-ratio, network", "tuned")]

if __name__ == "__main__":
    main()
