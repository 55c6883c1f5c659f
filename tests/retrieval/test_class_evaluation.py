from __future__ import annotations

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import slow_class_retrieval as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import cml.retrieval.metrics
from cml import cli, distances
from cml.array_types import Float64
from cml.data.check_dataset import check_dataset
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, PreparedWriter
from cml.doors.retrieved import retrieve
from cml.doors.trained_run import TrainedRun
from cml.errors import DataError, UserError
from cml.retrieval import EvaluateOptions, embedding_ranker, evaluate
from cml.retrieval.metrics import compute_map_at_r, compute_r_precision, compute_recall

KS = (1, 2, 4)
CLASSES = distances.get("classes")
RECALL_ALONE = EvaluateOptions(recall_ks=(1,), distance_ks=(), ndcg_ks=(), hit_ks=(), whole_ranking=False)


def measured(
    query: Float64,
    gallery: Float64,
    query_classes: list[str],
    gallery_classes: list[str],
    same_items: bool,
    ks: tuple[int, ...] = (1, 2),
    block_bytes: int = 4 << 20,
) -> dict[str, Float64]:
    result = evaluate(
        {"model": embedding_ranker(query, gallery)},
        CLASSES,
        CLASSES.encode(query_classes),
        CLASSES.encode(gallery_classes),
        EvaluateOptions(
            recall_ks=ks, distance_ks=(1,), ndcg_ks=(), hit_ks=(), whole_ranking=False, block_bytes=block_bytes
        ),
        same_items=same_items,
    )
    assert result.gallery == len(gallery) - same_items
    return {name: metric.per_query for name, metric in result.rows["model"].items()}


classes = st.lists(st.sampled_from(["wren", "gull", "owl"]), min_size=6, max_size=40)


@settings(deadline=None, max_examples=50)
@given(classes, st.integers(0, 1000), st.integers(1, 3), st.booleans())
def test_measures_agree_with_loops(labels: list[str], seed: int, grid: int, same_items: bool) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(4 * grid, 2))[rng.integers(0, 4 * grid, len(labels))]  # few places: many ties
    cut = 0 if same_items else len(labels) // 3
    query, gallery = (points, points) if same_items else (points[:cut], points[cut:])
    names = (labels, labels) if same_items else (labels[:cut], labels[cut:])
    found = measured(query, gallery, *names, same_items, KS, block_bytes=1)
    for number, point in enumerate(query):
        ranked = slow.ranking(point, gallery, number, number if same_items else None)
        expected = slow.measures(ranked, names[0][number], names[1], KS)
        for name, value in expected.items():
            assert found[name][number] == pytest.approx(value, nan_ok=True), name
        wrong = names[1][ranked[0]] != names[0][number]
        assert found["label_distance@1"][number] == wrong


def test_a_query_that_is_the_gallery_does_not_find_itself() -> None:
    points = np.array([[0.0], [0.1], [5.0], [5.1]])
    found = measured(points, points, ["a", "b", "a", "b"], ["a", "b", "a", "b"], same_items=True)
    assert found["recall@1"].tolist() == [0, 0, 0, 0]
    assert found["recall@2"].tolist() == [1, 0, 0, 1]
    with_itself = measured(points, points, ["a", "b", "a", "b"], ["a", "b", "a", "b"], same_items=False)
    assert with_itself["recall@1"].tolist() == [1, 1, 1, 1]


def test_a_query_alone_of_its_class_may_count_as_a_miss_of_recall() -> None:
    labels = CLASSES.encode(["a", "a", "b"])
    points = np.array([[0.0], [1.0], [9.0]])
    for singletons_as_misses, mean, said in (
        (False, 1.0, "a query alone of its class is left out"),
        (True, 2 / 3, "is a miss"),
    ):
        found = evaluate(
            {"model": embedding_ranker(points, points)}, CLASSES, labels, labels,
            replace(RECALL_ALONE, singletons_as_misses=singletons_as_misses), same_items=True,
        )  # fmt: skip
        for row in found.rows.values():
            assert row["recall@1"].mean == pytest.approx(mean)
            assert row["map@r"].mean == 1  # which does not exist for it
        assert said in found.table()


def test_oracle_is_perfect_and_a_class_of_one_is_undefined() -> None:
    labels = CLASSES.encode(["a", "a", "a", "b", "b", "c"])
    result = evaluate(
        {"random": embedding_ranker(np.eye(6), np.eye(6))}, CLASSES, labels, labels, RECALL_ALONE, same_items=True
    )
    for name in ("recall@1", "map@r", "r_precision"):
        metric = result.rows["oracle"][name]
        assert metric.mean == 1
        assert metric.undefined == 1
        assert math.isnan(metric.per_query[5])
        assert metric.higher_is_better
    table = result.table()
    assert table.splitlines()[0].split() == ["recall@1", "map@r", "r_precision"]
    assert "one of the first K has the query's class" in table


def test_settings_out_of_range() -> None:
    points = np.eye(4)
    labels = CLASSES.encode(["a", "a", "b", "b"])
    ranker = {"model": embedding_ranker(points, points)}
    with pytest.raises(UserError, match=r"'recall_ks' .* at most the gallery's 3 items.* Got \[1, 4\]"):
        evaluate(ranker, CLASSES, labels, labels, EvaluateOptions(recall_ks=(1, 4)), same_items=True)
    with pytest.raises(UserError, match=r"as many as it\. Got 3 and 4"):
        evaluate(ranker, CLASSES, labels[:3], labels, same_items=True)
    retrieved = np.zeros((1, 2), np.float32)
    with pytest.raises(UserError, match=r"at most 2\. Got \[3\]"):
        compute_recall(retrieved, np.array([2.0]), [3])
    for measure in (compute_map_at_r, compute_r_precision):
        with pytest.raises(UserError, match="has 3 relevant items, but only 2 were retrieved"):
            measure(retrieved, np.array([3.0]))


def info(**details: object) -> DatasetInfo:
    return DatasetInfo("birds", "classes", "class", "", "", "", "", details=details)


def write(folder: Path, roles: dict[str, int], **details: object) -> PreparedDataset:
    """Squares of three colours, each with its bird as the class."""
    birds = ("wren", "gull", "owl")
    rng = np.random.default_rng(0)
    with PreparedWriter(folder, info(**details)) as writer:
        for role, count in roles.items():
            for number in range(count):
                pixels = rng.integers(0, 90, (16, 16, 3), dtype=np.uint8)
                pixels[:, :, number % 3] += 120
                writer.add(
                    [
                        Item(
                            item_id=f"{role} {number}",
                            role=role,
                            image=Image.fromarray(pixels),
                            label=birds[number % 3],
                        )
                    ]
                )
    return PreparedDataset.open(folder)


def test_queries_that_are_the_gallery_are_said_in_dataset_json(tmp_path: Path) -> None:
    dataset = write(tmp_path / "birds", {"train": 6, "query": 6}, gallery="queries")
    assert dataset.info.queries_are_gallery
    assert dataset.split("gallery") == dataset.split("query")
    assert dict(dataset.info.counts) == {"train": 6, "query": 6, "gallery": 0}
    assert check_dataset(dataset.folder) == []
    with pytest.raises(UserError, match="would have no gallery items"):
        write(tmp_path / "other", {"train": 6, "query": 6})
    with pytest.raises(UserError, match="would have no query items; a dataset needs items of every role: train, query"):
        write(tmp_path / "third", {"train": 6}, gallery="queries")
    with pytest.raises(UserError, match=r"A role is one of train, query. Got 'gallery'"):
        write(tmp_path / "fourth", {"train": 6, "query": 6, "gallery": 1}, gallery="queries")
    apart = write(tmp_path / "apart", {"train": 6, "query": 3, "gallery": 3})
    assert not apart.info.queries_are_gallery
    saved = json.loads((apart.folder / "dataset.json").read_text())
    (apart.folder / "dataset.json").write_text(json.dumps({**saved, "details": {"gallery": "queries"}}))
    with pytest.raises(DataError, match=r"details\.gallery is 'queries', but metadata\.jsonl lists 3 gallery items"):
        PreparedDataset.open(apart.folder)


def test_train_and_evaluate_classes_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainedRun, "frozen", {})  # a second network, of which nothing is asked here
    data = write(tmp_path / "birds", {"train": 24, "query": 12}, gallery="queries", recall_ks=[1, 2, 100]).folder
    options = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--crop", "1"]
    options += ["--sampler", "per-class(batch_size=12, per_class=4)", "--steps", "15", "--workers", "0"]
    options += ["--learning-rate", "0.003", "--dimension", "8", "--warmup", "0"]
    run = tmp_path / "run"
    assert cli.main(["train", "classes", "--data", str(data), "--out", str(run), *options]) == 0
    assert cli.main(["evaluate", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["queries"], result["gallery"]) == (12, 11)
    row = result["rows"]["embedding"]
    assert {"recall@1", "recall@2", "map@r", "r_precision"} <= set(row)
    assert not [name for name in row if name.startswith(("ndcg", "hit", "kendall", "recall@100"))]
    assert row["recall@1"]["mean"] > 0.9
    assert result["rows"]["oracle"]["map@r"]["mean"] == 1
    trained = TrainedRun.open(run)
    found = retrieve(trained, {"embedding": trained.embeddings}, 5)
    for method in ("embedding", "oracle"):
        items = found.items[method]
        assert not (items == np.arange(12)[:, None]).any()  # no page shows a query as its own answer
        assert (found.distances[method][:, :3] == 0).all()


def test_published_ks_must_be_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cml.doors.dataset_report import published_recall_ks
    from cml.retrieval.embeddings import usable_recall_ks

    def ks(distance: str, gallery: int, **details: object) -> tuple[int, ...]:
        return usable_recall_ks(distances.get(distance), published_recall_ks(info(**details)), gallery)

    assert ks("classes", 31) == (1, 2, 4)
    assert ks("classes", 6) == (1,)
    assert ks("classes", 100, recall_ks=[10, 1]) == (10, 1)
    assert ks("euclidean", 100, recall_ks=[1]) == ()
    for wrong in ("1", [], [0], [1.5]):
        with pytest.raises(DataError, match=r"details\.recall_ks should list whole numbers"):
            ks("classes", 100, recall_ks=wrong)


def test_examples() -> None:
    failed, tried = doctest.testmod(cml.retrieval.metrics.map_at_r)
    assert tried > 0
    assert failed == 0
