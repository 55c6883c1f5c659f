"""Models of vectors and tensors from Python: fit, embed, evaluate, search, save and load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import torch
from sklearn.datasets import load_diabetes

import cml
from cml.doors.evaluate_items import compute_vector_forms
from cml.errors import UserError
from cml.models import embedding
from cml.retrieval.feature_forms import VECTOR_ROWS
from cml.tuning.candidates import frozen_maps

ROWS, TARGETS = load_diabetes(return_X_y=True)
IS_TEST = np.arange(len(ROWS)) % 3 == 0
FAST = {"sampler": "random(batch_size=64)", "quiet": True}


@pytest.fixture(scope="module")
def model() -> cml.Model:
    return cml.fit(ROWS[~IS_TEST], TARGETS[~IS_TEST], steps=300, **FAST)  # type: ignore[arg-type]


def test_a_linear_head_is_better_than_the_columns(model: cml.Model) -> None:
    options = cml.retrieval.EvaluateOptions()
    arguments = (TARGETS[IS_TEST], ROWS[~IS_TEST].astype(np.float32), TARGETS[~IS_TEST])
    trained = model.evaluate(ROWS[IS_TEST], arguments[0], arguments[1], arguments[2], options=options)
    scaled = ROWS / ROWS.std(axis=0)
    columns = cml.retrieval.evaluate_embeddings(
        scaled[IS_TEST].astype(np.float32), TARGETS[IS_TEST], scaled[~IS_TEST].astype(np.float32), TARGETS[~IS_TEST]
    )
    name = "spearman_rho"
    assert trained.rows["embedding"][name].mean > columns.rows["embedding"][name].mean + 0.03


def test_the_model_is_linear_in_standardised_columns(model: cml.Model) -> None:
    train = ROWS[~IS_TEST]
    standardised = (ROWS - train.mean(axis=0)) / train.std(axis=0)
    weight, bias = (
        tensor.detach().numpy().astype(np.float64) for tensor in (model.network.head.weight, model.network.head.bias)
    )
    embeddings = standardised @ weight.T + bias
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(ROWS), embeddings, atol=1e-5)


def test_saved_models_embed_the_same_and_search_takes_both(model: cml.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = cml.load(tmp_path / "model")
    assert repr(loaded) == repr(model) == "Model(none, 10 numbers -> 128 numbers, L2-normalised)"
    np.testing.assert_array_equal(loaded.embed(ROWS), model.embed(ROWS))
    positions, distances = model.search(ROWS[:5], ROWS, k=3)
    again, _ = loaded.search(model.embed(ROWS[:5]), model.embed(ROWS), k=3)
    np.testing.assert_array_equal(positions, again)
    assert positions[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert (np.diff(distances, axis=1) >= 0).all()


def test_columns_of_a_frame_are_found_again_by_name(tmp_path: Path) -> None:
    frame = load_diabetes(as_frame=True).frame
    model = cml.fit(frame, features=["age", "bmi", "bp"], label="target", steps=3, **FAST)  # type: ignore[arg-type]
    model.save(tmp_path / "model")
    loaded = cml.load(tmp_path / "model")
    shuffled = frame[["bp", "target", "bmi", "age"]]
    np.testing.assert_array_equal(loaded.embed(shuffled), model.embed(frame[["age", "bmi", "bp"]].to_numpy()))
    assert loaded.evaluate(frame, label="target").rows["oracle"]["spearman_rho"].mean == pytest.approx(1)
    with pytest.raises(UserError, match="The data has no column 'bp'"):
        loaded.embed(frame[["age", "bmi"]])
    broken = frame.astype({"bmi": object})
    broken.loc[4, "bmi"] = "high"
    with pytest.raises(UserError, match=r"Row 4 of the column 'bmi' must be a number. Got 'high' instead"):
        loaded.embed(broken)
    missing = pandas.DataFrame(frame).set_axis([f"p{row}" for row in range(len(frame))])
    missing.iloc[2, list(frame.columns).index("bmi")] = np.nan
    with pytest.raises(UserError, match=r"row 2 \(id p2\), column 1 \('bmi'\) of the vectors is nan"):
        loaded.embed(missing)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["polars", "arrow", "arrow file"])
def test_frames_of_other_libraries_through_everything(library: str, tmp_path: Path) -> None:
    table = load_diabetes(as_frame=True).frame.to_dict("list")
    frame: Any = polars.DataFrame(table) if library == "polars" else pyarrow.table(table)
    if library == "arrow file":
        pyarrow.parquet.write_table(frame, tmp_path / "rows.parquet")
        frame = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    features = ["age", "bmi", "bp"]
    model = cml.fit(frame, features=features, label="target", steps=3, **FAST)  # type: ignore[arg-type]
    rows = np.stack([np.asarray(table[name]) for name in features], axis=1)
    embeddings = model.embed(frame)
    np.testing.assert_array_equal(embeddings, model.embed(rows))
    assert model.evaluate(frame, label="target").rows["oracle"]["spearman_rho"].mean == pytest.approx(1)
    assert model.search(frame, rows, k=1)[1].max() < 1e-3
    loaded = cml.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.embed(frame), embeddings)


def test_missing_numbers_become_the_mean_of_their_column() -> None:
    rows = ROWS.copy()
    rows[5, 2] = np.nan
    model = cml.fit(rows, TARGETS, steps=3, missing="mean", **FAST)  # type: ignore[arg-type]
    filled = rows.copy()
    filled[5, 2] = np.nanmean(rows[:, 2])
    np.testing.assert_allclose(model.embed(rows), model.embed(filled), atol=1e-6)
    with pytest.raises(UserError, match="row 5, column 2 of the vectors is nan"):
        cml.fit(rows, TARGETS, steps=1, **FAST)  # type: ignore[arg-type]


def test_constant_columns_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.column_stack([ROWS, np.full(len(ROWS), 7.1)])
    model = cml.fit(rows, TARGETS, steps=1, sampler="random(batch_size=64)")
    told = capsys.readouterr().err
    assert "1 of 11 columns of the training vectors are constant and carry no information about the label" in told
    assert "label: column 10" in told
    assert np.isfinite(model.embed(rows)).all()


def test_validation_holds_out_whole_groups() -> None:
    from cml.data.vectors import Vectors
    from cml.distances import as_label_distance
    from cml.items import LabelledItems
    from cml.training.config import TrainConfig
    from cml.training.stages import HoldOut

    distance = as_label_distance("euclidean")
    groups = np.array([0, 1, 2, 3] * 10 + [4] * 3 + [2] * 5)
    positions = np.arange(len(groups), dtype=float)
    data = LabelledItems(Vectors(positions[:, None]), distance.encode(positions.tolist()), distance, groups=groups)
    train, held_out = data.split(HoldOut(TrainConfig(evaluate_every=5, validation_fraction=0.2)))
    assert set(held_out.groups) == {2}
    assert set(train.groups) == {0, 1, 3, 4}
    rows = held_out.inputs.read(np.arange(len(held_out))).ravel()
    np.testing.assert_array_equal(rows, np.flatnonzero(groups == 2))
    np.testing.assert_array_equal(distance.pairwise(held_out.labels[:1], held_out.labels)[0], rows - rows[0])
    with pytest.raises(UserError, match="'groups' leaves 3 of 48 items to train on"):
        LabelledItems(data.inputs, data.labels, distance, groups=np.array([0] * 45 + [1] * 3)[::-1].copy()).split(
            HoldOut(TrainConfig(evaluate_every=5, validation_fraction=0.2))
        )
    with pytest.raises(UserError, match="must name a group for each input"):
        cml.fit(ROWS, TARGETS, groups=[1, 2, 3], steps=1, **FAST)  # type: ignore[arg-type]
    for missing in (None, float("nan")):
        with pytest.raises(UserError, match=r"Got (None|nan) for input 1 instead: one whose group is not known"):
            cml.fit(ROWS, TARGETS, groups=["a", missing] * 221, steps=1, **FAST)  # type: ignore[arg-type]


def test_networks_on_vectors(tmp_path: Path) -> None:
    named = cml.fit(ROWS, TARGETS, backbone="mlp(32, 16)", steps=3, **FAST)  # type: ignore[arg-type]
    assert named.network.head.in_features == 16
    np.testing.assert_array_equal(cml.load(named.save(tmp_path / "named")).embed(ROWS), named.embed(ROWS))
    own = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.Tanh())
    model = cml.fit(ROWS, TARGETS, backbone=own, steps=3, **FAST)  # type: ignore[arg-type]
    assert model.network.head.in_features == 7
    frozen = cml.fit(ROWS, TARGETS, backbone="mlp(8)", freeze_backbone=True, steps=3, **FAST)  # type: ignore[arg-type]
    assert frozen.embed(ROWS).shape == (len(ROWS), 128)
    beside = cml.fit(ROWS, TARGETS, backbone="mlp(8, skip=true, unit=true)", steps=3, **FAST)  # type: ignore[arg-type]
    assert beside.network.head.in_features == 10 + 8
    units = torch.nn.functional.normalize(torch.randn(4, 10), dim=1)
    features = beside.network.backbone(7 * units)
    torch.testing.assert_close(features[:, :10], units)
    torch.testing.assert_close(features[:, 10:], beside.network.backbone.layers(units))
    plain = "mlp(8, layer_norm=false, activation=relu)"
    bare = cml.fit(ROWS, TARGETS, backbone=plain, steps=3, **FAST)  # type: ignore[arg-type]
    assert [type(layer).__name__ for layer in bare.network.backbone] == ["Linear", "ReLU"]
    np.testing.assert_array_equal(cml.load(bare.save(tmp_path / "bare")).embed(ROWS), bare.embed(ROWS))
    for backbone, message in (
        (
            "resnet18",
            "'resnet18' takes images, but the inputs are 10 numbers: leave the backbone out, choose none or mlp",
        ),
        (torch.nn.Linear(9, 4), r"fails on inputs of shape \(2, 10\)"),
        ("mlp(0)", "'widths' of mlp must be whole numbers from 1"),
        ("mlp(8, unit=true)", "'unit' of mlp goes with skip=true"),
        ("mlp(8, activation=tanh)", "The 'activation' must be gelu or relu"),
    ):
        with pytest.raises(UserError, match=message):
            cml.fit(ROWS, TARGETS, backbone=backbone, steps=1, **FAST)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'mlp' takes vectors, but the inputs are images: choose one for images"):
        cml.models.get("mlp", "none")
    with pytest.raises(UserError, match="'flip' changes images, but the inputs are 10 numbers: leave out flip=list"):
        cml.fit(ROWS, TARGETS, flip="list", steps=1, **FAST)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["spectrogram", "volume", "tokens", "bands"])
def test_tensors_by_a_backbone_of_ones_own(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    levels = np.linspace(0, 1, 40)
    pool = torch.nn.Flatten()
    if kind == "tokens":
        items = rng.integers(0, 10, (40, 6)) + np.arange(40)[:, None] // 2
        network = torch.nn.Sequential(torch.nn.Embedding(40, 8), pool)
    elif kind == "volume":
        items = (levels[:, None, None, None, None] * rng.integers(0, 4000, (40, 1, 6, 6, 6))).astype(np.uint16)
        network = torch.nn.Sequential(torch.nn.Conv3d(1, 4, 3, stride=2), torch.nn.BatchNorm3d(4), pool)
    elif kind == "bands":
        items = levels[:, None, None, None] * rng.random((40, 4, 9, 7))
        network = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, stride=2), pool)
    else:
        items = levels[:, None, None] * rng.random((40, 1, 128))
        network = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 9, stride=4), pool)
    model = cml.fit(items, levels, backbone=network, steps=4, sampler="random(batch_size=20)", quiet=True)
    model.save(tmp_path / "model")
    with pytest.raises(UserError, match="The backbone of this model is its author's own"):
        cml.load(tmp_path / "model")
    loaded = cml.load(tmp_path / "model", backbone=network)
    np.testing.assert_array_equal(loaded.embed(items), model.embed(torch.from_numpy(items)))
    assert list(model.evaluate(items, levels).rows) == ["embedding", "random", "oracle"]
    assert model.search(items[:2], items, k=1)[0].ravel().tolist() == [0, 1]
    with pytest.raises(UserError, match=r"The model takes tensors of .* Got tensors of .* instead"):
        model.embed(items[:, :, :5] if items.ndim > 2 else items[:, :5])


def test_interrupted_runs_on_vectors_continue_to_the_same_bits(tmp_path: Path) -> None:
    options = {"checkpoint_every": 4, "sampler": "random(batch_size=64)", "quiet": True}
    whole = cml.fit(ROWS, TARGETS, steps=8, out=tmp_path / "whole", **options)  # type: ignore[arg-type]

    class Stop(cml.Callback):
        def on_checkpoint(self, *arguments: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cml.fit(ROWS, TARGETS, steps=8, out=tmp_path / "part", callbacks=[Stop()], **options)  # type: ignore[arg-type]
    again = cml.fit(ROWS, TARGETS, steps=8, out=tmp_path / "part", resume=True, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(again.embed(ROWS), whole.embed(ROWS))


def test_labels_are_predicted_from_training_items_or_a_gallery(model: cml.Model, tmp_path: Path) -> None:
    predicted = model.predict(ROWS[IS_TEST], k=20)
    error = np.abs(np.array(predicted) - TARGETS[IS_TEST]).mean()
    assert error < 0.9 * np.abs(TARGETS[IS_TEST] - TARGETS[~IS_TEST].mean()).mean()
    loaded = cml.load(model.save(tmp_path / "model"))
    with pytest.raises(UserError, match="give 'gallery' and 'gallery_labels'"):
        loaded.predict(ROWS[:3])
    assert loaded.predict(ROWS[IS_TEST], ROWS[~IS_TEST], TARGETS[~IS_TEST], k=20) == predicted
    with pytest.raises(UserError, match="'k' must be 1 or more"):
        model.predict(ROWS[:3], k=0)


def test_evaluations_of_vectors_have_their_baselines(model: cml.Model, tmp_path: Path) -> None:
    from sklearn.linear_model import RidgeCV
    from sklearn.preprocessing import StandardScaler

    assert list(model.evaluate(ROWS, TARGETS).rows) == ["embedding", *VECTOR_ROWS, "ridge", "random", "oracle"]
    loaded = cml.load(model.save(tmp_path / "model"))
    arguments = (ROWS[IS_TEST], TARGETS[IS_TEST], ROWS[~IS_TEST], TARGETS[~IS_TEST])
    assert list(loaded.evaluate(*arguments).rows) == ["embedding", *VECTOR_ROWS, "random", "oracle"]
    found = model.evaluate(*arguments)
    scaler = StandardScaler().fit(ROWS[~IS_TEST])
    ridge = RidgeCV(alphas=tuple(10.0**power for power in range(-2, 7)))
    ridge.fit(scaler.transform(ROWS[~IS_TEST]), TARGETS[~IS_TEST])
    rows = {
        "vectors": ROWS,
        "vectors, L2-normalised": ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True),
        "vectors, standardised": scaler.transform(ROWS),
        "ridge": ridge.predict(scaler.transform(ROWS))[:, None],
    }
    for name, embeddings in rows.items():
        slow = cml.retrieval.evaluate_embeddings(
            embeddings[IS_TEST], TARGETS[IS_TEST], embeddings[~IS_TEST], TARGETS[~IS_TEST]
        )
        for metric in ("spearman_rho", "label_distance@10"):
            assert found.rows[name][metric].mean == pytest.approx(slow.rows["embedding"][metric].mean, rel=1e-3)


def test_the_forms_of_vectors_are_those_that_tune_compares_heads_with(model: cml.Model) -> None:
    train, test = (ROWS[chosen].astype(np.float32) for chosen in (~IS_TEST, IS_TEST))
    for (name, (queries, gallery)), known in zip(
        compute_vector_forms(model.network, test, train).items(), frozen_maps(train).values(), strict=True
    ):
        np.testing.assert_allclose(queries, known.embed(test), atol=1e-5, err_msg=name)
        np.testing.assert_allclose(gallery, known.embed(train), atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_head_is_compared_with_the_best_form_of_its_vectors(tmp_path: Path) -> None:
    # the label is one wide column among forty narrow ones, which standardising makes as wide
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(0, 9, (300, 1)), rng.normal(0, 0.1, (300, 40))], axis=1)
    labels = rows[:, 0]
    evaluation = cml.fit(rows[:150], labels[:150], steps=100, **FAST).evaluate(rows[150:], labels[150:])  # type: ignore[arg-type]
    means = {name: evaluation.rows[name]["label_distance@10"].mean for name in evaluation.rows}
    assert means["vectors"] < means["embedding"] < means["vectors, standardised"]
    assert "worse than vectors, the best of 3 forms (" in evaluation.verdict
    assert "standardised" not in evaluation.verdict
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "labels.csv").write_text("\n".join(["label", *map(str, labels)]))
    table = {"source": tmp_path / "labels.csv", "vectors": tmp_path / "rows.npy", "label_columns": ("label",)}
    data = cml.prepare("table", tmp_path / "set", **table)
    sampler = "random(batch_size=64)"
    comparison = cml.compare("value", data, tmp_path / "out", losses=["cosent"], seeds=2, steps=100, sampler=sampler)
    assert [*comparison.rows()][1:4] == [*VECTOR_ROWS]
    assert comparison.verdict().startswith("Verdict: cosent is worse than vectors by ")
    page = (tmp_path / "out" / "retrieval_report.html").read_text()
    assert "vectors, standardised" not in page.partition("<table")[0] + page.rpartition("</table>")[2]
    figure = (tmp_path / "out" / "retrieval.svg").read_text()
    assert "vectors" in figure
    assert "L2-normalised" not in figure
    run = cml.open_run(tmp_path / "out" / "cosent" / "seed-0")
    assert "worse than vectors, the best of 3 forms (" in run.evaluate().verdict


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_baselines_of_many_vectors_are_read_in_parts(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", ROWS.astype(np.float16))
    if missing == "mean":
        rows = ROWS.astype(np.float16)
        rows[::5, 3] = np.nan
        np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model = cml.fit(mapped, TARGETS, steps=3, missing=missing, **FAST)  # type: ignore[arg-type]
    whole = model.evaluate(mapped, TARGETS)
    assert isinstance(model.network.standardize_in_parts(mapped), np.ndarray)
    monkeypatch.setattr(embedding, "_MOST_IN_MEMORY", 100)
    monkeypatch.setattr(sys.modules["cml.retrieval.embedding_ranker"], "_PART", 10 * 128)
    computed = model.network.standardize_in_parts(mapped)
    assert not isinstance(computed, np.ndarray)
    np.testing.assert_array_equal(computed[np.arange(5, 300, 7)], model.network.standardize(mapped)[5:300:7])
    in_parts = model.evaluate(mapped, TARGETS)
    assert list(in_parts.rows) == ["embedding", *VECTOR_ROWS, "ridge", "random", "oracle"]
    assert in_parts.to_json(per_query=True) == whole.to_json(per_query=True)


def test_labels_that_are_no_vectors_have_a_ridge_on_their_scaling() -> None:
    words = [[f"w{int(level)}", f"w{int(level) + 1}"] for level in TARGETS[:120] // 40]
    model = cml.fit(ROWS[:120], words, label_distance="jaccard", steps=3, **FAST)  # type: ignore[arg-type]
    assert list(model.evaluate(ROWS[:120], words).rows)[1:5] == [*VECTOR_ROWS, "ridge on label MDS"]
    assert model.predict(ROWS[:2], k=3)[0] in words


@pytest.mark.parametrize(
    ("label", "mend"),
    [
        (float("nan"), r"Leave out the items without a finite label, which np.isfinite\(labels\) finds\."),
        (float("inf"), r"Leave out the items without a finite label"),
        ("294", r"Convert the labels to numbers, for example by \[float\(label\) for label in labels\]\."),
        ("old", r"Mend the label, or choose another distance"),
        ([1.0, 2.0], r"Mend the label, or choose another distance"),
    ],
)
def test_a_label_that_does_not_fit_has_a_mend(label: Any, mend: str) -> None:  # noqa: ANN401
    labels = [*TARGETS[:40].tolist(), label]
    with pytest.raises(UserError, match=mend):
        cml.fit(ROWS[:41], labels, steps=1, **FAST)  # type: ignore[arg-type]


def test_a_comparison_says_once_what_columns_are_constant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "rows.npy", np.column_stack([ROWS[:120], np.full(120, 7.1)]))
    lines = ["label", *map(str, TARGETS[:120])]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    table = {"source": tmp_path / "labels.csv", "vectors": tmp_path / "rows.npy", "label_columns": ("label",)}
    data = cml.prepare("table", tmp_path / "set", **table)
    capsys.readouterr()
    losses = ["cosent", "log-ratio"]
    cml.compare("value", data, tmp_path / "out", losses=losses, seeds=1, steps=1, sampler="random(batch_size=20)")
    assert capsys.readouterr().err.count("1 of 11 columns of the training vectors are constant") == 1
