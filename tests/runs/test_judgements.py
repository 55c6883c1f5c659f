"""Judged pairs and triplets from a table to an evaluation, in Python and by a prepared dataset."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import cml
from cml import PairJudgements, TripletJudgements, UserError, distances
from cml.cli import main as run_command
from cml.data.image_list import ImageList
from cml.data.images import read_image
from cml.distances.dataset_labels import encode_labels
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError
from cml.retrieval import evaluate_embeddings
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import main_metric
from cml.tuning import heads, splits
from cml.tuning.tune import check_tuned_labels

RNG = np.random.default_rng(0)
PLACES = RNG.normal(size=(160, 3))
# the judged directions are the weakest ones of the vectors
VECTORS = np.concatenate([PLACES * 0.5, 3 * RNG.normal(size=(160, 5))], axis=1).astype(np.float32)
DISTANCES = np.linalg.norm(PLACES[:, None] - PLACES, axis=2)


def pairs_of(items: int, share: float = 0.1, first: int = 0) -> np.ndarray:
    i, j = np.triu_indices(items, 1)
    chosen = np.random.default_rng(1).random(len(i)) < share
    i, j = i[chosen], j[chosen]
    return np.column_stack([i, j, DISTANCES[i + first, j + first]])


def triplets_of(items: int, count: int, first: int = 0, flips: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(2)
    triplets = np.array([rng.choice(items, 3, replace=False) for _ in range(count)])
    anchor, one, other = triplets.T + first
    swapped = (DISTANCES[anchor, one] > DISTANCES[anchor, other]) ^ (rng.random(count) < flips)
    triplets[swapped] = triplets[swapped][:, [0, 2, 1]]
    return triplets


def test_pairs_of_vectors_are_learned_and_evaluated_on_new_items() -> None:
    model = cml.fit(VECTORS[:100], PairJudgements(pairs_of(100), items=100), dimension=4, quiet=True)
    config = model.run_config.train
    assert (config.label_distance, config.loss, config.sampler) == ("judged-pairs", "pair-log-ratio", "pairs")
    assert (config.head_start, config.steps) == ("pca", 200)
    rows = model.evaluate(VECTORS[100:], PairJudgements(pairs_of(60, 0.5, 100), items=60)).rows
    found = {name: rows[name]["pair_spearman"].mean for name in ("embedding", "vectors", "random", "oracle")}
    assert found["embedding"] > found["vectors"] + 0.15
    assert abs(found["random"]) < 0.3
    assert found["oracle"] == pytest.approx(1)


def test_triplets_of_vectors_are_learned_though_some_are_wrong() -> None:
    judged = TripletJudgements(triplets_of(100, 3000, flips=0.2), items=100)
    model = cml.fit(VECTORS[:100], judged, dimension=4, quiet=True)
    config = model.run_config.train
    assert (config.loss, config.sampler, config.steps) == ("logistic-triplet", "triplets", 200)
    evaluation = model.evaluate(VECTORS[100:], TripletJudgements(triplets_of(60, 2000, 100), items=60))
    found = {name: row["triplet_agreement"].mean for name, row in evaluation.rows.items()}
    assert list(evaluation.rows["embedding"]) == ["triplet_agreement", "repeated_agreement"]
    assert "ridge" not in " ".join(evaluation.rows)  # no two labels can be compared
    assert found["embedding"] > found["vectors"] + 0.08
    assert found["oracle"] == 1
    assert found["random"] == pytest.approx(0.5, abs=0.06)


def test_judgements_evaluate_models_of_other_labels() -> None:
    """What people judged is read by its own label distance, whatever the model was trained with."""
    pairs = PairJudgements(pairs_of(60), items=60)
    triplets = TripletJudgements(triplets_of(60, 900), items=60)
    of_numbers = cml.fit(
        VECTORS[:100], PLACES[:100], steps=60, sampler="random(batch_size=50)", dimension=4, quiet=True
    )
    of_pairs = cml.fit(VECTORS[:60], pairs, dimension=4, steps=60, quiet=True)
    for model in (of_numbers, of_pairs):
        evaluation = model.evaluate(VECTORS[:60], triplets)
        assert "triplet_agreement" in evaluation.rows["embedding"]
        assert evaluation.rows["oracle"]["triplet_agreement"].mean == 1
        means = {name: row["triplet_agreement"].mean for name, row in evaluation.rows.items()}
        assert means["embedding"] > means["random"] + 0.05
    rows = of_numbers.evaluate(VECTORS[:60], pairs).rows
    assert rows["embedding"]["pair_spearman"].mean > rows["random"]["pair_spearman"].mean + 0.1
    with pytest.raises(UserError, match=r"no two of the .* labels checked can be compared\. Judged triplets have no"):
        of_pairs.audit(VECTORS[:60], triplets)


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_agreement_and_ceiling_are_of_the_same_judgements(kind: str) -> None:
    """Only some questions are repeated, and those have other noise than the rest: the ceiling is beside these alone."""
    rng = np.random.default_rng(4)
    if kind == "pairs":
        once, again = pairs_of(60, 0.3), np.repeat(pairs_of(60)[::2], 2, axis=0)
        again[:, 2] += 0.8 * rng.normal(size=len(again))
        again[:, 2] = again[:, 2].clip(0)
        asked = {tuple(pair) for pair in again[:, :2].tolist()}
        once = np.array([row for row in once.tolist() if tuple(row[:2]) not in asked])
        judged: Any = PairJudgements(np.concatenate([once, again]), items=60)
        expected = PairJudgements(again, items=60)
        names = "pair_spearman", "repeated_spearman"
    else:
        once, again = triplets_of(60, 2000), np.repeat(triplets_of(60, 900, flips=0.0)[:300], 3, axis=0)
        wrong = rng.random(len(again)) < 0.25
        again[wrong] = again[wrong][:, [0, 2, 1]]
        asked = {(row[0], *sorted(row[1:])) for row in again.tolist()}
        once = np.array(list({(r[0], *sorted(r[1:])): r for r in once.tolist()}.values()))
        once = np.array([row for row in once.tolist() if (row[0], *sorted(row[1:])) not in asked])
        judged = TripletJudgements(np.concatenate([once, again]), items=60)
        expected = TripletJudgements(again, items=60)
        names = "triplet_agreement", "repeated_agreement"
    rows = {"truth": PLACES[:60], "vectors": VECTORS[:60]}
    distance = distances.get(judged.label_distance)
    evaluation = evaluate_embeddings(PLACES[:60], judged, label_distance=distance, others=rows)
    alone = evaluate_embeddings(PLACES[:60], expected, label_distance=distance, others=rows)
    assert evaluation.repeated_questions == len(asked)
    assert evaluation.ceiling == pytest.approx(expected.ceiling)
    for name in ("embedding", "vectors", "oracle"):
        assert evaluation.rows[name][names[1]].mean == pytest.approx(alone.rows[name][names[0]].mean)
    # what knows the truth is near the ceiling, and not above it by much
    assert evaluation.rows["embedding"][names[1]].mean == pytest.approx(expected.ceiling, abs=0.08)
    assert evaluation.rows["embedding"][names[0]].mean > evaluation.rows["embedding"][names[1]].mean + 0.05
    assert main_metric(list(evaluation.rows["embedding"])) != names[1]


def test_a_report_states_the_learned_flip_rate(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    rows = [f"{a},{b},{c}" for a, b, c in triplets_of(60, 3000, flips=0.25).tolist()]
    (tmp_path / "triplets.csv").write_text("\n".join(["anchor,nearer,farther", *rows]))
    made = {"vectors": tmp_path / "vectors.npy", "triplets": tmp_path / "triplets.csv", "split": "judgements"}
    dataset = cml.prepare("judgements", tmp_path / "data", **made)
    run = cml.train("value", dataset, tmp_path / "run", dimension=4, quiet=True)
    parameters = load_file(tmp_path / "run" / "loss.safetensors")
    rate = float(0.5 * torch.sigmoid(10 * parameters["flip_logit"]))
    assert 0.1 < rate < 0.3
    page = run.retrieval_report().read_text("utf-8")
    assert f"a flip_rate of {rate:.3f}, the share of judgements that are wrong" in page
    save_file({"scale": torch.ones(2), "flip_logit": torch.ones(3)}, tmp_path / "run" / "loss.safetensors")
    with pytest.raises(DataError, match=r"loss\.safetensors does not hold the parameters of logistic-triplet"):
        run.retrieval_report()


def test_losses_are_compared_on_triplets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    rows = [f"{a},{b},{c}" for a, b, c in triplets_of(60, 900).tolist()]
    (tmp_path / "triplets.csv").write_text("\n".join(["anchor,nearer,farther", *rows]))
    made = {"vectors": tmp_path / "vectors.npy", "triplets": tmp_path / "triplets.csv"}
    dataset = cml.prepare("judgements", tmp_path / "data", **made)
    losses = ["--losses", "logistic-triplet", "logistic-triplet(normalize=true)", "--steps", "5", "--seeds", "2"]
    out = tmp_path / "compared"
    assert run_command(["compare", "value", "--data", str(dataset.folder), "--out", str(out), *losses]) == 0
    assert "triplet_agreement" in capsys.readouterr().out
    assert (out / "report.html").is_file()
    assert not (out / "retrieval.png").exists()


def test_few_repeated_judgements_give_no_ceiling() -> None:
    once = triplets_of(60, 400)
    judged = TripletJudgements(np.concatenate([once, once[:5]]), items=60)
    evaluation = evaluate_embeddings(PLACES[:60], judged, label_distance=distances.get("judged-triplets"))
    assert (evaluation.ceiling, evaluation.repeated_questions) == (None, 0)
    assert list(evaluation.rows["embedding"]) == ["triplet_agreement"]
    assert "at most" not in evaluation.verdict


def test_options_that_were_given_stay(capsys: pytest.CaptureFixture[str]) -> None:
    judged = PairJudgements(pairs_of(100), items=101)
    model = cml.fit(VECTORS[:101], judged, loss="cosent(scale=5.0)", sampler="linked(batch_size=16)", steps=3)
    config = model.run_config.train
    assert (config.loss, config.sampler, config.steps) == ("cosent(scale=5.0)", "linked(batch_size=16)", 3)
    assert "1 of 101 items have no judgement and are left out: 100" in capsys.readouterr().err


def test_wrong_combinations() -> None:
    judged = TripletJudgements(triplets_of(160, 900), items=160)
    with pytest.raises(
        UserError, match=r"Validation ranks held-out items .* and judged triplets none. Set evaluate_every"
    ):
        cml.fit(VECTORS, judged, evaluate_every=5, quiet=True)
    with pytest.raises(
        UserError, match=r"'tune' ranks held-out items by their label distances, and judged triplets have none: leave"
    ):
        cml.fit(VECTORS, judged, tune=True, quiet=True)
    few = PairJudgements(pairs_of(100, 0.02), items=100)
    with pytest.raises(UserError, match=r"too few pairs with a known label distance lie within the 20 held-out"):
        cml.fit(VECTORS[:100], few, tune=True, quiet=True)
    distance = distances.as_label_distance("judged-pairs")
    apart = distance.encode([["0", "7 1.0"], ["1", "8 2.0"], ["2", "9 3.0"]])
    with pytest.raises(UserError, match=r"'tune' ranks .* but none is known among the 3 items checked\. Give the dist"):
        check_tuned_labels(apart, distance)
    with pytest.raises(UserError, match="Judged triplets are orders and have no distances: take loss=logistic-triplet"):
        cml.fit(VECTORS, TripletJudgements(triplets_of(160, 50), items=160), loss="log-ratio", quiet=True)
    with pytest.raises(UserError, match="head_start=pca begins at the principal components of features"):
        cml.fit(VECTORS, PLACES, backbone="mlp(8)", head_start="pca", quiet=True)
    with pytest.raises(UserError, match="Got labels of 'euclidean' instead; take a loss over label distances"):
        cml.fit(VECTORS, PLACES, loss="logistic-triplet", quiet=True)


def test_tune_says_that_it_chooses_for_new_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "STOPS", (2, 4))
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    rows = [f"{int(first)},{int(other)},{similarity}" for first, other, similarity in pairs_of(60, 0.5)]
    (tmp_path / "pairs.csv").write_text("\n".join(["item,other,similarity", *rows]))
    made = {"vectors": tmp_path / "vectors.npy", "pairs": tmp_path / "pairs.csv"}
    line = "tune holds out items and so chooses for new items."
    for split, is_said in (("judgements", True), ("items", False)):
        data = cml.prepare("judgements", tmp_path / split, split=split, **made)
        capsys.readouterr()
        cml.train("value", data, tmp_path / f"run-{split}", tune=True, tune_losses=("log-ratio",), dimension=2)
        said = capsys.readouterr().err
        assert (line in said) == is_said


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for number, place in enumerate(PLACES[:60]):
        pixels = np.full((24, 24, 3), 128 + 40 * place).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    return folder


def write(path: Path, header: str, rows: np.ndarray) -> Path:
    texts = []
    for row in rows:
        cells = [f"{cell:02.0f}.png" for cell in row]
        if "distance" in header:
            cells[2] = f"{row[2]:.4f}"
        texts.append(",".join(cells))
    path.write_text("\n".join([header, *texts, ""]))
    return path


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_a_prepared_dataset_is_trained_and_evaluated(
    kind: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "pairs":
        rows = np.concatenate([pairs_of(58, 0.4)] * 2)
        file = write(tmp_path / "pairs.csv", "item,other,distance", rows)
    else:
        file = write(tmp_path / "triplets.csv", "anchor,nearer,farther", np.repeat(triplets_of(58, 4000), 2, axis=0))
    dataset = cml.prepare("judgements", tmp_path / "data", images=images, **{kind: file})
    said = capsys.readouterr().err
    assert "2 of 60 items have no judgement and are left out: 58.png, 59.png" in said
    assert f"{kind} to train on" in said
    assert dataset.info.details["judgements"]["ceiling"] == pytest.approx(1)
    assert sum(dataset.info.counts.values()) == 58
    run = cml.train(
        "value",
        dataset,
        tmp_path / "run",
        backbone="small-cnn",
        weights="none",
        image_size=(24, 24),
        freeze_backbone=True,
        steps=20,
        workers=0,
        quiet=True,
    )
    name = {"pairs": "pair_spearman", "triplets": "triplet_agreement"}[kind]
    assert run.config.train.sampler == kind
    evaluation = run.evaluate()
    assert evaluation.rows["oracle"][name].mean == pytest.approx(1)
    assert evaluation.ceiling == pytest.approx(1)  # all was judged twice, with one answer
    both = evaluation.rows["embedding"]
    repeated = {"pairs": "repeated_spearman", "triplets": "repeated_agreement"}[kind]
    assert both[repeated].mean == pytest.approx(both[name].mean)
    said = f"On the {evaluation.repeated_questions} {kind} that were judged several times, {repeated} is "
    assert said in evaluation.verdict
    assert "; 1.00 is the highest value that the disagreement among these judgements allows" in evaluation.verdict
    assert Evaluation.from_json(evaluation.to_json()).ceiling == pytest.approx(1)
    page = run.retrieval_report().read_text("utf-8")
    assert f"{repeated} ({evaluation.repeated_questions} questions)" in page
    assert "<bdi>ceiling</bdi>" in page
    assert f"<bdi>{both[name].mean:.3f}</bdi>" in page
    assert ("share of a query&#39;s judgements that logistic-triplet does not" in page) == (kind == "triplets")
    assert ("is its label distance to the query" in page) == (kind == "pairs")
    assert "not judged" not in page
    assert ("has learned a flip_rate of 0.0" in page) == (kind == "triplets")


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_judgements_are_held_out_by_question(kind: str, images: Path, tmp_path: Path) -> None:
    if kind == "pairs":
        file = write(tmp_path / "pairs.csv", "item,other,distance", pairs_of(60, 0.4))
    else:
        file = write(tmp_path / "triplets.csv", "anchor,nearer,farther", triplets_of(60, 2000))
    made = {"images": images, kind: file, "split": "judgements", "test_fraction": 0.2}
    dataset = cml.prepare("judgements", tmp_path / "data", **made)
    assert dataset.info.queries_are_known
    train, query = dataset.split("train"), dataset.split("query")
    assert {item_id.removesuffix(" (test)") for item_id in query.item_ids} <= set(train.item_ids)
    assert all(item_id.endswith(".png (test)") for item_id in query.item_ids)
    options = {"backbone": "small-cnn", "weights": "none", "image_size": (24, 24), "freeze_backbone": True}
    run = cml.train("value", dataset, tmp_path / "run", steps=5, workers=0, quiet=True, **options)
    sides = [encode_labels(run.distance, dataset, role) for role in ("train", "query")]
    asked = [asked_of(run.distance, labels, kind) for labels in sides]
    assert asked[0].isdisjoint(asked[1])
    assert len(asked[1]) == round(0.2 * (len(asked[0]) + len(asked[1])))
    assert "this measures new judgements of known items" in run.evaluate().verdict
    assert "this measures new judgements of known items" in run.retrieval_report().read_text("utf-8")


def asked_of(distance: LabelDistance, labels: Labels, kind: str) -> set[tuple[int, ...]]:
    """The questions that labels answer, by the numbers of their items."""
    numbers = labels.arrays["items"]
    if kind == "pairs":
        pairs = distance.known_pairs(labels)
        return {tuple(sorted(pair)) for pair in zip(numbers[pairs.first], numbers[pairs.second], strict=True)}
    known = distance.known_triplets(labels)
    items = zip(numbers[known.anchor], numbers[known.nearer], numbers[known.farther], strict=True)
    return {(anchor, *sorted(others)) for anchor, *others in items}


def test_a_check_does_not_report_queries_that_are_training_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).resize((64, 64), Image.Resampling.BILINEAR).save(tmp_path / f"images/{number:02}.png")
    file = write(tmp_path / "pairs.csv", "item,other,distance", pairs_of(30, 0.6))
    dataset = cml.prepare("judgements", tmp_path / "data", images=tmp_path / "images", pairs=file, split="judgements")
    store = tmp_path / "features"
    network = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "24", "24"]
    run_command(["features", "--data", str(dataset.folder), "--out", str(store), *network])
    check = ["check", str(dataset.folder), "--features", str(store)]
    capsys.readouterr()
    assert run_command(check) == 0
    said = capsys.readouterr().out
    assert "queries are training items again, with other judgements" in said
    assert "duplicates: " not in said
    info = json.loads((dataset.folder / "dataset.json").read_text())
    del info["details"]["queries"]  # any other dataset with such items is reported
    (dataset.folder / "dataset.json").write_text(json.dumps(info))
    assert run_command(check) == 0
    said = capsys.readouterr().out
    assert "near-duplicates: " in said
    assert "feature-duplicates: " in said


@pytest.mark.slow
def test_what_compares_items_knows_that_queries_are_training_items(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    rows = [f"{one:.0f},{other:.0f},{far}" for one, other, far in pairs_of(60, 0.5)]
    (tmp_path / "pairs.csv").write_text("\n".join(["item,other,distance", *rows]))
    made = {"vectors": tmp_path / "vectors.npy", "pairs": tmp_path / "pairs.csv", "split": "judgements"}
    dataset = cml.prepare("judgements", tmp_path / "data", **made)
    assert sorted(ImageList.open(dataset.folder).item_ids) == sorted(dataset.split("train").item_ids)
    queries = ImageList.open(dataset.folder, ("query", "gallery"))
    assert list(queries.item_ids) == list(dataset.split("query").item_ids)
    run = cml.train("value", dataset, tmp_path / "run", steps=5, quiet=True)
    with pytest.raises(UserError, match=r"The split is by judgements: prepare the dataset with --split items\.$"):
        run.calibrate()
    with pytest.raises(UserError, match=r"are training items again, with other judgements\. Name one split, train or"):
        run.explore(splits=["train", "query"])
    assert set(run.items().roles) == {"query"}
    page = Path(str(run.explore(maps=["pca"]))).read_text("utf-8")
    assert "this measures new judgements of known items" in page
    assert '"held_out":false' in page.replace(" ", "")
    run.evaluate()
    run.export_hub(tmp_path / "shared")
    card = (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert "Held-out judgements of the training items; `embedding`" in card
    assert set(run.audit().roles) == {"train"}


def test_bad_shares_of_judgements_are_one_line(images: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.csv", "item,other,distance", pairs_of(60, 0.05))
    made: dict[str, Any] = {"images": images, "pairs": file, "split": "judgements"}
    with pytest.raises(
        DataError, match=r"pairs\.csv: A test_fraction of 0\.001 of \d+ pairs leaves none on the test side"
    ):
        cml.prepare("judgements", tmp_path / "data", test_fraction=0.001, **made)
    few = write(tmp_path / "few.csv", "item,other,distance", pairs_of(60, 0.05)[:19])
    with pytest.raises(DataError, match=r"few\.csv: To hold out judgements takes at least 20 different pairs\. Got 19"):
        cml.prepare("judgements", tmp_path / "data", **{**made, "pairs": few})
    with pytest.raises(UserError, match="split"):
        cml.prepare("judgements", tmp_path / "data", **{**made, "split": "raters"})
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    names = ["0", "0 (test)", *map(str, range(2, 60))]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    rows = [f"{names[int(one)]},{names[int(other)]},{far}" for one, other, far in pairs_of(60, 0.4)]
    file.write_text("\n".join(["item,other,distance", *rows]))
    made = {"vectors": tmp_path / "vectors.npy", "names": tmp_path / "names.txt", "pairs": file, "split": "judgements"}
    with pytest.raises(DataError, match=r"the name '0 \(test\)' would also be that of a test item\. Rename the item"):
        cml.prepare("judgements", tmp_path / "data", **made)


def test_a_network_is_trained_on_linked_batches(images: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.csv", "item,other,distance", pairs_of(60, 0.2))
    dataset = cml.prepare("judgements", tmp_path / "data", images=images, pairs=file)
    options = {"backbone": "small-cnn", "weights": "none", "image_size": (24, 24), "steps": 2, "workers": 0}
    run = cml.train("value", dataset, tmp_path / "run", flip="none", quiet=True, **options)
    assert (run.config.train.loss, run.config.train.sampler) == ("pair-log-ratio", "linked")


BAD_FILES = [
    ("item,other,distance\n00.png,nowhere.png,1\n", r"pairs.csv:2 names the other 'nowhere.png', which is none"),
    ("item,other,distance\n00.png,00.png,1\n", r"pairs.csv:2 pairs '00.png' with itself; delete it"),
    ("item,other,distance\n00.png,01.png,far\n", r"pairs.csv:2 has the distance 'far', which should be a number"),
    ("item,other,distance\n00.png,nowhere.png,1\n", r"none of the 60 items, such as '00.png'"),
    ("item,other\n00.png,01.png\n", r"pairs.csv: The judged pairs have no column 'distance'"),
    ("item,other,distance\n00.png,01.png,1\n", r"pairs.csv judges 2 items; at least 16 are needed"),
]


@pytest.mark.parametrize(("text", "said"), BAD_FILES)
def test_bad_files_are_one_line(text: str, said: str, images: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(DataError, match=said) as raised:
        cml.prepare("judgements", tmp_path / "data", images=images, pairs=tmp_path / "pairs.csv")
    assert "\n" not in str(raised.value)


def test_bad_rows_are_skipped_and_a_dataset_is_of_one_kind(images: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.csv", "item,other,distance", pairs_of(60, 0.3))
    with file.open("a") as lines:
        lines.write("00.png,nowhere.png,1\n")
    dataset = cml.prepare("judgements", tmp_path / "data", images=images, pairs=file, skip_bad=True)
    assert dataset.info.details["skipped"]["count"] == 1
    with pytest.raises(UserError, match=r"Give either 'pairs' \(--pairs\) or 'triplets' .* Got neither"):
        cml.prepare("judgements", tmp_path / "none", images=images)
    with pytest.raises(UserError, match="Got both; prepare a dataset of each"):
        cml.prepare("judgements", tmp_path / "both", images=images, pairs=file, triplets=file)


def test_judged_images_of_few_bits_are_scaled(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(160):
        values = np.linspace(0, 1023 - number, 16 * 16).reshape(16, 16).astype(np.uint16)
        Image.fromarray(values).save(tmp_path / "images" / f"{number:03}.png")
    names = [f"{number:03}.png" for number in range(160)]
    rows = [f"{names[int(i)]},{names[int(j)]},{distance}" for i, j, distance in pairs_of(160)]
    (tmp_path / "pairs.csv").write_text("\n".join(["item,other,distance", *rows]))
    options: dict[str, Any] = {"images": tmp_path / "images", "pairs": tmp_path / "pairs.csv", "bits": 10}
    dataset = cml.prepare("judgements", tmp_path / "set", **options)
    assert all(read_image(path).max() > 210 for path in dataset.split("train").paths)
    np.save(tmp_path / "vectors.npy", VECTORS)
    del options["images"]
    with pytest.raises(UserError, match=r"'bits' \(--bits\) are those of images: leave them out"):
        cml.prepare("judgements", tmp_path / "other", vectors=tmp_path / "vectors.npy", **options)
    with pytest.raises(UserError, match=r"bits of images should be from 8 to 16\. Got 3"):
        cml.prepare("judgements", tmp_path / "other", **{**options, "images": tmp_path / "images", "bits": 3})


@pytest.mark.slow
@pytest.mark.parametrize("are_named", [False, True])
def test_judged_vectors_are_prepared_trained_and_evaluated(are_named: bool, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS[:60])
    names = [f"item {number}" if are_named else str(number) for number in range(60)]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    table = pairs_of(60, 0.4)
    rows = [f"{names[int(one)]},{names[int(other)]},{distance:.4f}" for one, other, distance in table]
    (tmp_path / "pairs.csv").write_text("\n".join(["item,other,distance", *rows, ""]))
    options = {"names": tmp_path / "names.txt"} if are_named else {}
    dataset = cml.prepare(
        "judgements", tmp_path / "data", vectors=tmp_path / "vectors.npy", pairs=tmp_path / "pairs.csv", **options
    )
    assert dataset.info.name == "vectors"
    for role in ("train", "query"):
        split = dataset.split(role)
        chosen = [names.index(name) for name in split.item_ids]
        assert split.vectors is not None
        np.testing.assert_array_equal(split.vectors.read(np.arange(len(split))), VECTORS[chosen])
    run = cml.train("value", dataset, tmp_path / "run", dimension=4, steps=100, quiet=True)
    rows = run.evaluate().rows
    assert rows["embedding"]["pair_spearman"].mean > rows["vectors"]["pair_spearman"].mean + 0.1
    assert rows["oracle"]["pair_spearman"].mean == pytest.approx(1)


def test_bad_vectors_and_names_are_one_line(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "vectors.npy"
    np.save(file, VECTORS[:60])
    (tmp_path / "pairs.csv").write_text(
        "\n".join(["item,other,distance", *(f"{one:.0f},{other:.0f},{far}" for one, other, far in pairs_of(60, 0.4))])
    )
    pairs = {"pairs": tmp_path / "pairs.csv"}
    with pytest.raises(UserError, match=r"Give either 'images' \(--images\) or 'vectors' \(--vectors\). Got neither"):
        cml.prepare("judgements", tmp_path / "data", **pairs)
    with pytest.raises(UserError, match="Got both"):
        cml.prepare("judgements", tmp_path / "data", images=images, vectors=file, **pairs)
    names = tmp_path / "names.txt"
    names.write_text("a\nb\n")
    with pytest.raises(UserError, match="Images are named by their paths"):
        cml.prepare("judgements", tmp_path / "data", images=images, names=names, **pairs)
    with pytest.raises(DataError, match=r"names.txt has 2 names, but .*vectors.npy has 60 rows"):
        cml.prepare("judgements", tmp_path / "data", vectors=file, names=names, **pairs)
    names.write_text("a\n" * 60)
    with pytest.raises(DataError, match=r"names.txt:2: the name 'a' is also that of .*names.txt:1; names must differ"):
        cml.prepare("judgements", tmp_path / "data", vectors=file, names=names, **pairs)
    holed = VECTORS[:60].copy()
    holed[7, 2] = np.nan
    np.save(file, holed)
    with pytest.raises(DataError, match=r"vectors.npy, row 7: column 2 should be a finite float32. Got nan instead"):
        cml.prepare("judgements", tmp_path / "data", vectors=file, **pairs)
    dataset = cml.prepare("judgements", tmp_path / "data", vectors=file, skip_bad=True, **pairs)
    assert dataset.info.details["skipped"]["count"] == 1
    assert "7" not in [*dataset.split("train").item_ids, *dataset.split("query").item_ids]
    np.save(file, VECTORS[:60, 0])
    with pytest.raises(DataError, match=r"vectors.npy should hold vectors, \(N, F\) floats. It holds \(60,\), float32"):
        cml.prepare("judgements", tmp_path / "more", vectors=file, **pairs)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "judgements.md"
    cells = re.findall(r"```\{code-cell\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(cells) == 9
    names: dict[str, Any] = {}
    for cell in cells:
        exec(cell, names)
    agreement = {flips: rows["embedding"]["triplet_agreement"].mean for flips, rows in names["agreement"].items()}
    assert agreement[0.0] > 0.95
    assert agreement[0.3] > 0.85
    assert 0.7 < names["judged"].ceiling < 0.9
    assert names["evaluation"].repeated_questions == len(names["judged"].questions)
    assert names["evaluation"].ceiling == names["judged"].ceiling
    names["plt"].close("all")
