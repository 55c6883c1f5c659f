"""The explorer of models that are given in Python: of vectors, of judgements, of a table with an audit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_diabetes

import cml
from cml import PairJudgements, TripletJudgements, UserError

ROWS, TARGETS = load_diabetes(return_X_y=True)
IS_TEST = np.arange(len(ROWS)) % 3 == 0
VECTORS = np.random.default_rng(0).normal(size=(60, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> cml.Model:
    return cml.fit(ROWS[~IS_TEST], TARGETS[~IS_TEST], steps=30, sampler="random(batch_size=64)", quiet=True)


def test_the_explorer_of_a_model_shows_names_labels_and_pictures(model: cml.Model, tmp_path: Path) -> None:
    rows, labels = ROWS[:30], TARGETS[:30].tolist()
    names = [f"patient {number}" for number in range(30)]
    pictures: list[Any] = [Image.new("RGB", (20, 10), (number, 0, 0)) for number in range(30)]
    pictures[3].save(tmp_path / "3.png")
    pictures[3] = tmp_path / "3.png"
    page = model.explore(rows, labels, tmp_path / "page.html", names=names, pictures=pictures, maps=["pca"])
    text = page.path.read_text()
    assert "patient 29" in text
    assert f"{labels[4]:.3g}" in text
    assert "<iframe" in page._repr_html_()
    with pytest.raises(UserError, match=r"'names' must be as many as the 30 inputs. Got 29 instead"):
        model.explore(rows, labels, names=names[1:])
    with pytest.raises(UserError, match="at least 4 items to explore"):
        model.explore(rows[:3], labels[:3], maps=["pca"])


def test_an_explorer_of_triplets_has_no_tab_of_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    near = np.linalg.norm(VECTORS[:, None, :2] - VECTORS[:, :2], axis=2)
    triplets = np.array([rng.choice(60, 3, replace=False) for _ in range(900)])
    anchor, nearer, farther = triplets.T
    swapped = near[anchor, nearer] > near[anchor, farther]
    triplets[swapped] = triplets[swapped][:, [0, 2, 1]]
    i, j = np.triu_indices(60, 1)
    pairs = np.column_stack([i, j, near[i, j]])[rng.random(len(i)) < 0.3]
    judged = TripletJudgements(triplets, items=60)
    model = cml.fit(VECTORS, judged, steps=5, quiet=True)
    model.explore(VECTORS, judged, tmp_path / "explorer.html", maps=["pca"])
    page = (tmp_path / "explorer.html").read_text("utf-8")
    assert "oracle (the labels)" not in page
    assert "There is no map of the labels, for no label distance is known" in page
    linked = PairJudgements(pairs, items=60)
    model = cml.fit(VECTORS, linked, steps=5, quiet=True)
    model.explore(VECTORS, linked, tmp_path / "pairs.html", maps=["pca"])
    assert "oracle (the labels)" in (tmp_path / "pairs.html").read_text("utf-8")


def test_an_audit_is_a_column_of_the_explorer(tmp_path: Path) -> None:
    cml.prepare("diabetes", tmp_path / "set")
    run = cml.train("value", tmp_path / "set", tmp_path / "run", steps=2, sampler="random(batch_size=64)", quiet=True)
    run.audit()
    assert "audit score" in Path(str(run.explore(maps=["pca"], beside=()))).read_text("utf-8")
