"""Published experiments run end to end on small files in the real form, and say what is a piece or was not run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_caption_sources import coco_folder
from test_class_sources import cars, cub, in_shop, sop  # noqa: F401 - fixtures
from test_layout_sources import write_lsun
from test_pose_sources import mpii_folder, mpii_people

import cml
from cml import models, tasks
from cml.cli import main
from cml.comparing.rows import with_changes
from cml.data_prep.sources.agedb import Agedb
from cml.data_prep.sources.cars import Cars
from cml.data_prep.sources.coco_captions import CocoCaptions
from cml.data_prep.sources.cub import Cub
from cml.data_prep.sources.in_shop import InShop
from cml.data_prep.sources.lsun_layout import LsunLayout
from cml.data_prep.sources.sop import Sop
from cml.errors import UserError
from cml.losses import get as loss
from cml.papers import reproduce, reproduction
from cml.papers.reproduction import Reproduction
from cml.registry import Choice
from cml.sampling import get as sampler
from cml.tasks.papers import PAPERS
from cml.tasks.published_figures import RECALL_KS, published_figures
from cml.training.optimizer import learning_rate_factor

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--steps", "2", "--workers", "0"]
EXPERIMENTS = [(paper, name) for paper, one in PAPERS.items() for name in one]
SOURCES: dict[str, Callable[[Path], Any]] = {
    "mpii": lambda raw: mpii_folder(raw, mpii_people()),
    "lsun": lambda raw: LsunLayout(write_lsun(raw)),
    "coco": lambda raw: CocoCaptions(
        coco_folder(raw, year=2014, train=list(range(100, 110)), val=list(range(200, 220))), year=2014
    ),
}


def write_ages(folder: Path) -> Agedb:
    """Small photographs in the folder layout of AgeDB-DIR."""
    rng = np.random.default_rng(0)
    lines = ["age,path,split"]
    (folder / "AgeDB").mkdir(parents=True)
    for number, age in enumerate(rng.integers(3, 90, 30).tolist()):
        pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "AgeDB" / f"{number}.jpg")
        lines.append(f"{age},AgeDB/{number}.jpg,{'test' if number % 3 == 0 else 'train'}")
    (folder / "agedb.csv").write_text("\n".join(lines))
    return Agedb(folder)


SOURCES["agedb"] = write_ages
FEW_POSITIVES = "ignore:(Some|No) (items|item|anchors|anchor) .*:RuntimeWarning"  # in the small batches of a piece
OTHERS = {  # rows of other methods that are trained, with their authors' settings
    "cub": {
        "Margin, ResNet-50, 128-d",
        "Proxy-NCA, BN-Inception, 64-d",
        "RLL-H, BN-Inception, 512-d",
        *(f"{method}, BN-Inception, {d}-d" for method in ("Multi-similarity", "SoftTriple") for d in (64, 512)),
    },
    "cars": {"Proxy-NCA, BN-Inception, 64-d", *(f"SoftTriple, BN-Inception, {d}-d" for d in (64, 512))},
    "sop": {"Proxy-NCA, 64-d"},
}
CLASSES: dict[str, Callable[[Path], Any]] = {"cub": Cub, "cars": Cars, "sop": Sop, "in-shop": InShop}


@pytest.mark.filterwarnings(FEW_POSITIVES)
@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("paper", "name"), EXPERIMENTS)
def test_each_experiment_runs_on_a_piece(
    paper: str, name: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if paper == "proxy-anchor":  # the others have a row of frozen features
        request.getfixturevalue("unpublished")
    if name in SOURCES:
        batches = "random(batch_size=8)" if name == "agedb" else "dense(batch_size=8, nearest=2)"
        source = SOURCES[name](tmp_path / "raw")
    else:
        source, batches = CLASSES[name](request.getfixturevalue(name.replace("-", "_"))), "random(batch_size=4)"
    source.prepare(tmp_path / "data")
    out = tmp_path / "out"
    words = ["reproduce", paper, name, "--data", str(tmp_path / "data"), "--out", str(out), *SMALL]
    assert main([*words, "--sampler", batches, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "This is a piece, which says nothing" in said
    assert "backbone is small-cnn, not " in said
    made = json.loads((out / "reproduction.json").read_text("utf-8"))
    quoted = {row.name for row in PAPERS[paper][name].rows if row.quoted}
    assert {method: [*needs] for method, needs in made["not_run"].items()} == {method: ["quoted"] for method in quoted}
    assert made["methods"] == [row.name for row in PAPERS[paper][name].rows]
    run = [one for one in made["figures"] if one["method"] not in quoted]
    assert all(one["difference"] is None for one in made["figures"])
    assert {one["method"] for one in run if one["ours"] is not None} == {*made["methods"]} - quoted
    assert all(one["ours"] is not None for one in run if one["published"] is None)
    assert (out / "reproduction.md").read_text("utf-8").startswith("| method |")
    if name != "sop":
        return
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert main([*words, "--sampler", batches, "--device", "cpu"]) == 0  # what is finished stays
    assert stamps == {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    other = ["reproduce", paper, "cub", *words[3:]]
    assert main([*other, "--sampler", batches]) == 2
    assert "holds 'sop', not 'cub': cml prepare cub" in capsys.readouterr().err


@pytest.mark.parametrize(("paper", "name"), EXPERIMENTS)
def test_published_settings_are_settings_of_cml(paper: str, name: str) -> None:
    experiment = PAPERS[paper][name]
    assert experiment.task in tasks.names()
    names = [row.name for row in experiment.rows]
    assert len({*names}) == len(names)
    for row in experiment.rows:
        config = with_changes(experiment.config, row.changes)
        loss(config.loss)
        sampler(config.sampler)
        if not row.quoted and "bn-inception" not in config.backbone:
            assert models.has_published_weights(config.backbone)
        assert bool(row.figures) == bool(row.source)
        shares = [figure for measure, figure in row.figures.items() if not measure.endswith("mae")]
        assert all(0 < figure < 1 for figure in shares)


def test_a_protocol_measures_the_rows_of_ages(tmp_path: Path) -> None:
    experiment = PAPERS["rank-n-contrast"]["agedb"]
    data = write_ages(tmp_path / "raw").prepare(tmp_path / "data")
    config = replace(
        experiment.config,
        backbone="small-cnn",
        image_size=(32, 32),
        sampler="random(batch_size=8)",
        learning_rate=1e-3,
        steps=2,
        workers=0,
        device="cpu",
    )
    rows = ("Rank-N-Contrast", "L1 regression")
    made = reproduce.reproduce(experiment, config, data.folder, tmp_path / "out", reproduce.ReproduceOptions(rows=rows))
    found = {(one.method, one.measure): one for one in made.figures}
    ours = found["Rank-N-Contrast", "probe mae"]
    assert ours.published == 6.14
    assert ours.ours is not None
    assert 1 < ours.ours[0] < 90  # years
    assert ours.difference is None  # of a piece
    folders = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))["folders"]
    run = cml.Run.open(tmp_path / "out" / folders["Rank-N-Contrast"])
    assert run.measure("regression").figures["probe"]["mae"].value == pytest.approx(ours.ours[0])
    assert found["L1 regression", "knn mae"].ours is not None
    with pytest.raises(UserError, match="Nothing draws data like agedb"):
        reproduce.reproduce(experiment, config, None, tmp_path, reproduce.ReproduceOptions(small=True))


def test_the_published_experiment_states_its_list() -> None:
    experiments = PAPERS["beyond-binary"]
    assert experiments["coco"].config.label_distance == "captions(stop_words=english)"
    assert "captions" not in experiments["mpii"].config.label_distance + experiments["lsun"].config.label_distance


def test_published_figures_are_whole_and_rise_with_k() -> None:
    counts = {name: len(published_figures(name)) for name in RECALL_KS}
    assert counts == {"cub": 22, "cars": 22, "sop": 16, "in-shop": 11}
    for name, ks in RECALL_KS.items():
        for row in published_figures(name):
            measures = [f"recall@{k}" for k in ks if f"recall@{k}" in row.recall]
            shares = [row.recall[measure] for measure in measures]
            assert shares == sorted(shares)
            assert shares[0] > 0.4
            assert shares[-1] < 1
            assert row.side in (224, 256, 324, 448)
        rows = {row.name: row for row in PAPERS["proxy-anchor"][name].rows}
        printed = {row.name for row in rows.values() if row.source.startswith("the tables of the paper")}
        assert len(printed) == counts[name]
        ours = {one for one in printed if one.startswith("Proxy-Anchor")}
        assert {one for one in printed if not rows[one].quoted} == ours | OTHERS.get(name, set())
    assert PAPERS["proxy-anchor"]["sop"].measures == ("recall@1", "recall@10", "recall@100", "recall@1000")
    assert PAPERS["proxy-anchor"]["in-shop"].measures[-1] == "recall@40"


@pytest.mark.parametrize(
    ("row", "batch", "steps", "factors"),
    [
        ("Multi-similarity, BN-Inception, 512-d", 80, 3000, {1199: 1, 1200: 0.1, 2399: 0.1, 2400: 0.01, 2999: 0.01}),
        # 184 batches an epoch; the rate falls before epochs 19 and 39 of 0 to 49
        ("SoftTriple, BN-Inception, 64-d", 32, 9200, {3495: 1, 3496: 0.1, 7175: 0.1, 7176: 0.01, 9199: 0.01}),
        # 200 steps an epoch; the rate falls before epochs 12, 14, 16 and 18 of 0 to 19
        (
            "Margin, ResNet-50, 128-d",
            70,
            4000,
            {2399: 1, 2400: 0.5, 2800: 0.25, 3200: 0.125, 3600: 0.0625, 3999: 0.0625},
        ),
        (
            "RLL-H, BN-Inception, 512-d",
            60,
            10_000,
            {1999: 1, 2000: 0.5, 4000: 0.25, 6000: 0.125, 8000: 0.0625, 9999: 0.0625},
        ),
        # 183 whole batches an epoch, after each of which the rate falls
        ("Proxy-NCA, BN-Inception, 64-d", 32, 3660, {182: 1, 183: 0.94, 366: 0.94**2, 3659: 0.94**19}),
    ],
)
def test_rows_of_other_methods_have_their_authors_settings(
    row: str, batch: int, steps: int, factors: dict[int, float]
) -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    found = experiment.row(row)
    assert found is not None
    config = with_changes(experiment.config, found.changes)
    assert Choice.parse(config.sampler).settings["batch_size"] == batch
    assert config.steps == steps
    assert {step: learning_rate_factor(config, step) for step in factors} == pytest.approx(factors)
    assert (config.head_first, config.warmup, config.clip_gradient_value) == (0, 0, None)
    assert f"{config.dimension}-d" in row
    method = row.partition(",")[0]
    assert sum(note.startswith(f"{method} has the settings of") for note in experiment.notes) == 1


@pytest.mark.filterwarnings(FEW_POSITIVES)
@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
@pytest.mark.parametrize("row", sorted(row for row in OTHERS["cub"] if "512-d" not in row or "RLL" in row))
def test_rows_of_other_methods_run_with_their_own_batches_and_losses(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "seconds_an_image", lambda config, device: 0.01)
    experiment = PAPERS["proxy-anchor"]["cub"]
    config = replace(experiment.config, backbone="small-cnn", image_size=(32, 32), device="cpu")
    options = reproduce.ReproduceOptions(small=True, rows=(row,))
    made = reproduce.reproduce(experiment, config, None, tmp_path, options)
    assert {one.method for one in made.figures if one.ours is not None} == {row}
    folders = json.loads((tmp_path / "comparison.json").read_text("utf-8"))["folders"]
    trained = cml.Run.open(tmp_path / folders[row]).config.train
    found = experiment.row(row)
    assert found is not None
    assert (trained.loss, trained.optimizer) == (found.changes["loss"], found.changes["optimizer"])
    assert trained.backbone == "small-cnn"


def test_other_methods_have_the_optimisers_of_their_authors() -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    found = {row.name.partition(",")[0]: row.changes for row in experiment.rows if row.name in OTHERS["cub"]}
    assert {name: changes["optimizer"] for name, changes in found.items()} == {
        "Multi-similarity": "adam",
        "SoftTriple": "adam(epsilon=0.01)",
        "Margin": "adam",
        "Proxy-NCA": "rmsprop(decay=0.9, epsilon=1)",
        "RLL-H": "sgd(momentum=0.9)",
    }
    ranked = with_changes(experiment.config, found["RLL-H"])
    assert ranked.learning_rate * ranked.backbone_lr_scale == pytest.approx(0.001)  # the head's is 100 times as much
    proxies = with_changes(experiment.config, found["Proxy-NCA"])
    assert proxies.learning_rate * proxies.proxy_rate == pytest.approx(1)


def test_rows_that_stay_quoted_say_why() -> None:
    for name in RECALL_KS:
        rows = {row.name.partition(",")[0]: row.quoted for row in PAPERS["proxy-anchor"][name].rows if row.quoted}
        assert "Proxy-NCA" not in rows
        assert ("RLL-H" in rows) == (name in ("cars", "sop"))
        assert "those on CUB are" in rows.get("RLL-H", "those on CUB are")
        assert rows["HDC"] == "Figures of other papers, whose settings are not known here."


def test_without_data_the_published_figures_and_a_forecast_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduction, "seconds_an_image", lambda config, device: 0.01)
    assert main(["reproduce", "proxy-anchor", "cub", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    main_row = "Proxy-Anchor, BN-Inception, 512-d"
    published = {one["measure"]: one["published"] for one in made["figures"] if one["method"] == main_row}
    assert published == {"recall@1": 0.684, "recall@2": 0.792, "recall@4": 0.868, "recall@8": 0.916}
    assert {*made["not_run"][main_row]} >= {"data", "weights"}
    assert "data" in made["not_run"]["Proxy-Anchor, ResNet-50, 512-d"]
    assert [*made["not_run"]["Clustering, BN-Inception, 64-d"]] == ["quoted"]
    images = 60 * (5864 // 120) * 120
    assert made["hours"]["Proxy-Anchor, ResNet-50, 512-d"] == round(images * 0.01 / 3600, 2)
    assert made["card_hours"]["Proxy-Anchor, ResNet-50, 512-d"] == round(images / 1000 / 3600, 2)
    large = "Proxy-Anchor, BN-Inception, 512-d, 448 px"  # four times the pixels
    assert made["hours"][large] == pytest.approx(4 * made["hours"][main_row], abs=0.03)
    assert main(["reproduce", "proxy-anchor", "cub", "--rows", main_row]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Nothing is trained without the data:\ndata:  ")
    assert "next:  cml reproduce proxy-anchor cub --data DATA\n\n" in said  # no task of the demo draws classes
    assert "left out: --rows does not name them." in said
    assert list(tmp_path.iterdir()) == []


def test_the_whole_is_not_begun_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.processes.device.pick_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(reproduce, "pick_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(reproduction, "seconds_an_image", lambda config, device: 0.01)
    monkeypatch.setattr(reproduce, "run_comparison", lambda *_, **__: pytest.fail("it began"))
    LsunLayout(write_lsun(tmp_path / "raw")).prepare(tmp_path / "data")
    experiment = PAPERS["beyond-binary"]["lsun"]
    made = reproduce.reproduce(experiment, experiment.config, tmp_path / "data", tmp_path / "out")
    methods = {row.name for row in experiment.rows}
    assert made.not_run.keys() == methods
    assert made.hours.keys() == methods - {"ImageNet features"}
    assert all([*needs] == ["card"] for needs in made.not_run.values())
    assert made.piece == ["8 training images, not 4,000", "12 test images, not 394"]


@pytest.mark.parametrize(
    ("paper", "name", "rows"),
    [
        pytest.param("beyond-binary", "lsun", ("log-ratio, naive lists", "ImageNet features"), marks=pytest.mark.slow),
        ("proxy-anchor", "in-shop", ("Proxy-Anchor, BN-Inception, 128-d", "Proxy-Anchor, BN-Inception, 512-d, 256 px")),
        pytest.param("proxy-anchor", "in-shop", (), marks=pytest.mark.slow),  # all rows
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_small_runs_rows_without_data_or_downloads(
    paper: str,
    name: str,
    rows: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if paper == "proxy-anchor":
        request.getfixturevalue("unpublished")
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", lambda *_, **__: pytest.fail("it downloads"))
    monkeypatch.setattr(reproduction, "seconds_an_image", lambda config, device: 0.01)
    experiment = PAPERS[paper][name]
    config = replace(experiment.config, backbone="small-cnn", image_size=(32, 32))
    options = reproduce.ReproduceOptions(small=True, rows=rows)
    made = reproduce.reproduce(experiment, config, None, tmp_path, options)
    can_run = {row.name for row in experiment.rows if not row.quoted}
    trained = {*rows} or can_run
    assert made.not_run.keys() == {*made.methods} - trained
    assert {one.method for one in made.figures if one.ours is not None} == trained
    assert all(one.difference is None for one in made.figures)
    assert "--small takes 2 steps from random weights on 96 drawn images" in made.piece[0]
    assert made.hours.keys() == can_run - {"ImageNet features"}  # of the whole, not of the piece
    assert min(made.card_hours.values()) > 0.1
    states = {line[0]: line[-3] for line in made.grid()[1:] if line[0]}
    assert {states[name] for name in trained} == {"run"}
    assert {states[name] for name in made.not_run} <= {"quoted", "left out"}


def test_small_rows_keep_what_makes_them_differ() -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    made = {}
    for row in experiment.rows:
        if not row.quoted:
            options = reproduce.ReproduceOptions(small=True)
            made[row.name] = reproduce._row_config(experiment.config, row, {}, options)
    assert {config.weights for config in made.values()} == {"none"}
    assert {config.image_size[0] for config in made.values()} == {64, 96, 128}  # those of 224, 324 and 448
    assert {config.dimension for config in made.values()} == {64, 128, 512}
    assert {config.backbone.partition("(")[0] for config in made.values()} == {
        *("bn-inception", "googlenet", "resnet50", "resnet101")
    }
    assert {config.steps for config in made.values()} == {2}
    people = PAPERS["beyond-binary"]["mpii"]
    naive = reproduce._row_config(people.config, people.rows[1], {}, options)
    assert naive.sampler == "dense(nearest=0, batch_size=25)"


def test_weights_of_bn_inception_are_those_of_its_rows_alone() -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    options = reproduce.ReproduceOptions(bn_inception=Path("bn.pth"))
    weights = {
        row.name: reproduce._row_config(experiment.config, row, {}, options).weights
        for row in experiment.rows
        if not row.quoted
    }
    assert {name for name, one in weights.items() if one == "bn.pth"} == {name for name in weights if "BN-" in name}
    config = reproduce._row_config(experiment.config, experiment.rows[0], {}, reproduce.ReproduceOptions())
    assert reproduce._missing_parts(config, reproduce.ReproduceOptions()).keys() == {"weights"}
    assert reproduce._missing_parts(replace(config, weights="bn.pth"), options) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "Proxy-Anchor, BN-Inception, 512"], "Did you mean 'Proxy-Anchor, BN-Inception, 512-d'?"),
        (["--rows", "Clustering, BN-Inception, 64-d"], "is not trained by cml, leave it out of 'rows'. Figures of"),
        (["--small", "--data", "data/cub"], "'small' draws its own data: leave out 'small' or data=data/cub."),
        (["--data", "absent"], "absent"),
    ],
)
def test_rows_that_cannot_be_run_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "proxy-anchor", "cub", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_network_that_cml_lacks_may_come_with_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a plugin may register it" in reproduce._missing_network("inception-bn")["backbone"]
    assert reproduce._missing_network("resnet50") == {}
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    assert "needs the extra 'bn-inception': pip install" in reproduce._missing_network("bn-inception")["extra"]


def test_the_difference_is_told_of_the_whole_alone() -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    row = experiment.row("Proxy-Anchor, BN-Inception, 512-d")
    assert row is not None
    found = {row.name: {"recall@1": (0.704, 0.684, 0.724)}}
    for whole, apart in ((True, "+0.020"), (False, "")):
        first = reproduce._figures(row, experiment, found, whole=whole)[0]
        grid = Reproduction([row.name], [first], {}, []).grid()
        assert grid[1] == [row.name, "published", "0.684", "run", "", ""]
        assert grid[2] == ["", "ours", "0.704 ± 0.020", "", "", ""]
        assert [line[2] for line in grid[3:]] == ([apart] if apart else [])
