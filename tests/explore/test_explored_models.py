"""The explorer of models that are given in Python: of vectors, of judgements, of a table with an audit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_diabetes

import cml
from cml import PairJudgements, TripletJudgements, UserError
from cml.explore.explore_items import ExploreOptions
from cml.option_types import check_options

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


def test_the_columns_of_a_frame_are_explored(tmp_path: Path) -> None:
    frame = load_diabetes(as_frame=True).frame
    columns: dict[str, Any] = {"features": ["age", "bmi", "bp"], "label": "target"}
    model = cml.fit(frame, steps=3, sampler="random(batch_size=64)", quiet=True, **columns)
    page = model.explore(frame, label="target", path=tmp_path / "page.html", maps=["pca"])
    assert "000441" in page.path.read_text("utf-8")


@pytest.mark.usefixtures("short_audit")
def test_audit_features_and_further_columns_of_a_dataset_are_shown(tmp_path: Path) -> None:
    rows = zip(*ROWS.T[:2], TARGETS, strict=True)
    lines = [f"{a:.4f},{b:.4f},{label},place {number % 5}" for number, (a, b, label) in enumerate(rows)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label,site", *lines]), "utf-8")
    kept: dict[str, Any] = {"features": ("a", "b"), "label_columns": ("label",), "keep_columns": ("site",)}
    cml.prepare("table", tmp_path / "set", source=tmp_path / "rows.csv", **kept)
    run = cml.train("value", tmp_path / "set", tmp_path / "run", steps=2, sampler="random(batch_size=64)", quiet=True)
    run.audit()
    page = Path(str(run.explore(maps=["pca"], beside=("frozen",)))).read_text("utf-8")
    for shown in ("audit score", "vectors, standardised", '"site"', "place 4"):
        assert shown in page


def test_options_of_the_explorer_are_converted_and_checked() -> None:
    assert check_options(ExploreOptions(maps=["pca"])).maps == ("pca",)
    with pytest.raises(UserError, match=r"'beside' must be a list of texts\. Got 'oracle' instead\. Did you mean"):
        check_options(ExploreOptions(beside="oracle"))
