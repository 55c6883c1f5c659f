"""``cml compare``: its table and intervals, its runs and what is kept of them, its pictures."""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cml
from cml import losses, plugins, sampling, tasks
from cml.cli import main
from cml.comparing.report import sheet_variants
from cml.comparing.rows import Row, kept_evaluation, plan_runs, row_folders, rows_of, slug
from cml.comparing.train_comparison import CompareOptions, run_comparison
from cml.data.prepared import PreparedDataset
from cml.data_prep.synthetic.people.source import People
from cml.errors import UserError
from cml.losses.log_ratio import LogRatioLoss
from cml.reporting import curves
from cml.retrieval.comparison import Comparison, apart, over_seeds
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.embeddings import evaluate_by_label_kind
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.results import Evaluation
from cml.storage.atomic import PARTIAL
from cml.tasks.baselines import COMPARED, OURS, variants
from cml.training import run_folder
from cml.training.config import TrainConfig
from cml.tuning import heads, splits

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--workers", "0"]
LISTS = ["--sampler", "grouped(batch_size=30, groups=5, drawn=2, pool=6)"]
TINY: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32), "workers": 0, "steps": 3}
TINY |= {"dimension": 16, "sampler": "random(batch_size=20)"}
PAIR = ["--variants", "log-ratio", "dense triplet"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    return People(count=160, size=32).prepare(tmp_path_factory.mktemp("data") / "people")


def command(data: PreparedDataset, out: Path, *more: str) -> list[str]:
    start = ["compare", "pose", "--data", str(data.folder), "--out", str(out), "--steps", "3", "--dimension", "16"]
    return [*start, *SMALL, *LISTS, *more]


@pytest.fixture(scope="module")
def finished(people: PreparedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "comparison"
    assert main(command(people, out, "--seeds", "2", "--dimensions", "8", *PAIR)) == 0
    return out


# ---- what it leaves


@pytest.mark.slow
def test_table_figures_and_pictures(finished: Path) -> None:
    table = (finished / "table.md").read_text()
    for row in ("log-ratio", "dense triplet", "frozen efficientnet-lite0 at 32 x 32 pixels", "oracle", "random"):
        assert f"| {row} |" in table
    assert "px" in table
    assert "over 2 seeds" in table
    assert "hit@" not in table  # 41 gallery items: 50 true nearest say nothing
    for picture in ("retrieval.png", "dimension.png", "sheet.png"):
        with Image.open(finished / picture) as image:
            assert image.width > 1000, picture
    for figure in ("retrieval.svg", "retrieval.pdf", "dimension.svg", "dimension.pdf"):
        assert (finished / figure).stat().st_size > 5000
    page = (finished / "report.html").read_text()
    assert page.count('<img src="data:image/') == 3
    links = re.findall(r'<a href="(.*?)">', page)
    assert all((finished / link).is_file() for link in links)
    assert {"retrieval_report.html", "retrieval.pdf", "sheet.png", "table.csv"} <= set(links)
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings[:2] == ["Verdict", "Results"]
    assert {"The metrics over K", "What queries retrieve", "Runs"} <= set(headings)
    assert "Verdict: " not in page
    lines = (finished / "table.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("method,label_distance@")
    assert sum(link.endswith("evaluation.json") for link in links) == 2 * 2 * 2  # variants, seeds, dimensions
    found = json.loads((finished / "comparison.json").read_text())
    assert set(found["dimensions"]) == {"8", "16"}
    assert found["rows"] == found["dimensions"]["16"]
    assert found["dimensions"]["8"]["oracle"] == found["rows"]["oracle"]
    assert found["dimensions"]["8"]["log-ratio"] != found["rows"]["log-ratio"]
    for method, values in found["values"]["ndcg@10"].items():
        assert len(values) == 2
        assert found["rows"][method]["ndcg@10"][0] == pytest.approx(statistics.fmean(values))


@pytest.mark.slow
def test_every_run_has_the_same_budget_and_its_own_loss_and_seed(finished: Path) -> None:
    seen = set()
    for path in finished.rglob("config.json"):
        train = json.loads(path.read_text())["train"]
        assert train["steps"] == 3
        assert train["backbone"] == "small-cnn"
        seen.add((train["loss"].partition("(")[0], train["dimension"], train["seed"]))
    expected = {(loss, size, seed) for loss in ("log-ratio", "dense-triplet") for size in (8, 16) for seed in (0, 1)}
    assert seen == expected


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_finished_runs_are_kept_and_only_missing_ones_trained(
    people: PreparedDataset, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    shutil.copytree(finished, out)
    models = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert len(models) == 8
    lost = out / "log-ratio" / "dimension-8" / "seed-1"
    (lost / "model.safetensors").unlink()
    shutil.rmtree(lost / "checkpoints")
    capsys.readouterr()
    assert main(command(people, out, "--seeds", "2", "--dimensions", "8", *PAIR)) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "seed" in line]
    assert said == ["6/8 log-ratio, seed 1, 8 dimensions"]
    for path, written in models.items():
        assert (path.stat().st_mtime_ns == written) is (path.parent != lost)
    assert (out / "table.md").read_text() == (finished / "table.md").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished", "drawn_curves")
def test_a_comparison_killed_before_a_model_is_written_has_its_curve(
    people: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a model, all of the run is there."""
    save = run_folder.save_finished

    def killed(*_: object) -> None:
        raise SystemExit

    out = tmp_path / "out"
    again = command(people, out, "--seeds", "1", "--losses", "log-ratio")
    for name, place in (("save_finished", run_folder), ("save_figure", curves)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, killed)
            with pytest.raises(SystemExit):
                main(again)
    run = out / "log-ratio"
    assert not (run / "model.safetensors").exists()
    (run / f".loss.png{PARTIAL}x.png").touch()
    assert save is run_folder.save_finished
    assert main(again) == 0
    assert (run / "loss.png").exists()
    assert not [path for path in out.rglob("*") if PARTIAL in path.name]


@pytest.mark.parametrize("link", ["log-ratio", "log-ratio/seed-0"])
def test_links_in_the_folder_of_a_comparison_are_not_followed(
    people: PreparedDataset, link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / link).parent.mkdir(parents=True)
    (tmp_path / "out" / link).symlink_to(tmp_path / "elsewhere")
    assert main(command(people, tmp_path / "out", "--losses", "log-ratio")) == 2
    assert f"{tmp_path / 'out' / link} is a link" in capsys.readouterr().err.splitlines()[-1]
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.slow
def test_a_run_with_other_options_is_refused(
    people: PreparedDataset, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([*command(people, finished, "--seeds", "2", *PAIR), "--learning-rate", "0.5"]) == 2
    assert "was started with learning_rate=0.001, now learning_rate=0.5" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_runs_of_other_code_of_a_plugin_are_refused(
    people: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_entries", "_origins"):
        monkeypatch.setattr(losses.registry, name, dict(getattr(losses.registry, name)))
    monkeypatch.setattr(plugins, "_loaded", {})
    own = tmp_path / "mine.py"
    own.write_text("import cml.losses\nfrom cml.losses import CoSENTLoss\ncml.losses.register('mine')(CoSENTLoss)\n")
    given = command(people, tmp_path / "out", "--seeds", "1", "--losses", "mine", "cosent", "--plugin", str(own))
    assert main(given) == 0
    own.write_text(own.read_text() + "\n")
    table = (tmp_path / "out" / "table.md").read_bytes()
    for unfinished in (False, True):
        if unfinished:
            (tmp_path / "out" / "mine" / "model.safetensors").unlink()
        capsys.readouterr()
        assert main(given) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path / 'out' / 'mine'}: The code of mine.py has changed" in said
        assert "Delete this folder to train it again" in said
    assert (tmp_path / "out" / "table.md").read_bytes() == table
    shutil.rmtree(tmp_path / "out" / "mine")
    assert main(given) == 0


def test_kept_evaluation_is_of_the_same_kind(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    folder, measured = tmp_path / "seed-1", cml.retrieval.evaluate_embeddings(points, points[:, 0])
    folder.mkdir()
    (folder / "evaluation.json").write_text(json.dumps(measured.to_json()))
    kept = Evaluation.from_json(json.loads((folder / "evaluation.json").read_text()))
    assert kept_evaluation(folder, kept) is not None
    assert kept_evaluation(folder, replace(kept, unit="cm")) is None
    assert kept_evaluation(folder, replace(kept, gallery=7)) is None
    row = dict(list(kept.rows["embedding"].items())[1:])
    assert kept_evaluation(folder, replace(kept, rows={"embedding": row})) is None
    assert kept_evaluation(tmp_path, kept) is None


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_losses_are_rows_of_their_own(people: PreparedDataset, tmp_path: Path) -> None:
    named = ["log-ratio(weights=uniform)", "cosent(scale=5.0)"]
    assert main(command(people, tmp_path, "--seeds", "1", "--variants", "dense triplet", "--losses", *named)) == 0
    rows = json.loads((tmp_path / "comparison.json").read_text())["rows"]
    assert [row for row in rows if row in {"dense triplet", *named, "log-ratio"}] == ["dense triplet", *named]
    for name in named:
        saved = json.loads((tmp_path / slug(name) / "config.json").read_text())
        assert saved["train"]["loss"] == name


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_one_seed_has_no_intervals_and_no_marks(people: PreparedDataset, tmp_path: Path) -> None:
    config = TrainConfig(
        backbone="small-cnn", weights="none", image_size=(32, 32), sampler="random(batch_size=20)", steps=2, workers=0
    )
    config = replace(config, label_distance="keypoints")
    rows = [Row("a", config), Row("binary b", replace(config, loss="binary-triplet(rule=nearest, k=3)"))]
    task = tasks.get("pose")
    compared = run_comparison(task, people, rows, tmp_path, CompareOptions(seeds=1), dimension=config.dimension)
    page = compared.retrieval_report.read_text()
    assert compared.retrieval_report.parent == tmp_path
    assert "<bdi>log-ratio</bdi>" in page
    assert "<bdi>binary b</bdi>" in page
    assert not (tmp_path / "dimension.png").exists()
    table = compared.comparison.markdown()
    trained = [line for line in table.splitlines() if line.startswith(("| a |", "| binary b |"))]
    assert len(trained) == 2
    assert not any("±" in line for line in trained)
    assert "*" not in table
    with pytest.raises(UserError, match="names no variants"):
        rows_of(replace(task, variants={}, compared=()), config, None, ())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--variants", "x"], "Unknown variant 'x'"),
        (["--loss", "dense-triplet"], "leave --loss out"),
        (["--losses", "log-ratoi"], "Did you mean 'log-ratio'"),
        (["--losses", "cosent(scale=0)"], "scale"),
        (["--seeds", "0"], "'seeds' must be at least 1"),
        (["--dimensions", "0"], "'dimension' must be 1 or more"),
        (["--dimensions", "big"], "--dimensions"),
    ],
)
def test_mistakes(
    people: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert main(command(people, tmp_path / "c", *flags)) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert said in errors[0]
    assert not (tmp_path / "c").exists()


# ---- figures


def evaluation(values: Mapping[str, float], width: float = 0.0, gallery: int = 1000) -> Evaluation:
    """An evaluation whose rows have one value in every metric."""
    names = ("label_distance@1", "label_distance@10", "ndcg@10", "ndcg@100", "hit@10", "spearman_rho")
    rows = {
        row: {name: MetricResult(name, np.array([value]), value, value - width, value + width) for name in names}
        for row, value in values.items()
    }
    return Evaluation(rows, "px", "reciprocal", 10, gallery)


def test_folders_of_runs_name_what_there_are_several_of(tmp_path: Path) -> None:
    task, config = tasks.get("pose"), TrainConfig(dimension=16)

    def folders(seeds: int, *dimensions: int) -> list[str]:
        plan = plan_runs(rows_of(task, config, ["log-ratio"], ()), tmp_path, seeds, [16, *dimensions], task.variants)
        return [str(one.folder.relative_to(tmp_path / "log-ratio")) for one in plan]

    assert folders(1) == ["."]
    assert folders(2) == ["seed-0", "seed-1"]
    assert folders(1, 8) == ["dimension-16", "dimension-8"]
    assert folders(2, 8) == [f"dimension-{size}/seed-{seed}" for size in (16, 8) for seed in (0, 1)]
    (tmp_path / "log-ratio").mkdir()
    (tmp_path / "log-ratio" / "config.json").touch()  # of one seed: it is not trained again when others are added
    assert folders(2) == [".", "seed-1"]
    assert folders(1, 8) == [".", "dimension-8"]
    assert folders(2, 8)[:2] == [".", "dimension-16/seed-1"]


def test_intervals_are_students() -> None:
    assert over_seeds([2.0]) == (2.0, 2.0, 2.0)
    values = [1.0, 2.0, 4.0]
    mean, low, high = over_seeds(values)
    assert mean == pytest.approx(7 / 3)
    half = 4.302653 * statistics.stdev(values) / math.sqrt(3)  # the 97.5 % point of t with 2 degrees of freedom
    assert (low, high) == pytest.approx((mean - half, mean + half))


def test_marks_tell_which_intervals_are_apart() -> None:
    assert apart((1, 0, 2), (4, 3, 5))
    assert apart((4, 3, 5), (1, 0, 2))
    assert not apart((1, 0, 3), (4, 3, 5))
    runs = {"ours": [10.0, 10.1, 10.2], "near": [10.2, 10.3, 10.4], "far": [12.0, 12.1, 12.2]}
    trained = {name: [evaluation({"embedding": value}) for value in values] for name, values in runs.items()}
    references = evaluation({"embedding": 0.0, "oracle": 5.0, "wide": 9.0}, width=1.5)
    found = Comparison(trained, references, "embedding", 16, {})
    rows = {line[0]: line[1:] for line in found.table()}
    assert "hit@10" in rows["method"]
    assert rows["ours"][0] == "10.10 ± 0.25"
    assert rows["near"][0] == "10.30 ± 0.25"
    assert rows["far"][0] == "12.10 ± 0.25*"
    assert rows["oracle"][0] == "5.00 ± 1.50*"
    assert rows["wide"][0] == "9.00 ± 1.50"
    assert "does not overlap that of ours" in found.notes()
    json.dumps(found.to_json(), allow_nan=False)


# ---- variants

PUBLISHED_ROWS = (
    "log-ratio",
    "log-ratio, plain",
    "log-ratio, the paper's",
    "dense triplet",
    "binary triplet, threshold",
    "binary triplet, nearest",
)


@pytest.mark.parametrize("name", sorted(set(tasks.names()) & {"pose", "value", "layout", "caption"}))
def test_every_task_compares_with_every_baseline(name: str) -> None:
    task = tasks.get(name)
    assert set(PUBLISHED_ROWS) <= set(task.variants)
    assert next(iter(task.variants)) == OURS
    assert task.variants[OURS] == {}
    for row in rows_of(task, task.recipe, None, ()):
        losses.registry.make(row.options.loss)
        sampling.registry.make(row.options.sampler)
    assert len({slug(variant) for variant in task.variants}) == len(task.variants)


def prepare_points(place: Path) -> PreparedDataset:
    """Vectors of three numbers, of which two are the label."""
    numbers = np.random.default_rng(0).normal(size=(60, 3))
    np.save(place / "rows.npy", numbers)
    (place / "labels.csv").write_text("\n".join(["x,y", *(f"{row[0]},{row[1]}" for row in numbers)]))
    table = {"source": place / "labels.csv", "vectors": place / "rows.npy", "label_columns": ("x", "y")}
    return cml.prepare("table", place / "set", **table)  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_chooses_its_own_dimension_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "STOPS", (5, 10))
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)
    points = prepare_points(tmp_path)
    options: dict[str, Any] = {"seeds": 1, "steps": 20, "sampler": "random(batch_size=20)"}
    rows = cml.compare("value", points, tmp_path / "runs", variants=["tune", "regression"], **options).rows()
    assert [*rows][:2] == ["regression", "tune"]  # in the order of the task
    assert cml.load(tmp_path / "runs" / "regression").config.dimension == 2


def test_the_default_rows_are_those_that_suit_the_labels(people: PreparedDataset, tmp_path: Path) -> None:
    task, places = tasks.get("value"), prepare_points(tmp_path)
    config = replace(task.recipe, backbone="none", dimension=16, steps=7, learning_rate=0.5)
    rows = {row.name: row.options for row in rows_of(task, config, None, (), places)}
    assert tuple(rows) == COMPARED
    assert rows["regression"].dimension == 2  # of a label
    assert rows["tune"].tune
    assert (rows["cosent"].loss, rows["cosent"].steps, rows["cosent"].dimension) == ("cosent", 7, 16)
    further = [row.name for row in rows_of(task, config, None, (), places, one_size=False)]
    assert further == [name for name in COMPARED if name not in ("regression", "tune")]
    with pytest.raises(UserError, match="'tune' has a dimension of its own"):
        rows_of(task, config, ["tune"], (), places, one_size=False)
    pose = tasks.get("pose")  # of keypoints, whose distance gives no vectors
    assert [row.name for row in rows_of(pose, pose.recipe, (), (), people)] == [
        n for n in COMPARED if n != "regression"
    ]
    (tuned,) = rows_of(pose, replace(pose.recipe, learning_rate=0.5), ["tune"], (), people)
    assert (tuned.options.freeze_backbone, tuned.options.flip) == (True, "none")
    assert tuned.options.learning_rate == pose.recipe.learning_rate
    with pytest.raises(UserError, match="'regression' predicts label vectors, which these labels do not have"):
        rows_of(pose, pose.recipe, ["regression"], (), people)


def test_variants_share_the_batch_size() -> None:
    task = replace(
        tasks.get("pose"), variants={"a": {}, "b": {"sampler": "dense"}, "c": {"sampler": "dense(nearest=3)"}}
    )
    for shared, expected in (("random", [150, 150, 150]), ("random(batch_size=20)", [20, 20, 20])):
        rows = rows_of(task, replace(task.recipe, sampler=shared), ["a", "b", "c"], ())
        samplers = [sampling.registry.make(row.options.sampler) for row in rows]
        assert [sampler.batch_size for sampler in samplers] == expected
        assert [sampler.neighbors for sampler in samplers] == [0, 5, 3]
    stated = replace(task, variants={"d": {"sampler": "dense(batch_size=9)"}})
    config = replace(task.recipe, sampler="random(batch_size=20)")
    (row,) = rows_of(stated, config, ["d"], ())
    assert sampling.registry.make(row.options.sampler).batch_size == 9


def test_published_variants_are_the_published_loss_and_lists() -> None:
    torch.manual_seed(0)
    embeddings, labels = torch.randn(12, 4, dtype=torch.float64), torch.rand(12, 3, dtype=torch.float64)
    distances = torch.cdist(labels, labels)
    for exponent in (1.0, 2.0):
        named = variants(exponent)
        assert named["log-ratio, plain"]["loss"] == named["log-ratio, the paper's"]["loss"]
        loss = losses.registry.make(named["log-ratio, plain"]["loss"])
        loss.fit(distances[torch.triu_indices(12, 12, 1).unbind()])
        published = LogRatioLoss.paper()(embeddings, distances**exponent)
        assert loss(embeddings, distances).item() == pytest.approx(published.item())
        assert loss.normalize is False
    sampler = sampling.registry.make(variants()["log-ratio, the paper's"]["sampler"])
    assert (sampler.counted_anchors, sampler.neighbors, sampler.batch_size) == (1, 5, 150)
    assert sampling.registry.make(variants()["binary triplet, nearest"]["sampler"]).neighbors == 30


def test_sheet_shows_ours_and_binary_triplets() -> None:
    assert sheet_variants(list(variants())) == ["log-ratio", "binary triplet, threshold"]
    assert sheet_variants(["log-ratio", "dense triplet", "binary triplet, nearest"]) == [
        "log-ratio",
        "binary triplet, nearest",
    ]
    assert sheet_variants(["dense triplet"]) == ["dense triplet"]


def test_rows_that_would_share_a_folder_have_one_each() -> None:
    names = ["Triplet, p = 0.5", "triplet (p=0,5)", "∞"]
    folders = row_folders(names)
    assert folders["Triplet, p = 0.5"] == "triplet-p-0-5"
    assert len(set(folders.values())) == 3
    assert all(re.fullmatch("[a-z0-9-]+", folder) for folder in folders.values())
    assert row_folders(names[:1]) == {names[0]: folders[names[0]]}
    assert row_folders(names[1:2], reserved=names[:1]) == {names[1]: folders[names[1]]}


def test_a_loss_lies_beside_a_variant_that_has_its_folder() -> None:
    task = tasks.get("pose")
    for name in task.variants:
        assert row_folders([name], reserved=task.variants) == {name: slug(name)}
    folders = row_folders(["log-ratio", "dense-triplet"], reserved=task.variants)
    assert folders["log-ratio"] == "log-ratio"  # the same options as the variant's
    assert folders["dense-triplet"].startswith("dense-triplet-")


def test_a_variant_and_a_loss_of_one_name_are_one_row_if_they_are_the_same() -> None:
    pose, classes = tasks.get("pose"), tasks.get("classes")
    assert [row.name for row in rows_of(pose, pose.recipe, ["log-ratio"], ["log-ratio"])] == ["log-ratio"]
    assert len(rows_of(classes, classes.recipe, None, ["multi-similarity"])) == 1
    with pytest.raises(UserError, match="'multi-similarity', with different options"):
        rows_of(classes, classes.recipe, ["multi-similarity"], ["multi-similarity"])


def test_the_sheet_shows_two_variants_the_second_a_binary_one_if_there_is_any() -> None:
    assert sheet_variants(["a", "b", "binary c", "binary d"]) == ["a", "binary c"]
    assert sheet_variants(["a", "b", "c"]) == ["a", "b"]
    assert sheet_variants(["a"]) == ["a"]


@pytest.mark.slow
@pytest.mark.usefixtures("unpublished")
def test_one_model_is_cut_beside_those_trained_for_each_size(people: PreparedDataset, tmp_path: Path) -> None:
    loss = "matryoshka(loss=log-ratio, dimensions=[4])"
    found = cml.compare("pose", people, tmp_path, losses=[loss], seeds=1, dimensions=[4, 8], cut=True, **TINY)
    assert list(found.trained) == [loss]
    for size in (4, 8):
        assert list(found.at[size]) == [loss, f"{loss}, cut"]
    assert "embedding, first 4" not in found.rows()
    assert found.rows(4)[f"{loss}, cut"]["spearman_rho"] != found.rows(4)[loss]["spearman_rho"]
    with Image.open(tmp_path / "dimension.png") as image:
        assert image.width > 1000
    again = cml.compare("pose", people, tmp_path, losses=[loss], seeds=1, dimensions=[4, 8], cut=True, **TINY)
    assert again.to_json() == found.to_json()

    run = cml.open_run(next(path.parent for path in tmp_path.rglob("model.safetensors") if "16" in str(path)))
    evaluation = run.evaluate(dimensions=[4, 16], references=False)
    assert list(evaluation.rows) == ["embedding", "embedding, first 4"]
    query, gallery = (np.ascontiguousarray(one[:, :4]) for one in run.embeddings)
    alone = evaluate_by_label_kind(
        {"embedding": embedding_ranker(query, gallery)},
        run.distance,
        run.query_labels,
        run.gallery_labels,
        EvaluateOptions(),
        same_items=False,
    )
    cut = evaluation.rows["embedding, first 4"]["spearman_rho"].per_query
    np.testing.assert_array_equal(cut, alone.rows["embedding"]["spearman_rho"].per_query)
    with pytest.raises(UserError, match=r"1\.\.16"):
        run.evaluate(dimensions=[17])
    with pytest.raises(UserError, match="smaller 'dimensions'"):
        cml.compare("pose", people, tmp_path, losses=[loss], seeds=1, dimensions=[32], cut=True, **TINY)
