"""The benchmark keeps its rules: equal trials, the test part once, results that can be checked, work that is shared."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import page_examples
import pytest

import cml
from cml import losses, plugins
from cml.bench import check_result as checking
from cml.bench import computing, rerun, result, sets, suite, table, track
from cml.bench.check_result import check_result
from cml.bench.computing import Fitted
from cml.bench.scores import Ranks, interval, score_queries
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.training.config import TrainConfig
from cml.tuning import heads, splits

SETTING = """
from dataclasses import replace
from cml.bench import check_result, computing, rerun, result, sets, suite, table, track
from cml.tuning import heads, splits
heads = replace(suite.SUITES["2026.1"].heads, backbone="small-cnn", weights="none", image_size=(16, 16), steps=3,
                dimension=4, sampler="random(batch_size=20)", device="cpu")
tiny = suite.Suite("tiny", 60, 60, 20, 12, 44, 3, 2, heads, replace(heads, freeze_backbone=False), 2,
                   suite.FIXED_ROWS)
for module in (suite, sets, check_result, rerun, result, table):
    module.SUITES = {"tiny": tiny}
track.AT_ONCE = {"A": 2, "B": 1}
heads.STOPS, splits.MOST_SPLITS = (5, 10), 4
"""
PUBLISHED = dict(suite.SUITES)
METHODS = ("rkd-distance", "cosent")
FITTED = ("oracle", "random", "frozen", "label-mds", "tune")  # ridge is of sets whose labels are vectors
SET = "digits"
TRACK = "A-small-cnn"


@pytest.fixture(scope="module", autouse=True)
def _tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (suite, sets, checking, rerun, result, table):
            patch.setattr(module, "SUITES", suite.SUITES)
        patch.setattr(track, "AT_ONCE", track.AT_ONCE)
        patch.setattr(heads, "STOPS", heads.STOPS)
        patch.setattr(splits, "MOST_SPLITS", splits.MOST_SPLITS)
        exec(SETTING, {"__name__": __name__})  # what other processes run, too
        yield
    sets.open_set.cache_clear()


def plan(out: Path, *methods: str, letter: str = "A") -> track.Plan:
    return track.Plan(suite.SUITES["tiny"], letter, [SET], [*suite.FIXED_ROWS, *(methods or METHODS)], out)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results."""
    out = tmp_path_factory.mktemp("bench") / "results"
    track.run(plan(out))
    return out


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy of them, to be tampered with."""
    return Path(shutil.copytree(made, tmp_path / "results"))


def at(out: Path, method: str) -> Path:
    return result.result_path(out, "tiny", SET, TRACK, method)


def test_results_of_a_run_can_be_trusted(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = check_result(at(results, "cosent")).result
    assert [one.number for one in found.trials] == [0, 1, 2]
    assert len(found.values) == 2  # seeds
    assert found.config["label_distance"] == sets.open_set(SET, "tiny").label_distance != "euclidean"
    assert found.scores.keys() == {"score", "label_distance", "ndcg", "h_ap", "spearman", "worst"}
    assert check_result(at(results, "oracle")).result.scores["score"].mean == 1
    assert abs(check_result(at(results, "random")).result.scores["score"].mean or 0) < 0.5
    assert main(["bench", "check", str(results)]) == 0
    assert "7 results agree" in capsys.readouterr().out
    assert not list(results.rglob("journal.jsonl"))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("score", "the mean of score is"),
        ("rank", "a rank was changed"),
        ("rank and digest", "its top and its probe are not of one run"),
        ("split", "its split is"),
        ("data", "its dataset is 000000000000..., the one that is prepared here"),
        ("trial left out", "all of them"),
        ("trial tuned", "other settings than the suite draws"),
        ("trial chosen", "has the best score on validation"),
        ("config", "its config does not match"),
        ("more steps", "trained with steps 9, where the suite gives 3"),
        ("moved", "not where it lies"),
        ("twice", "ranks an item twice"),
        ("entry", "seconds"),
    ],
)
def test_a_tampered_result_is_refused_with_the_reason(results: Path, what: str, reason: str) -> None:
    path = at(results, "cosent")
    held = json.loads(path.read_text("utf-8"))
    if what == "score":
        held["scores"]["score"]["mean"] += 0.01
    elif what in ("rank", "rank and digest", "twice"):
        with np.load(path.with_suffix(".npz")) as arrays:
            top, probe = arrays["top"].copy(), arrays["probe"]
        if what == "twice":
            top[0, 0, 0] = top[0, 0, 1]
        else:
            top[:, :, [0, 10]] = top[:, :, [10, 0]]
        np.savez_compressed(path.with_suffix(".npz"), top=top, probe=probe)
        if what != "rank":
            import hashlib

            held["ranks_sha256"] = hashlib.sha256(path.with_suffix(".npz").read_bytes()).hexdigest()
    elif what in ("split", "data"):
        held[what] = "0" * 64
    elif what == "trial left out":
        held["trials"].pop()
    elif what == "trial tuned":
        held["trials"][1]["settings"]["learning_rate"] = 0.5
    elif what == "trial chosen":
        held["chosen"] = (held["chosen"] + 1) % 3
    elif what in ("config", "more steps"):
        held["config"]["steps"] = 9
        if what == "more steps":
            held["config_sha256"] = result.config_digest(held["config"])
    elif what == "entry":
        held["seconds"] = "none"
    path.write_text(json.dumps(held), "utf-8")
    if what == "moved":
        path = path.rename(path.with_name("soft-target.json"))
    with pytest.raises(DataError, match=reason):
        check_result(path)


def test_the_test_part_is_for_methods_whose_trials_are_all_there() -> None:
    data = sets.open_set(SET, "tiny")
    with pytest.raises(UserError, match="2 of 3 trials"):
        data.test(2, 3)
    query, gallery = data.test(3, 3)
    parts = [set(one.item_ids) for one in (data.train, data.validation, query, gallery)]
    assert [len(one) for one in parts] == [60, 20, 12, 44]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_the_splits_of_a_suite_are_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite.SPLITS.keys() == PUBLISHED.keys()
    for version, made in suite.SPLITS.items():
        tiers = ("offline",) if version.startswith("2026.1") else ("offline", "vectors")
        assert made.keys() == {name for name, spec in suite.SETS.items() if spec.tier in tiers and not spec.variable}
    dataset = PreparedDataset.open(sets.open_set(SET, "tiny").cache.with_name(SET))
    for version, rules in PUBLISHED.items():
        assert sets.deal_items(SET, suite.SETS[SET], rules, dataset, tmp_path).split == suite.SPLITS[version][SET]
    ours = sets.open_set(SET, "tiny").split
    monkeypatch.setitem(suite.SPLITS, "tiny", {SET: "0" * 64})  # type: ignore[arg-type]
    sets.open_set.cache_clear()
    (said,) = track.run(plan(tmp_path))
    assert f"is {'0' * 64}, but" in said
    assert f"gives {ours}" in said
    sets.open_set.cache_clear()


def test_groups_stay_together(tmp_path: Path) -> None:
    dataset = sets.open_set(SET, "tiny")
    folder = shutil.copytree(dataset.cache.parent / SET, tmp_path / "data")
    lines = (folder / "train" / "metadata.jsonl").read_text("utf-8").splitlines()
    grouped = [{**json.loads(line), "region": f"r{number % 7}"} for number, line in enumerate(lines)]
    text = "".join(json.dumps(one) + "\n" for one in grouped)
    (folder / "train" / "metadata.jsonl").write_text(text, "utf-8")
    spec = replace(suite.SETS[SET], group="region")
    rules = replace(suite.SUITES["tiny"], train=2000, validation=2000)
    dealt = sets.deal_items(SET, spec, rules, PreparedDataset.open(folder), tmp_path)
    region = {one["item_id"]: one["region"] for one in grouped}
    sides = [{region[item] for item in part.item_ids} for part in (dealt.train, dealt.validation)]
    assert not sides[0] & sides[1]
    assert dealt.split != sets.deal_items(SET, spec, suite.SUITES["tiny"], PreparedDataset.open(folder), tmp_path).split


def test_a_killed_run_keeps_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fit = computing.fit

    def counted(letter: str, data: sets.BenchSet, configs: list[object], *kept: Path) -> object:
        calls.append(len(configs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit(letter, data, configs, *kept)  # type: ignore[arg-type]

    monkeypatch.setattr(computing, "fit", counted)
    with pytest.raises(KeyboardInterrupt):
        track.run(plan(tmp_path, "cosent"))
    track.run(plan(tmp_path, "cosent"))
    assert calls == [2, 1, 1, 1, 1]  # two trials, the third killed and again, two final runs
    check_result(at(tmp_path, "cosent"))


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    code = f"{SETTING}\nfrom pathlib import Path\nfit, made = computing.fit, []\n"
    code += "computing.fit = lambda *given: made.append(len(given[2])) or fit(*given)\n"
    code += f"track.run(track.Plan(suite.SUITES['tiny'], 'A', ['{SET}'], {METHODS}, Path({str(tmp_path)!r})))\n"
    code += "print(sum(made))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [one.communicate(timeout=240)[0] for one in both]
    assert all(one.returncode == 0 for one in both)
    assert sum(map(int, told)) == len(METHODS) * (3 + 2)  # trials and final runs, none of them twice
    for method in METHODS:
        check_result(at(tmp_path, method))


def test_a_loss_that_does_not_suit_the_labels_is_a_result_too(tmp_path: Path) -> None:
    track.run(plan(tmp_path, "log-ratio"))  # of classes all label distances are equal
    found = check_result(at(tmp_path, "log-ratio")).result
    assert "all equal" in found.failed
    assert not at(tmp_path, "log-ratio").with_suffix(".npz").exists()
    assert table.read_board(tmp_path, "tiny").grid()[-2][1] == "failed"


def test_whole_networks_are_track_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, steps = computing.fit, []

    def fit(letter: str, data: sets.BenchSet, configs: list[TrainConfig], kept: Path | None = None) -> list[Fitted]:
        steps.extend(one.steps for one in configs)
        return trained(letter, data, configs, kept)

    monkeypatch.setattr(computing, "fit", fit)
    track.run(plan(tmp_path, "cosent", letter="B"))
    assert check_result(result.result_path(tmp_path, "tiny", SET, "B-small-cnn", "cosent")).result.pretraining == "none"
    assert steps == [2, 2, 2, 3, 3]  # trials are shorter than final runs


def test_a_set_of_the_users_own_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CML_TUB", raising=False)
    (said,) = track.run(replace(plan(tmp_path), sets=["steering"]))
    assert "its raw files are the user's own: set CML_TUB to their folder" in said
    assert "cml prepare donkeycar --help" in said
    monkeypatch.setenv("CML_TUB", str(tmp_path / "none"))
    given = ["bench", "--version", "tiny", "--sets", "steering", "--methods", "cosent", "--out", str(tmp_path)]
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "steering is left out: CML_TUB is" in line
    assert "which does not exist" in line


def test_an_embedding_made_elsewhere_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query, gallery = sets.open_set(SET, "tiny").test(0, 0)
    ids = [*query.item_ids, *gallery.item_ids]
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32))
    (tmp_path / "ids.txt").write_text("\n".join(ids), "utf-8")
    given = ["bench", "embedding", str(tmp_path / "mine.npy"), "--ids", str(tmp_path / "ids.txt"), "--set", SET]
    given += ["--name", "mine", "--pretraining", "none", "--version", "tiny", "--out", str(tmp_path / "results")]
    assert main(given) == 0
    check_result(Path(capsys.readouterr().out.strip()))
    assert "trials" not in table.read_board(tmp_path / "results", "tiny", "C").notes()
    (tmp_path / "ids.txt").write_text("\n".join(["other", *ids[1:]]), "utf-8")
    assert main(given) == 2
    assert "lacks 1 of the test items" in (said := capsys.readouterr().err)
    assert f"the prepared dataset {sets.open_set(SET, 'tiny').folder}" in said
    assert main([*given[:3], *given[5:]]) == 2
    assert "give their ids with --ids" in capsys.readouterr().err


def test_a_folder_of_embeddings_is_shown_beside_the_methods(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, gallery = sets.open_set(SET, "tiny").test(0, 0)
    ids, folder = [*query.item_ids, "more", *gallery.item_ids], tmp_path / "embedded"
    folder.mkdir()
    np.save(folder / "embeddings.npy", np.random.default_rng(0).normal(size=(len(ids), 5)).astype(np.float32))
    lines = [json.dumps({"item_id": one, "file_name": f"{one}.png"}) + "\n" for one in ids]
    (folder / "items.jsonl").write_text("".join(lines), "utf-8")
    manifest = {"images": "", "items": len(ids), "skipped": 0, "dimension": 5, "model": ""}
    manifest["made_with"] = {"model": "", "images": ""}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    given = ["bench", "embedding", str(folder), "--set", SET, "--name", "mine", "--pretraining", "none"]
    assert main([*given, "--version", "tiny", "--out", str(results)]) == 0
    said = capsys.readouterr()
    assert "already prepared" not in said.err
    board = table.read_board(results, "tiny", TRACK)
    assert "mine (C)" in board.order
    assert "mine (C)" not in board.ranks
    assert all(method != "mine (C)" for method, _ in board.best)
    assert "(C) marks an embedding that was computed by another program" in board.notes()
    low, high = board.to_json()["intervals"]["cosent"][SET]
    row = next(line for line in board.grid() if line[0] == "cosent")
    assert row[1].rstrip("*") == f"{table.score_of(board.results['cosent'][SET]):.3f} ± {(high - low) / 2:.3f}"
    assert main(["bench", "page", str(results), "--out", str(tmp_path / "board.html")]) == 0
    assert "tiny/digits/C/mine.json" in (tmp_path / "board.html").read_text("utf-8")


OWN = """
import torch
import cml.losses
from cml.losses import LabelDistanceLoss

@cml.losses.register("near-stress")
class NearStress(LabelDistanceLoss):
    search_space = {"scale": "0.1..1.0:log"}

    def __init__(self, scale: float = 0.5) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, embeddings, label_distances):
        found = torch.cdist(embeddings[: len(label_distances)], embeddings)
        return (found - self.scale * label_distances).square().mean()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin with a loss, which is forgotten after the test."""
    for name in ("_entries", "_origins"):
        monkeypatch.setattr(losses.registry, name, dict(getattr(losses.registry, name)))
    for name in ("_loaded", "_sources"):
        monkeypatch.setattr(plugins, name, {})
    (tmp_path / "near_stress.py").write_text(OWN, "utf-8")
    return tmp_path / "near_stress.py"


def test_any_loss_is_a_method_by_its_text(tmp_path: Path, own: Path) -> None:
    with pytest.raises(UserError, match=r"Unknown method 'near-stress'.*give --plugin FILE_OR_MODULE"):
        suite.methods(["near-stress"], suite.SUITES["tiny"])
    with pytest.raises(UserError, match=r"'triplet' is over classes.*'binary\(loss=triplet"):
        suite.methods(["triplet"], suite.SUITES["tiny"])
    plugins.load(own)
    names = ["near-stress", "near-stress(scale=0.2)", "log-ratio(weights=uniform)", "near-stress"]
    assert suite.methods(names, suite.SUITES["tiny"]) == [*suite.FIXED_ROWS, *names[:3]]
    ranges = [suite.method(name).vary for name in names[:3]]  # type: ignore[union-attr]
    assert ranges[0] == {"loss.scale": "0.1..1.0:log"}
    assert ranges[1] == {}
    assert ranges[2].keys() == {"loss.floor_quantile", "loss.rank_offset"}
    own.write_text(OWN.replace('{"scale"', '{"size"'), "utf-8")
    plugins.load(own)
    with pytest.raises(UserError, match="has no setting 'size'"):
        suite.methods(["near-stress"], suite.SUITES["tiny"])


def test_results_of_a_plugin_name_its_code_and_are_checked_with_it(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "LATEST", "tiny")
    given = ["bench", "--plugin", str(own), "--version", "tiny", "--sets", SET, "--out", str(tmp_path / "results")]
    assert main([*given, "--methods", "near-stress(scale=0.2)", "cosent"]) == 0
    out = capsys.readouterr().out
    assert f"next: cml bench check {tmp_path / 'results' / 'tiny'} --plugin {own}" in out
    path = at(tmp_path / "results", "near-stress(scale=0.2)")
    assert check_result(path).result.plugins[0][0] == "near_stress.py"
    assert result.read_result(at(tmp_path / "results", "cosent")).plugins == ()

    project = tmp_path / "project"
    submitted = ["bench", "submit", str(tmp_path / "results"), "--into", str(project), "--plugin", str(own)]
    assert main([*submitted, "--methods", "near-stress(scale=0.2)"]) == 0
    command = capsys.readouterr().out.strip().rpartition("Checked: cml ")[2]
    monkeypatch.chdir(tmp_path)  # which has the folder as a checkout has "results"
    assert len(result.results_in(project)) == 1
    assert main(command.split()) == 0

    before = dict(plugins._loaded)
    plugins._loaded.clear()
    losses.registry._entries.pop("near-stress")
    losses.registry._origins.pop("near-stress")
    assert main(["bench", "check", str(path)]) == 2
    said = capsys.readouterr()
    assert "give --plugin near_stress.py" in said.out
    assert "1 of 1 results were not checked." in said.err
    plugins._loaded.update(before)
    own.write_text(OWN + "\n", "utf-8")
    for again in ([*given, "--methods", "near-stress(scale=0.2)"], ["bench", "check", str(path), "--plugin", str(own)]):
        assert main(again) == 2
        said = capsys.readouterr()
        assert "near_stress.py has changed" in said.err + said.out


@pytest.fixture
def worst_of_top(tmp_path: Path) -> Iterator[Path]:
    """The plugin with a metric that the page about metrics shows, which is forgotten after the test."""
    path = tmp_path / "worst_of_top.py"
    path.write_text(page_examples.read_files("extend/metric.md")["worst_of_top.py"], "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        page_examples.forget_plugins(patch)
        yield path
    page_examples.forget_modules()


def test_results_hold_a_metric_of_ones_own(
    results: Path, tmp_path: Path, worst_of_top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        page_examples.forget_plugins(patch)
        plugins.load(worst_of_top)
        out = tmp_path / "own"
        track.run(plan(out, "cosent"))
        path = at(out, "cosent")
        written = check_result(path).result
        assert [name for name, _ in written.plugins] == ["worst_of_top.py"]
        distances = sets.open_set(SET, "tiny").test_distances
        factor = sets.open_set(SET, "tiny").reported_unit.factor
        for k in (1, 5):
            farthest = [
                [max(distances[query, item] for item in row[:k]) for query, row in enumerate(run)]
                for run in result.read_ranks(path, written, sets.open_set(SET, "tiny")).top
            ]
            assert written.scores[f"worst_of_top@{k}"].mean == pytest.approx(factor * np.mean(farthest), rel=1e-5)
        assert main(["bench", "table", str(out), "--version", "tiny"]) == 0
        text = capsys.readouterr().out
        assert f"{SET} worst_of_top@5" in text
        assert "worst_of_top@1" not in text
        note = "in the unit of the label distance, lower is better: the farthest of the first K items."
        assert f"worst_of_top@5, {note}" in text
        assert main(["bench", "table", str(out), "--version", "tiny", "--json"]) == 0
        assert "cosent" in json.loads(capsys.readouterr().out)["metrics"]["worst_of_top@5"]
        assert main(["bench", "page", str(out), "--out", str(tmp_path / "board.html")]) == 0
        assert f"{SET} worst_of_top@5" in (tmp_path / "board.html").read_text("utf-8")

        assert main(["bench", "check", str(results)]) == 0  # which were written without it
        assert capsys.readouterr().out.strip().endswith("7 results agree with ranks, splits and the rules.")
        assert main(["bench", "table", str(results), "--version", "tiny"]) == 0
        assert "worst_of_top" not in capsys.readouterr().out

        record = json.loads(path.read_text("utf-8"))
        record["scores"]["worst_of_top@5"]["mean"] += 0.5
        changed = at(tmp_path / "changed", "cosent")
        shutil.copytree(path.parent, changed.parent)
        changed.write_text(json.dumps(record), "utf-8")
        with pytest.raises(DataError, match=r"the mean of worst_of_top@5 is .*, but the ranks give"):
            check_result(changed)
    page_examples.forget_modules()

    assert main(["bench", "check", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-1] == [
        "Not checked: worst_of_top@1, worst_of_top@5. Their plugin is not loaded; to check them, give --plugin "
        "worst_of_top.py."
    ]
    assert main(["bench", "submit", str(out), "--into", str(tmp_path / "project")]) == 2
    assert "Not checked: worst_of_top@1" in capsys.readouterr().err
    assert main(["bench", "table", str(out), "--version", "tiny"]) == 0
    assert f"worst_of_top@5, {note}" in capsys.readouterr().out


def test_an_unknown_verb_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tabel", "--help"]) == 2
    assert "Unknown verb 'tabel' of cml bench. Did you mean 'table'?" in capsys.readouterr().err


def test_small_versions_are_run_but_not_submitted(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--quick", "--version", "2026.1", "--out", str(tmp_path)]) == 2
    assert "give --quick or --version, not both" in capsys.readouterr().err
    path = tmp_path / "2026.1-quick" / SET / TRACK / "cosent.json"
    path.parent.mkdir(parents=True)
    record = json.loads(at(results, "cosent").read_text("utf-8"))
    path.write_text(json.dumps({**record, "suite": "2026.1-quick"}), "utf-8")
    assert main(["bench", "submit", str(path), "--into", str(tmp_path)]) == 2
    assert "is of a small version" in capsys.readouterr().err


def test_submitted_results_are_checked_and_never_replace_others(results: Path, tmp_path: Path) -> None:
    from cml.bench.submit import submit

    told = submit(results, tmp_path / "project")
    assert "cosent" in told
    assert check_result(at(tmp_path / "project", "cosent"))
    other = json.loads(at(tmp_path / "project", "cosent").read_text("utf-8"))
    at(tmp_path / "project", "cosent").write_text(json.dumps({**other, "hardware": "mine"}), "utf-8")
    with pytest.raises(UserError, match="keeps its results"):
        submit(results, tmp_path / "project")


def test_the_table_and_the_page_have_every_method(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "table", str(results), "--version", "tiny", "--markdown"]) == 0
    said = capsys.readouterr().out
    assert all(method in said for method in (*METHODS, *FITTED))
    assert main(["bench", "page", str(results), "--out", str(tmp_path / "board.html")]) == 0
    page = (tmp_path / "board.html").read_text("utf-8")
    assert "<script" not in page
    assert f'href="results/tiny/{SET}/{TRACK}/cosent.json"' in page
    assert "-reports" not in page


def test_the_table_of_trials_has_the_defaults_the_median_and_the_best(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "table", str(results), "--version", "tiny", "--trials", "--markdown"]) == 0
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = {cells[0].strip(): [float(cell) for cell in cells[1:]] for cells in lines[2:]}
    assert rows.keys() == set(METHODS)
    for method, found in rows.items():
        scores = [one["score"] for one in json.loads(at(results, method).read_text("utf-8"))["trials"]]
        np.testing.assert_allclose(found, [scores[0], np.median(scores), max(scores)], atol=6e-4)
    assert [row[0] for row in rows.values()] == sorted((row[0] for row in rows.values()), reverse=True)
    for method in METHODS:
        at(results, method).unlink()
    assert main(["bench", "table", str(results), "--version", "tiny", "--trials"]) == 2
    assert "has trials of all ranked methods" in capsys.readouterr().err


def test_differences_from_a_method_are_paired(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "table", str(results), "--version", "tiny", "--against", "cosent"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {cells[0]: cells[1:] for cells in lines if cells and cells[0] in ("rkd-distance", "frozen", "label-mds")}
    ours = np.array(result.read_result(at(results, "cosent")).values)
    reach = np.array(result.read_result(at(results, "oracle")).values)[0]
    for method, (mean, _, half) in found.items():
        apart = np.array(result.read_result(at(results, method)).values) - ours
        low, high = interval(apart, reach)
        assert float(mean) == pytest.approx(apart.mean(), abs=6e-4)
        assert float(half.rstrip("*")) == pytest.approx((high - low) / 2, abs=6e-4)
        assert half.endswith("*") == (not low <= 0 <= high)
    assert len(found) == 3
    assert main(["bench", "table", str(results), "--version", "tiny", "--against", "cosine"]) == 2
    assert "There are no results of 'cosine'. Did you mean 'cosent'?" in capsys.readouterr().err


def test_a_table_takes_the_letter_of_its_track(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("A", TRACK):
        assert main(["bench", "table", str(results), "--version", "tiny", "--track", given]) == 0
        assert f"track {TRACK}." in capsys.readouterr().out
    assert main(["bench", "table", str(results), "--version", "tiny", "--track", "B"]) == 2
    assert f"There are no results of tiny B in {results}. There are those of {TRACK}." in capsys.readouterr().err


def test_a_gallery_shows_what_the_ranks_say(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "page", str(results), "--out", str(tmp_path / "board.html"), "--reports", "3"]
    assert main(command) == 0
    link = f"board-reports/tiny/{TRACK}/{SET}.html"
    assert f'href="{link}"' in (tmp_path / "board.html").read_text("utf-8")
    page = (tmp_path / link).read_text("utf-8")
    assert page.count('class="row" id=') == 3
    asked, held = sets.open_set(SET, "tiny").test(0, 0)
    with np.load(at(results, "cosent").with_suffix(".npz")) as ranks:
        top = ranks["top"][0]
    for query in range(3):
        row = page[page.index(f'title="{asked.item_ids[query]} ') :]
        shown = re.findall(r'<figure title="(\S+) ', row[row.index(">cosent<") :])[:5]
        assert shown == [held.item_ids[item] for item in top[query, :5]]
    assert main([*command[:-1], "-1"]) == 2
    assert "0 queries or more. Got -1" in capsys.readouterr().err
    at(results, "cosent").with_suffix(".npz").write_bytes(at(results, "random").with_suffix(".npz").read_bytes())
    assert main(command) == 2
    assert "a rank was changed" in capsys.readouterr().err


def test_a_set_that_is_not_here_has_no_gallery(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sets, "SPLITS", {"tiny": {SET: "0" * 64}})
    sets.open_set.cache_clear()
    try:
        assert main(["bench", "page", str(results), "--out", str(tmp_path / "board.html"), "--reports", "3"]) == 0
    finally:
        sets.open_set.cache_clear()
    assert f"{SET} has no retrieval report: The split of {SET}" in capsys.readouterr().err
    assert "board-reports/" not in (tmp_path / "board.html").read_text("utf-8")


def _board(scores: np.ndarray) -> table.Board:
    """A board of methods (rows) on sets, each with two seeds and some queries."""
    rng = np.random.default_rng(0)
    found = []
    for method, row in enumerate(scores):
        for name, score in zip(list(suite.SETS)[: len(row)], row.tolist(), strict=True):
            values = score + 0.01 * rng.normal(size=(2, 30))
            kept = {"score": result.Score(score, score, score, [score, score])}
            texts = ("tiny", name, "A-x", f"m{method}", "", "", "", "none")
            found.append(
                result.Result(*texts, {}, "", "", {}, "", [], None, {"run": 1.0}, 1, "", kept, values.tolist())
            )
    return table.build_board("tiny", "A-x", found, {})


def test_ranks_borda_and_the_critical_difference_follow_their_definitions(tmp_path: Path) -> None:
    board = _board(np.array([[0.9, 0.8, 0.9], [0.5, 0.6, 0.4], [0.5, 0.1, 0.2]]))
    assert board.means == {"m0": 1.0, "m1": (2.5 + 2 + 2) / 3, "m2": (2.5 + 3 + 3) / 3}
    assert board.borda["m0"] == 6
    assert board.critical == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 3)), rel=1e-3)  # Demsar, table 5
    assert all(("m0", name) in board.best and ("m2", name) not in board.best for name in board.sets)
    from cml.bench.critical_difference_diagram import draw_critical_difference_diagram

    draw_critical_difference_diagram(board, tmp_path / "critical.png")
    assert (tmp_path / "critical.png").stat().st_size > 1000


def test_sets_on_which_defaults_were_chosen_are_left_out_of_a_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    board = _board(np.array([[0.9, 0.8, 0.1], [0.5, 0.6, 0.4], [0.6, 0.1, 0.2]]))
    assert board.other_means == {}
    assert "other sets" not in board.grid()[0]
    first, second, third = board.sets
    monkeypatch.setitem(suite.METHODS, "m0", suite.Method("cosent", {}, chosen_on=(first, second)))  # type: ignore[index]
    monkeypatch.setitem(suite.METHODS, "m2", suite.Method("cosent", {}, chosen_on=(first,)))  # type: ignore[index]
    assert board.other_sets == [third]
    assert board.other_means == {"m0": 3.0, "m1": 1.0, "m2": 2.0}
    rows = {row[0]: row for row in board.grid()}
    assert rows["m1"][rows[""].index("other sets")] == "1.00"
    assert ["°" in cell for cell in rows["m0"][1:4]] == [True, True, False]
    assert f"'other sets' is the mean rank on the sets without such a mark: {third}." in board.notes()
    assert board.to_json()["mean_ranks_on_other_sets"] == board.other_means


def test_scores_from_ranks_are_those_of_slow_definitions() -> None:
    rng = np.random.default_rng(0)
    distances = rng.random((3, 60)).astype(np.float32)
    ranks = Ranks.from_rankers([lambda rows: distances[rows] + 0.3 * rng.random((3, 60))], 3, 60)
    found = score_queries(ranks, distances)
    chance, best = distances.mean(axis=1), np.sort(distances, axis=1)[:, :10].mean(axis=1)
    ours = np.array([row[top[:10]].mean() for row, top in zip(distances, ranks.top[0].astype(int), strict=True)])
    np.testing.assert_allclose(found["score"][0].mean(), 1 - (ours - best).mean() / (chance - best).mean(), rtol=1e-5)
    assert found["worst"].shape == (1, 3)
    assert np.isfinite(found["worst"]).sum() == 1
    oracle = score_queries(Ranks.from_rankers([distances.__getitem__], 3, 60), distances)
    for name in ("score", "ndcg", "spearman"):
        np.testing.assert_allclose(oracle[name].mean(), 1, rtol=1e-6)


def test_the_score_of_the_oracle_is_1_without_an_error(results: Path) -> None:
    saved = json.loads(at(results, "oracle").read_text("utf-8"))
    score = saved["scores"]["score"]
    assert (score["mean"], score["low"], score["high"]) == (1, 1, 1)
    board = table.read_board(results, "tiny", TRACK)
    assert board.to_json()["intervals"]["oracle"][SET] == [1, 1]
    assert next(line for line in board.grid() if line[0] == "oracle")[1] == "1.000"
    # the denominators of all scores, which have errors of their own
    low, high = board.to_json()["intervals"]["random"][SET]
    values = np.array(result.read_result(at(results, "random")).values)
    assert (low, high) == pytest.approx(interval(values, np.array(saved["values"])[0]))
    written = result.read_result(at(results, "random")).scores["score"]
    assert (written.low, written.high) == pytest.approx((low, high), abs=2e-4)  # of values that are not rounded


def test_results_of_earlier_versions_pass_the_check(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = at(results, "cosent")
    saved = json.loads(path.read_text("utf-8"))
    assert saved.pop("intervals") == "skew-t"
    path.write_text(json.dumps(saved), "utf-8")
    assert main(["bench", "check", str(path)]) == 2  # its intervals are those of today
    assert "the low of score is" in capsys.readouterr().out
    data = sets.open_set(SET, "tiny")
    ranks = result.read_ranks(path, result.read_result(path), data)
    before = result.compute_scores(ranks, data, intervals="bootstrap").scores
    assert before["score"].low != saved["scores"]["score"]["low"]
    saved["scores"] = {name: vars(score) for name, score in before.items()}
    path.write_text(json.dumps(saved), "utf-8")
    assert main(["bench", "check", str(path)]) == 0
    path.write_text(json.dumps({**saved, "intervals": "none"}), "utf-8")
    assert main(["bench", "check", str(path)]) == 2


def test_a_version_keeps_the_stop_words_that_captions_had(tmp_path: Path) -> None:
    earlier = "captions(vectors='scene-words', empty_caption='drop')"
    for version in ("2026.1", "2026.1-quick"):
        kept = suite.with_settings_of(version, earlier)
        assert kept == "captions(vectors='scene-words', empty_caption='drop', stop_words='english')"
        assert suite.with_settings_of(version, "captions(vectors='v.txt', stop_words='none')").endswith("'none')")
        assert suite.with_settings_of(version, "circular(period=360)") == "circular(period=360)"
    assert suite.with_settings_of("2026.2", earlier) == earlier
    scenes = cml.prepare("scenes", tmp_path / "scenes", count=90, size=32)
    quick = replace(PUBLISHED["2026.1-quick"], train=30, validation=6, queries=5, gallery=10)
    data = sets.deal_items("scenes", suite.SETS["scenes"], quick, scenes, tmp_path)
    assert (data.earlier_label_distance, data.label_distance) == (earlier, kept)
    assert data.distance.settings()["stop_words"] == "english"


def test_results_of_before_a_setting_was_named_pass_the_check(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = at(results, "cosent"), sets.open_set(SET, "tiny")
    named = replace(data, label_distance="classes(setting=1)", earlier_label_distance=data.label_distance)
    monkeypatch.setattr(checking, "open_set", lambda *_: named)
    check_result(path)
    other = replace(named, earlier_label_distance="classes(setting=2)")
    monkeypatch.setattr(checking, "open_set", lambda *_: other)
    with pytest.raises(DataError, match="label_distance classes, where the suite gives"):
        check_result(path)


def test_methods_are_marked_as_best_however_many_there_are() -> None:
    board = _board(0.5 + 1e-6 * np.random.default_rng(1).random((12, 3)))
    assert len(board.best) >= 33  # of 36 that are equal, 19 in 20
    board = _board(np.array([[0.5, 0.5], [0.5, 0.4]]))
    assert {method for method, name in board.best if name == board.sets[1]} == {"m0"}


def test_the_interval_of_a_mean_covers_seeds_and_queries() -> None:
    values = np.random.default_rng(0).normal(size=(5, 200))
    low, high = interval(values)
    assert low < values.mean() < high
    apart = values + np.array([-3.0, -1, 0, 1, 3])[:, None]  # seeds differ much more than queries
    assert np.diff(interval(apart)) > 3 * (high - low)
