"""The public Python API: what ``dir(cml)`` shows, its examples, and the way from images to results without commands."""

from __future__ import annotations

import doctest
import inspect
import json
import pydoc
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

import cml
from cml.cli import main
from cml.errors import UserError
from cml.retrieval import EvaluateOptions

TINY = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 8, "workers": 0}
LEVELS = np.linspace(0, 255, 40).round()
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "people"
    cml.prepare("people", folder, count=48, size=24)
    return folder


def test_dir_shows_what_there_is_and_each_has_a_docstring() -> None:
    assert dir(cml) == sorted(cml.__all__) == cml.__all__
    for part in (cml.distances, cml.losses, cml.models, cml.retrieval, cml.sampling):
        assert dir(part) == sorted(part.__all__)
        assert all(hasattr(part, name) for name in part.__all__)
    for name in cml.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(cml, name)), name
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = cml.fitt  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_public_name_has_an_example_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # with what the examples speak of: photos, data/mine, runs/mine
    Path("photos").mkdir()
    lines = ["file_name,age"]
    for number, level in enumerate(LEVELS):
        Image.new("RGB", (48, 40), (int(level), 90, 120)).save(f"photos/{number}.png")
        lines.append(f"{number}.png,{level}")
    Path("labels.csv").write_text("\n".join(lines))
    cml.prepare("folder", "data/mine", images="photos", labels="labels.csv", label_columns=("age",))
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    order = ["train", *(name for name in cml.__all__ if name != "train")]  # it makes the run that others open
    for name in order:
        if name == "__version__" or inspect.ismodule(thing := getattr(cml, name)):
            continue
        found = finder.find(thing, name, globs={"cml": cml, **vars(sys.modules[thing.__module__])})
        assert sum(len(one.examples) for one in found) > 0, name
        for one in found:
            assert runner.run(one).failed == 0, name


def test_a_model_embeds_evaluates_searches_and_saves(tmp_path: Path) -> None:
    model = cml.fit(IMAGES, LEVELS, steps=3, sampler="random(batch_size=20)", quiet=True, **TINY)
    assert repr(model) == "Model(small-cnn, 16 x 16 pixels -> 8 numbers, L2-normalised)"
    embeddings = model.embed(IMAGES)
    positions, distances = model.search(IMAGES[:5], embeddings, k=3)
    assert positions.shape == distances.shape == (5, 3)
    slow = np.linalg.norm(embeddings[:5, None] - embeddings[None], axis=2)
    np.testing.assert_allclose(distances, np.sort(slow, axis=1)[:, :3], atol=1e-5)

    every = model.evaluate(IMAGES, LEVELS)
    assert every.queries == 40
    assert every.gallery == 39  # each query against all others
    apart = model.evaluate(IMAGES[:8], LEVELS[:8], IMAGES[8:], LEVELS[8:])
    assert (apart.queries, apart.gallery) == (8, 32)
    assert apart.rows["oracle"]["spearman_rho"].mean == 1

    assert model.save(tmp_path / "saved") == tmp_path / "saved"
    again = cml.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.embed(IMAGES), embeddings)
    assert again.evaluate(IMAGES, LEVELS).to_json() == every.to_json()
    with pytest.raises(UserError, match="saved"):
        model.save(tmp_path / "saved")


def test_fit_keeps_a_run_that_opens(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"pixels": list(IMAGES), "level": LEVELS})
    out = tmp_path / "run"
    model = cml.fit(
        frame, image="pixels", label="level", steps=4, sampler="random(batch_size=10)", out=out, quiet=True, **TINY
    )
    run = cml.open_run(out)
    np.testing.assert_array_equal(run.model.embed(IMAGES), model.embed(IMAGES))
    assert run.config.train.steps == 4
    with pytest.raises(
        UserError, match=r"trained on images given in Python, .* cml\.load\(.*\)\.evaluate\(images, labels\)"
    ):
        run.evaluate()


def test_validation_works_as_on_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    cml.fit(
        IMAGES, LEVELS, steps=6, evaluate_every=2, validation_fraction=0.5, sampler="random(batch_size=10)", out=out,
        quiet=True, **TINY
    )  # fmt: skip
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "validation" in record] == [2, 4, 6]


def test_runs_are_trained_opened_and_compared_from_python(people: Path, tmp_path: Path) -> None:
    options = {**TINY, "steps": 4, "sampler": "random(batch_size=16)", "flip": "none"}
    run = cml.train("pose", people, tmp_path / "run", quiet=True, **options)
    evaluation = run.evaluate()
    saved = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert saved == evaluation.to_json(per_query=["label_distance@3"])
    assert evaluation.markdown().startswith("| ")
    frame = evaluation.to_pandas()
    assert set(frame.ranker) == set(evaluation.rows)
    assert frame.query("ranker == 'oracle' and metric == 'spearman_rho'")["mean"].item() == 1
    oracle = evaluation.to_dict()["oracle"]["spearman_rho"]
    assert oracle == {"mean": 1, "low": 1, "high": 1, "undefined": 0, "low_given_gallery": 1, "high_given_gallery": 1}
    ids = people_pairs(run, tmp_path / "pairs.csv")
    paired = run.evaluate(EvaluateOptions(recall_within=1e9), pairs=tmp_path / "pairs.csv")
    assert {name: row["pair_spearman"].mean > 0.99 for name, row in paired.rows.items()}["oracle"], ids
    assert paired.rows["embedding"]["recall@1"].mean == 1
    assert "pair_spearman: correlation with the similarity that people see" in paired.table()

    assert run.retrieval_report(queries=3, k=2).read_text().startswith("<!")
    assert repr(run).startswith("Run(")

    found = cml.compare("pose", people, tmp_path / "losses", losses=["log-ratio", "cosent"], seeds=1, **options)
    assert list(found.rows())[:2] == ["log-ratio", "cosent"]
    assert found.markdown() in (tmp_path / "losses" / "table.md").read_text()
    assert set(found.to_pandas().method) == set(found.rows())
    metric = next(name for name in found.rows()["cosent"] if name.startswith("ndcg@"))
    assert tuple(found.to_dict()["cosent"][metric].values()) == found.rows()["cosent"][metric]
    assert found.to_dict(found.dimension).keys() == found.rows().keys()
    with pytest.raises(UserError, match="the rows set the loss"):
        cml.compare("pose", people, tmp_path / "none", loss="cosent")


def people_pairs(run: cml.Run, path: Path) -> list[str]:
    """Each query with two items of the gallery, as alike as their label distance says."""
    query, gallery = run.splits
    apart = run.distance.pairwise(run.query_labels, run.gallery_labels)
    rows = [
        f"{item},{gallery.item_ids[column]},{-apart[row, column]}"
        for row, item in enumerate(query.item_ids)
        for column in (row % 7, 7 + row % 5)
        if np.isfinite(apart[row, column]) and item != gallery.item_ids[column]
    ]
    path.write_text("\n".join(["item,other,similarity", *rows]))
    return rows


@pytest.mark.slow
def test_photographs_give_the_same_figures_from_python_and_by_the_command_line(
    real_data: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = real_data("donkeycar_tub") / "tub.tar.gz"
    dataset = cml.prepare("donkeycar", tmp_path / "tub", source=raw)
    size, sampler = (24, 32), "random(batch_size=32)"
    options = {**TINY, "image_size": size, "steps": 5, "sampler": sampler, "device": "cpu"}
    run = cml.train("value", dataset, tmp_path / "python", quiet=True, **options)

    common = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "24", "32", "--dimension", "8"]
    common += ["--workers", "0", "--steps", "5", "--sampler", sampler, "--device", "cpu"]
    line = ["train", "value", "--data", str(dataset.folder), "--out", str(tmp_path / "line"), *common]
    assert main(line) == 0
    assert main(["evaluate", str(tmp_path / "line")]) == 0
    of_line = json.loads((tmp_path / "line" / "evaluation.json").read_text())
    of_python = json.dumps(run.evaluate().to_json(per_query=["label_distance@10"]))
    # the verdict's advice names the run's folder
    assert json.loads(of_python.replace(str(tmp_path / "python"), str(tmp_path / "line"))) == of_line

    train = dataset.split("train")
    fitted = cml.fit(train.paths, train.labels, quiet=True, **options)
    query = dataset.split("query")
    np.testing.assert_array_equal(fitted.embed(query.paths), run.model.embed(query.paths))

    found = cml.compare("value", dataset, tmp_path / "both", losses=["log-ratio"], seeds=1, **options)
    compare = ["compare", "value", "--data", str(dataset.folder), "--out", str(tmp_path / "again"), *common]
    capsys.readouterr()
    assert main([*compare, "--losses", "log-ratio", "--seeds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_json()
    assert found.values("label_distance@10")["log-ratio"] == [
        run.evaluate(references=False).rows["embedding"]["label_distance@10"].mean
    ]


class Stress(torch.nn.Module):
    """A loss of one's own: embedding distances should be label distances, up to a learnt factor."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(0.01))

    def forward(self, embeddings: torch.Tensor, label_distances: torch.Tensor) -> torch.Tensor:
        found = torch.cdist(embeddings[: len(label_distances)], embeddings)
        return (found - self.factor * label_distances).square().mean()


class Pixels(torch.nn.Module):
    """A backbone of one's own, without a word on its number of features, mean and std."""

    def __init__(self, last: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 5))
        self.last = last or torch.nn.Identity()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(pixels))


class Constant(torch.nn.Module):
    def forward(self, embeddings: torch.Tensor, label_distances: torch.Tensor) -> float:
        return 0.0


def wrap(a: float, b: float) -> float:
    return min(abs(a - b), 256 - abs(a - b))


def test_a_label_distance_a_loss_and_a_backbone_of_ones_own(tmp_path: Path) -> None:
    loss, backbone = Stress(), Pixels()
    before = loss.factor.item()
    out = tmp_path / "run"
    options = {"steps": 5, "sampler": "random(batch_size=20)", "image_size": (16, 16), "dimension": 4, "workers": 0}
    model = cml.fit(IMAGES, LEVELS, label_distance=wrap, loss=loss, backbone=backbone, out=out, quiet=True, **options)
    assert loss.factor.item() != before
    assert model.embed(IMAGES).shape == (40, 4)
    assert model.label_distance.pairwise(*(model.label_distance.encode([x]) for x in (1, 255))).tolist() == [[2.0]]
    assert json.loads((out / "config.json").read_text())["train"]["loss"] == "Stress"

    with pytest.raises(UserError, match=r"cml\.load\(path, backbone=module\)"):
        cml.open_run(out)
    run = cml.open_run(out, backbone=Pixels(), label_distance=wrap)
    np.testing.assert_allclose(run.model.embed(IMAGES), model.embed(IMAGES), atol=1e-6)
    assert run.model.evaluate(IMAGES, LEVELS).to_json() == model.evaluate(IMAGES, LEVELS).to_json()
    without = cml.load(out, backbone=Pixels())
    with pytest.raises(UserError, match="label_distance=wrap"):
        without.evaluate(IMAGES, LEVELS)


def test_a_matrix_of_label_distances_needs_no_labels() -> None:
    matrix = np.abs(LEVELS[:, None] - LEVELS[None])
    options = {"steps": 3, "sampler": "random(batch_size=20)", **TINY}
    from_matrix = cml.fit(IMAGES, label_distance=matrix, quiet=True, **options)
    from_labels = cml.fit(IMAGES, LEVELS, quiet=True, **options)
    np.testing.assert_allclose(from_matrix.embed(IMAGES), from_labels.embed(IMAGES), atol=1e-5)


def test_a_loss_object_and_its_text_train_alike() -> None:
    options = {"steps": 3, "sampler": "random(batch_size=20)", "quiet": True, **TINY}
    made = cml.fit(IMAGES, LEVELS, loss=cml.losses.get("cosent(scale=2.0)"), **options)
    named = cml.fit(IMAGES, LEVELS, loss="cosent(scale=2.0)", **options)
    np.testing.assert_array_equal(made.embed(IMAGES), named.embed(IMAGES))


def test_a_batch_larger_than_the_data_becomes_smaller_and_says_so() -> None:
    with pytest.warns(UserWarning, match=r"A batch takes 150 items, but there are 40: the sampler is"):
        cml.fit(IMAGES, LEVELS, steps=1, quiet=False, **TINY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a", "b"] * 20}, r"do not fit the label distance 'euclidean': Label 0 .* Got 'a' instead"),
        ({"labels": LEVELS[:39]}, "Got 40 images and 39 labels"),
        ({"stepps": 3}, r"no option 'stepps'\. Did you mean 'steps'\?"),
        ({"steps": 0}, "'steps' must be 1 or more"),
        ({"image_size": 16}, r"'image_size' must be 2 whole numbers. Got 16 instead. Did you mean \(16, 16\)\?"),
        ({"batch_size": 16}, r"The size of batches is the sampler's, as in sampler='random\(batch_size=60\)'"),
        ({"flip": "image"}, "set 'flip' to list or none"),
        ({"label_distance": lambda a, b: float("nan")}, r"nan"),
        (
            {"label_distance": np.zeros((3, 3)), "labels": None},
            "There are 40 inputs, and the label distances have 3 rows",
        ),
        ({"inputs": pandas.DataFrame({"a": [1]}), "image": "file"}, "no column image='file'"),
        ({"inputs": torch.rand(40, 3, 16, 16)}, "look like pictures. If they are, convert them by"),
        ({"loss": "log-ration"}, "Did you mean 'log-ratio'"),
        ({"loss": 3}, "The 'loss' must be a string .* Got int instead"),
        ({"loss": torch.nn.PairwiseDistance()}, r"The loss PairwiseDistance failed on embeddings \(20, 8\)"),
        ({"loss": Constant()}, r"Constant must return a scalar tensor .* Got float instead"),
        ({"backbone": "resnet34", "weights": "no-such"}, "no-such"),
        ({"backbone": Pixels(torch.nn.Unflatten(1, (5, 1, 1)))}, r"\(.*5, 1, 1\)"),
    ],
)
def test_wrong_arguments_are_one_sentence(changes: dict[str, object], message: str) -> None:
    given = {"inputs": IMAGES, "labels": LEVELS, "steps": 1, "sampler": "random(batch_size=20)", **TINY} | changes
    with pytest.raises(UserError, match=message):
        cml.fit(quiet=True, **given)  # type: ignore[arg-type]


def test_help_tells_every_option_of_training() -> None:
    told = pydoc.plaintext.document(cml.TrainConfig)
    for option in fields(cml.TrainConfig):
        assert f"\n |      {option.name}: " in told, option.name
    assert "Optimiser: " in told
    assert told.count("Training options.") == 1
