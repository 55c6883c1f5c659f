"""Prepared datasets of one's own in the benchmark, of vectors and of images: every verb works on them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.neighbors import KNeighborsRegressor

import cml
from cml.array_types import Float32
from cml.cli import main
from cml.comparing.bench import methods, result, sets, suite
from cml.comparing.bench.scores import LABEL_ERRORS
from cml.retrieval.embedding_ranker import embedding_ranker

METHODS = ["--methods", "cosent"]


@pytest.fixture(autouse=True)
def _as_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "VERSION", "tiny")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cml.prepare("diabetes", tmp_path_factory.mktemp("vectors") / "diabetes").folder


def test_drawing_trials_is_checked_before_anything_is_trained(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)  # as if it were not installed
    assert main(["bench", "--data", str(vectors), *METHODS, "--out", str(tmp_path / "results")]) == 2
    assert "Drawing trials needs the extra 'sweep'" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_every_verb_takes_a_dataset_of_vectors(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "results", ["--data", str(vectors)]
    main(["bench", *data, *METHODS, "--out", str(out)])
    shown = capsys.readouterr().out
    assert "own-diabetes" in shown
    assert f"cml bench check --rerun 2 {out / 'tiny'} --data {vectors}" in shown
    files = result.results_in(out)
    assert {path.relative_to(out).parent.as_posix() for path in files} == {"tiny/own-diabetes/A-none"}
    assert {path.stem for path in files} == {*methods.FIXED_ROWS, "cosent"}
    place = out / "tiny" / "own-diabetes" / "A-none"
    opened, frozen = sets.open_set("own-diabetes", "tiny"), result.read_result(place / "frozen.json")
    parts = (opened.train, opened.test(0, 0)[0])
    train, asked = (np.ravel(opened.distance.label_vectors(part.labels)) for part in parts)
    nearest = KNeighborsRegressor(10).fit(parts[0].vectors, train)
    errors = np.abs(nearest.predict(parts[1].vectors) - asked)
    assert frozen.mean("mae_knn") == pytest.approx(errors.mean(), rel=1e-5)
    assert {*LABEL_ERRORS} <= result.read_result(place / "cosent.json").scores.keys()
    main(["bench", "table", str(out), "--score", "mae_probe"])
    assert "Means of mae_probe" in capsys.readouterr().out
    main(["bench", "check", str(out), "--rerun", "3", *data])
    checked = capsys.readouterr().out
    assert "7 results read, 3 run again." in checked
    assert checked.count(": the same scores\n") == 3
    main(["bench", "table", str(out)])
    assert "label-mds" in capsys.readouterr().out
    main(["bench", "page", str(out), "--out", str(tmp_path / "leaderboard.html")])
    assert "own-diabetes" in (tmp_path / "leaderboard.html").read_text("utf-8")

    opened = sets.open_set("own-diabetes", "tiny")
    dataset = cml.open_dataset(vectors)
    rows, ids = [], []
    for role in dataset.info.roles:
        split = dataset.split(role)
        assert split.vectors is not None
        rows.append(split.vectors.read(np.arange(len(split))))
        ids += list(split.item_ids)
    # the row of the vectors, the slow way: standardised by the training items of the set
    every = dict(zip(ids, np.concatenate(rows).astype(np.float64), strict=True))
    train, query, gallery = (
        np.array([every[item] for item in part.item_ids]) for part in (opened.train, *opened.test(0, 0))
    )
    distances = opened.test_distances
    query, gallery = ((part - train.mean(axis=0)) / train.std(axis=0) for part in (query, gallery))
    scores = embedding_ranker(query, gallery)(slice(0, len(query)))
    chance, best = distances.mean(axis=1), np.sort(distances, axis=1)[:, :10].mean(axis=1)

    def score_slowly(scores: np.ndarray) -> float:
        ours = np.take_along_axis(distances, np.argsort(scores, axis=1)[:, :10], axis=1).mean(axis=1)
        return float((chance - ours).mean() / (chance - best).mean())

    assert checked_result(out, "frozen").mean() == pytest.approx(score_slowly(scores), abs=1e-5)

    # that of ridge regression ranks by the difference of two predictions of the label
    labels = opened.vectors
    assert labels is not None
    errors = {}  # of each strength, each item predicted by the others
    standard = (train - train.mean(axis=0)) / train.std(axis=0)
    rows_of = np.c_[standard, np.ones(len(standard))]
    for strength in (10.0**power for power in range(-2, 7)):
        penalty = strength * np.diag([*np.ones(standard.shape[1]), 0.0])
        inverse = np.linalg.inv(rows_of.T @ rows_of + penalty)
        left = (labels[:, 0] - rows_of @ inverse @ rows_of.T @ labels[:, 0]) / (
            1 - np.einsum("nf,fg,ng->n", rows_of, inverse, rows_of)
        )
        errors[strength] = float(np.square(left).mean()), inverse @ rows_of.T @ labels[:, 0]
    *weight, _ = min(errors.values(), key=lambda one: one[0])[1]
    apart = np.abs((query @ weight)[:, None] - (gallery @ weight)[None])
    assert checked_result(out, "ridge").mean() == pytest.approx(score_slowly(apart), abs=1e-5)


def checked_result(out: Path, method: str) -> result.Result:
    return result.read_result(result.result_path(out, "tiny", "own-diabetes", "A-none", method))


@pytest.mark.slow
def test_a_dataset_of_images_is_a_set_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cml.prepare("heads", tmp_path / "my heads", count=300).folder
    out = tmp_path / "results"
    main(["bench", "--data", str(folder), *METHODS, "--out", str(out)])
    assert (out / "tiny/own-my-heads/A-small-cnn/cosent.json").is_file()
    main(["bench", "check", str(out), "--data", str(folder)])
    assert "7 results read" in capsys.readouterr().out


@pytest.mark.slow
def test_the_rows_of_a_store_take_the_place_of_the_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = cml.prepare("people", tmp_path / "people", count=300, size=16).folder
    for name in ("first", "second"):
        cml.features(data, backbone=_mean_color if name == "first" else _first_pixel, out=tmp_path / name)
    own = ["--data", str(data), "--features", str(tmp_path / "first"), str(tmp_path / "second")]
    out = tmp_path / "results"
    main(["bench", *own, *METHODS, "--out", str(out)])
    shown = capsys.readouterr().out
    assert "own-people-first" in shown
    assert "own-people-second" in shown
    assert (
        f"cml bench check --rerun 2 {out / 'tiny'} --data {data} --features {tmp_path / 'first'} {tmp_path / 'second'}"
        in shown
    )
    main(["bench", "check", str(out), "--rerun", "2", *own])
    assert "12 results read, 2 run again." in capsys.readouterr().out
    opened = sets.open_set("own-people-first", "tiny")
    assert opened.train.vectors is not None
    assert opened.train.vectors.shape == (len(opened.train), 3)
    np.testing.assert_allclose(opened.train.vectors.mean(axis=0), 0, atol=1e-5)
    assert opened.split != sets.open_set("own-people-second", "tiny").split
    assert main(["bench", "--features", str(tmp_path / "first"), *METHODS]) == 2
    assert "name the dataset with --data" in capsys.readouterr().err


def _mean_color(paths: list[Path]) -> Float32:
    return np.stack([np.asarray(Image.open(path).convert("RGB"), np.float32).mean(axis=(0, 1)) for path in paths])


def _first_pixel(paths: list[Path]) -> Float32:
    return np.stack([np.asarray(Image.open(path).convert("RGB"), np.float32)[0, 0] for path in paths])


def test_what_does_not_fit_is_one_line(vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(vectors)]
    for options, message in [
        ([*data, "--track", "B"], "own-diabetes holds vectors: .* Got track B and the backbone ''"),
        ([*data, "--backbone", "small-cnn"], "Got track A and the backbone 'small-cnn'"),
        ([*data, "--sets", "digits"], "own-diabetes holds vectors and digits images"),
        (["--data", str(tmp_path / "none")], "none"),
    ]:
        assert main(["bench", *options, *METHODS, "--out", str(tmp_path / "results")]) != 0
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert re.search(message, error), error
    np.save(tmp_path / "few.npy", np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32))
    (tmp_path / "few.csv").write_text("id,age\n" + "".join(f"i{row},{row}\n" for row in range(60)))
    few = cml.prepare(
        "table", tmp_path / "few", source=tmp_path / "few.csv", vectors=tmp_path / "few.npy", label_columns=("age",)
    )
    assert main(["bench", "--data", str(few.folder), *METHODS, "--out", str(tmp_path / "results")]) != 0
    assert re.search(r"The \w+ part of .*few has \d+ items; the benchmark needs at least 20", capsys.readouterr().err)
    other = cml.prepare("diabetes", tmp_path / "diabetes").folder
    with pytest.raises(cml.errors.UserError, match="would both be the set 'own-diabetes'"):
        suite.add_own_sets([vectors, other])


def test_results_of_somebody_elses_dataset_ask_for_it(
    vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["bench", "--data", str(vectors), *METHODS, "--out", str(tmp_path)])
    monkeypatch.delitem(suite.SETS, "own-diabetes")
    capsys.readouterr()
    assert main(["bench", "check", str(tmp_path), "--rerun", "1"]) != 0
    shown = capsys.readouterr()
    assert "the set own-diabetes is somebody's own dataset: give its folder with --data" in shown.out
    main(["bench", "table", str(tmp_path)])
    assert "own-diabetes" in capsys.readouterr().out
