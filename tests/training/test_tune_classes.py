"""Tuning where the classes of the test are new: classes as groups are held out as a whole, and found within them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.array_types import Float32
from cml.data.vectors import Vectors
from cml.distances import as_label_distance
from cml.doors.evaluate_items import describe_selection
from cml.errors import UserError
from cml.items import LabelledItems
from cml.retrieval.item_units import groups_hold_classes
from cml.training.linear_map import LinearMap
from cml.tuning import heads, splits
from cml.tuning.scores import FirstItemsScore, make_split_score
from cml.tuning.splits import SPLITS, make_splits, share_held_out
from cml.tuning.tune import Tuning

CLASSES, EACH = 8, 25


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train heads for few steps on few splits."""
    monkeypatch.setattr(heads, "STOPS", (10, 30))
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)


def new_classes(seed: int = 0) -> tuple[Float32, np.ndarray]:
    """Items of twice 8 classes: four columns tell the first ones apart, and four others the second ones."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((2 * CLASSES, 12))
    centres[:CLASSES, :4] = rng.normal(size=(CLASSES, 4))
    centres[CLASSES:, 4:8] = rng.normal(size=(CLASSES, 4))
    names = np.repeat(np.arange(2 * CLASSES), EACH)
    rows = 3 * centres[names] + rng.normal(size=(len(names), 12))
    return rows.astype(np.float32), np.array([f"class {name}" for name in names])


def test_classes_are_groups_where_each_is_in_one_group() -> None:
    names = np.array(["a", "b", "a", "c"])
    assert groups_hold_classes(np.array([0, 1, 0, 2]), names)
    assert groups_hold_classes(np.array([0, 1, 0, 1]), names)  # groups of several classes
    assert not groups_hold_classes(np.array([0, 1, 2, 3]), names)
    assert not groups_hold_classes(np.array([0, 1, 0, 2]), None)


@pytest.mark.parametrize(("count", "held"), [(4, 2), (5, 2), (10, 2), (20, 4)])
def test_whole_classes_are_held_out_and_splits_differ(count: int, held: int) -> None:
    names = np.arange(200) % count
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    found, kind = make_splits(rows, names, names.astype(str))
    assert kind == "classes"
    of_splits = {tuple(np.unique(names[held_out])) for _, held_out in found}
    assert len(found) == len(of_splits) == SPLITS
    assert of_splits <= set(combinations(range(count), held))
    assert all(not {*names[trained]} & {*names[held_out]} for trained, held_out in found)
    assert share_held_out(found, kind) == pytest.approx(held / count)
    assert share_held_out(found, "groups") == 0.2


def test_unequal_classes_leave_two_on_either_side() -> None:
    names = np.concatenate([np.zeros(100, int), np.arange(40) % 3 + 1])  # one of 100 items, and three of 13 or 14
    rows = np.random.default_rng(0).normal(size=(140, 3)).astype(np.float32)
    found, _ = make_splits(rows, names, names.astype(str))
    assert len(found) == SPLITS
    assert all(len(np.unique(names[side])) == 2 for split in found for side in split)
    with pytest.raises(UserError, match=r"'groups' are the classes here.*Got 3\. Leave 'groups' out"):
        make_splits(rows[names > 0], names[names > 0], names[names > 0].astype(str))


def test_items_of_a_held_out_class_are_to_be_found() -> None:
    rng = np.random.default_rng(3)
    names = np.repeat(np.arange(4), 30)
    distance = as_label_distance("classes").fit(names.tolist())
    labels, rows = distance.encode(names.tolist()), rng.normal(size=(120, 3)).astype(np.float32)
    score = make_split_score(np.arange(60), labels, distance, "classes", names)
    assert isinstance(score.score, FirstItemsScore)
    identity = LinearMap(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    others = make_split_score(np.arange(60), labels, distance, "random")
    np.testing.assert_array_equal(score.score_map(identity, rows), others.score_map(identity, rows))
    with pytest.raises(UserError, match="all equally far from each other"):
        make_split_score(np.arange(60), labels, distance, "groups", names)


def test_a_verdict_names_a_choice_by_known_classes_where_those_of_the_queries_are_new() -> None:
    distance = as_label_distance("classes")
    rows, names = new_classes()
    queries = LabelledItems(Vectors(rows), distance.encode(names.tolist()), distance)
    head = Tuning(("h-ap",), "PCA", ("h-ap",), {"PCA": 0.5, "h-ap": 0.9}, 0.9, 0.4, 0.1, "random")
    said = describe_selection(head, ["class 99"], queries)
    assert said.startswith("No class of the queries was trained on, but tune held out items of classes that were")
    assert said.endswith("(groups=labels, or --group-column with the column of the class).")
    assert describe_selection(None, ["class 99"], queries) == ""
    assert describe_selection(head, None, queries) == ""
    assert describe_selection(head, ["class 99", "class 0"], queries) == ""
    assert describe_selection(replace(head, splits="classes"), ["class 99"], queries) == ""
    kept = replace(head, chosen=("frozen features",), frozen="frozen features")
    assert describe_selection(kept, ["class 99"], queries) == kept.describe_reference()


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("is_run", [False, True])
def test_classes_as_groups_keep_the_features_for_new_classes(is_run: bool, tmp_path: Path) -> None:
    """Heads drop what tells no known classes apart, on which the new ones differ."""
    rows, names = new_classes()
    half = CLASSES * EACH
    figures, verdicts, kinds = [], [], []
    for groups in (None, names[:half]):
        if is_run:
            options: dict[str, Any] = {} if groups is None else {"group_column": "class"}
            tested = cml.train("classes", _prepare(rows, names, tmp_path), tmp_path / f"run {len(kinds)}", tune=True,
                               dimension=4, quiet=True, **options)  # fmt: skip
            kinds.append(Tuning.load(tested.folder).splits)
            found = tested.evaluate()
        else:
            model = cml.fit(
                rows[:half], names[:half], tune=True, dimension=4, groups=groups, label_distance="classes", quiet=True
            )
            assert model.tuning is not None
            kinds.append(model.tuning.splits)
            found = model.evaluate(rows[half:], names[half:])
            grouped = model.evaluate(rows[half:], names[half:], groups=names[half:])  # each query finds its own class
            assert grouped.rows["embedding"]["map@r"].mean == found.rows["embedding"]["map@r"].mean
        figures.append(found.rows["embedding"]["map@r"].mean)
        verdicts.append(found.verdict)
    assert kinds == ["random", "classes"]
    assert figures[1] > figures[0] + 0.1
    assert "tune with the class as the group" in verdicts[0]
    assert "tune with the class as the group" not in verdicts[1]


def _prepare(rows: Float32, names: np.ndarray, folder: Path) -> Any:  # noqa: ANN401 - a prepared dataset
    np.save(folder / "rows.npy", rows)
    roles = np.where(np.arange(len(rows)) < len(rows) // 2, "train", "test")
    lines = [f"{number},{name},{role}" for number, (name, role) in enumerate(zip(names, roles, strict=True))]
    (folder / "labels.csv").write_text("\n".join(["id,class,split", *lines]))
    table = {"source": folder / "labels.csv", "vectors": folder / "rows.npy", "label_columns": ("class",)}
    folder = folder / f"set {len([*folder.iterdir()])}"
    return cml.prepare("table", folder, **table, kind="classes", split_column="split")
