"""The benchmark keeps its rules: equal trials, the test part once, work that is shared and resumed; and its tables."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import page_examples
import pytest
from tiny_suite import METHODS, ROWS, SET, TRACK, at, plan

from cml import losses, plugins
from cml.cli import main
from cml.comparing.bench import methods, result, run, scores, sets, suite, table, trials
from cml.comparing.bench.page import draw_critical_difference_diagram
from cml.comparing.bench.result import read_result
from cml.comparing.bench.scores import interval, score_queries
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.losses.log_ratio import LogRatioLoss
from cml.retrieval.ranking import rank_columns
from cml.training.config import TrainConfig


def test_a_run_makes_small_results_of_all_rows(made: Path) -> None:
    saved = read_result(at(made, "cosent"))
    assert len(saved.trials) == 3
    assert len(saved.query_scores) == 2  # final runs
    assert saved.scores.keys() == {*scores.SCORES}
    assert saved.settings == methods.METHODS["cosent"].settings(int(np.argmax(saved.trial_scores)), "A")
    assert saved.mean() == pytest.approx(saved.values.mean(), abs=1e-4)
    assert read_result(at(made, "oracle")).mean() == 1
    assert abs(read_result(at(made, "random")).mean() or 0) < 0.5
    assert {path.stem for path in result.results_in(made)} == {*ROWS, *METHODS}
    assert not list(made.rglob("journal.jsonl"))
    assert max(path.stat().st_size for path in made.rglob("*.json")) < 4096


def test_published_results_can_be_read_and_are_small() -> None:
    folder = Path(__file__).resolve().parents[3] / "results"
    paths = result.results_in(folder)
    assert len(paths) > 80
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2_000_000
    for path in paths:
        saved = read_result(path)
        method = methods.find_method(saved.method)
        if method is not None:
            best = int(np.argmax(saved.trial_scores))
            assert saved.settings == method.settings(best, "A"), path


def test_the_test_part_is_for_methods_whose_trials_are_all_there() -> None:
    data = sets.open_set(SET, "tiny")
    with pytest.raises(UserError, match="2 of 3 trials"):
        data.test(2, 3)
    query, gallery = data.test(3, 3)
    parts = [set(one.item_ids) for one in (data.train, data.validation, query, gallery)]
    assert [len(one) for one in parts] == [60, 20, 12, 44]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_the_splits_of_a_suite_are_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = [suite.VERSION, suite.QUICK]
    assert list(suite.SPLITS) == published
    tiers = ("offline", "vectors")
    offline = {name for name, spec in suite.SETS.items() if spec.tier in tiers and not spec.variable}
    dataset = PreparedDataset.open(sets.open_set(SET, "tiny").cache.with_name(SET))
    for version in published:
        assert suite.SPLITS[version].keys() == offline
        dealt = sets.deal_items(SET, suite.SETS[SET], suite.SUITES[version], dataset, tmp_path)
        assert dealt.split == suite.SPLITS[version][SET]
    ours = sets.open_set(SET, "tiny").split
    monkeypatch.setitem(suite.SPLITS, "tiny", {SET: "0" * 64})  # type: ignore[arg-type]
    sets.open_set.cache_clear()
    (said,) = run.run(plan(tmp_path))
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
    learn, calls = trials._learn, []

    def counted(data: sets.BenchSet, config: TrainConfig) -> object:
        calls.append(config.seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return learn(data, config)

    monkeypatch.setattr(trials, "_learn", counted)
    with pytest.raises(KeyboardInterrupt):
        run.run(plan(tmp_path, "cosent", rows=()))
    run.run(plan(tmp_path, "cosent", rows=()))
    assert calls == [0, 0, 0, 0, 1, 2]  # a trial, one that was killed, the other two, two final runs
    assert len(read_result(at(tmp_path, "cosent")).trials) == 3


@pytest.mark.slow
def test_two_processes_share_the_work(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    code += "import tiny_suite; tiny_suite.install()\nfrom pathlib import Path\n"
    code += "from cml.comparing.bench import run, trials\n"
    code += "learn, made = trials._learn, []\n"
    code += "trials._learn = lambda *given: made.append(1) or learn(*given)\n"
    code += f"run.run(tiny_suite.plan(Path({str(tmp_path)!r}), rows=()))\nprint(sum(made))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [one.communicate(timeout=240)[0] for one in both]
    assert all(one.returncode == 0 for one in both)
    assert sum(map(int, told)) == len(METHODS) * (3 + 2)  # trials and final runs, none of them twice


def test_a_loss_that_does_not_suit_the_labels_is_a_result_too(tmp_path: Path) -> None:
    name = "log-ratio(zero_factor=1.0)"  # of classes all label distances are equal
    run.run(plan(tmp_path, name, rows=()))
    saved = read_result(at(tmp_path, name))
    assert "all equal" in saved.failed
    assert saved.trials == [saved.failed] * 3
    assert table.read_board(tmp_path, "tiny").grid()[-1][1] == "failed"


def test_whole_networks_are_track_b(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn, steps = trials._learn, []

    def counted(data: sets.BenchSet, config: TrainConfig) -> object:
        steps.append(config.steps)
        return learn(data, config)

    monkeypatch.setattr(trials, "_learn", counted)
    run.run(plan(tmp_path, "cosent", letter="B", rows=()))
    assert read_result(at(tmp_path, "cosent", "B")).pretraining == "none"
    assert steps == [2, 2, 2, 3, 3]  # trials are shorter than final runs


def test_a_set_of_the_users_own_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CML_TUB", raising=False)
    (said,) = run.run(replace(plan(tmp_path), sets=["steering"]))
    assert "its raw files are the user's own: set CML_TUB to their folder" in said
    assert "cml prepare donkeycar --help" in said
    monkeypatch.setenv("CML_TUB", str(tmp_path / "none"))
    assert main(["bench", "--sets", "steering", "--methods", "cosent", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "steering is left out: CML_TUB is" in line
    assert "which does not exist" in line


def test_every_trial_follows_from_its_number_and_the_first_is_the_default() -> None:
    assert len(methods.METHODS) >= 14
    for method in methods.METHODS.values():
        assert method.settings(0, "A") == {}
        assert method.settings(3, "A") == method.settings(3, "A") != method.settings(4, "A")
        assert method.settings(1, "A")["learning_rate"] > method.settings(1, "B")["learning_rate"]
    paper = methods.METHODS["log-ratio-paper"].loss
    assert losses.get(paper).extra_repr() == LogRatioLoss.paper().extra_repr()


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


def test_any_loss_is_a_method_by_its_text(own: Path) -> None:
    with pytest.raises(UserError, match=r"Unknown method 'near-stress'.*give --plugin FILE_OR_MODULE"):
        methods.list_methods(["near-stress"])
    with pytest.raises(UserError, match=r"'triplet' is over classes.*'binary\(loss=triplet"):
        methods.list_methods(["triplet"])
    plugins.load(own)
    names = ["near-stress", "near-stress(scale=0.2)", "log-ratio(weights=uniform)", "near-stress"]
    assert methods.list_methods(names) == [*methods.FIXED_ROWS, *names[:3]]
    ranges = [methods.find_method(name).vary for name in names[:3]]  # type: ignore[union-attr]
    assert ranges[0] == {"loss.scale": "0.1..1.0:log"}
    assert ranges[1] == {}
    assert ranges[2].keys() == {"loss.floor_quantile", "loss.rank_offset"}
    own.write_text(OWN.replace('{"scale"', '{"size"'), "utf-8")
    plugins.load(own)
    with pytest.raises(UserError, match="has no setting 'size'"):
        methods.list_methods(["near-stress"])


def test_results_of_a_plugin_name_its_code(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "VERSION", "tiny")
    monkeypatch.setattr(methods, "FIXED_ROWS", ("oracle",))
    given = ["bench", "--plugin", str(own), "--sets", SET, "--out", str(tmp_path / "results")]
    assert main([*given, "--methods", "near-stress(scale=0.2)", "cosent"]) == 0
    out = capsys.readouterr().out
    assert f"next: cml bench check --rerun 2 {tmp_path / 'results' / 'tiny'} --plugin {own}" in out
    path = at(tmp_path / "results", "near-stress(scale=0.2)")
    assert [name for name, _ in read_result(path).plugins] == ["near_stress.py"]
    assert read_result(at(tmp_path / "results", "cosent")).plugins == []
    assert main(["bench", "check", str(path), "--rerun", "1"]) == 0

    before = dict(plugins._loaded)
    plugins._loaded.clear()
    losses.registry._entries.pop("near-stress")
    losses.registry._origins.pop("near-stress")
    assert main(["bench", "check", str(path), "--rerun", "1"]) == 2
    told = capsys.readouterr()
    assert "give --plugin near_stress.py" in told.out
    assert "1 result could not be run again here." in told.err
    plugins._loaded.update(before)
    own.write_text(OWN + "\n", "utf-8")
    again = ([*given, "--methods", "near-stress(scale=0.2)"], ["bench", "check", str(path), "--rerun", "1"])
    for command in (again[0], [*again[1], "--plugin", str(own)]):
        assert main(command) == 2
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
    tmp_path: Path, worst_of_top: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.load(worst_of_top)
    run.run(plan(tmp_path, "cosent", rows=("oracle",)))
    saved = read_result(at(tmp_path, "oracle"))
    assert [name for name, _ in saved.plugins] == ["worst_of_top.py"]
    data = sets.open_set(SET, "tiny")
    for k in (1, 5):
        farthest = np.sort(data.test_distances, axis=1)[:, k - 1].mean()
        assert saved.mean(f"worst_of_top@{k}") == pytest.approx(data.reported_unit.factor * farthest, rel=1e-5)
    assert main(["bench", "table", str(tmp_path), "--score", "worst_of_top@5"]) == 0
    text = capsys.readouterr().out
    assert f"{read_result(at(tmp_path, 'cosent')).mean('worst_of_top@5'):.4g}" in text
    assert "Means of worst_of_top@5 over runs and queries. The farthest of the first K items." in text
    assert main(["bench", "table", str(tmp_path), "--score", "worst_of_top"]) == 2
    assert "The results hold no score 'worst_of_top'. Did you mean" in capsys.readouterr().err


def test_an_unknown_verb_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tabel", "--help"]) == 2
    assert "Unknown verb 'tabel' of cml bench. Did you mean 'table'?" in capsys.readouterr().err


def test_the_table_and_the_page_have_every_method(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "table", str(results), "--markdown"]) == 0
    said = capsys.readouterr().out
    assert all(method in said for method in (*METHODS, *ROWS))
    assert main(["bench", "page", str(results), "--out", str(tmp_path / "board.html")]) == 0
    page = (tmp_path / "board.html").read_text("utf-8")
    assert "<script" not in page
    assert f'href="results/tiny/{SET}/{TRACK}/cosent.json"' in page
    lines = (tmp_path / f"board-tiny-{TRACK}.csv").read_text("utf-8").splitlines()
    assert [line.partition(",")[0] for line in lines] == ["method", *table.read_board(results).order]


def test_the_table_of_trials_has_the_defaults_the_median_and_the_best(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "table", str(results), "--trials", "--markdown"]) == 0
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    rows = {cells[0].strip(): [float(cell) for cell in cells[1:]] for cells in lines[2:]}
    assert rows.keys() == set(METHODS)
    for method, found in rows.items():
        reached = read_result(at(results, method)).trial_scores
        np.testing.assert_allclose(found, [reached[0], np.median(reached), max(reached)], atol=6e-4)
    assert [row[0] for row in rows.values()] == sorted((row[0] for row in rows.values()), reverse=True)
    for method in METHODS:
        at(results, method).unlink()
    assert main(["bench", "table", str(results), "--trials"]) == 2
    assert "has trials of all ranked methods" in capsys.readouterr().err


def test_differences_from_a_method_are_paired(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "table", str(made), "--against", "cosent"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {cells[0]: cells[1:] for cells in lines if cells and cells[0] in ("rkd-distance", "frozen", "label-mds")}
    ours, reach = read_result(at(made, "cosent")).values, read_result(at(made, "oracle")).values[0]
    for method, (mean, _, half) in found.items():
        apart = read_result(at(made, method)).values - ours
        low, high = interval(apart, reach)
        assert float(mean) == pytest.approx(apart.mean(), abs=6e-4)
        assert float(half.rstrip("*")) == pytest.approx((high - low) / 2, abs=6e-4)
        assert half.endswith("*") == (not low <= 0 <= high)
    assert len(found) == 3
    assert main(["bench", "table", str(made), "--against", "cosine"]) == 2
    assert "There are no results of 'cosine'. Did you mean 'cosent'?" in capsys.readouterr().err


def test_a_table_takes_the_letter_of_its_track(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("A", TRACK):
        assert main(["bench", "table", str(made), "--version", "tiny", "--track", given]) == 0
        assert f"track {TRACK}." in capsys.readouterr().out
    assert main(["bench", "table", str(made), "--version", "tiny", "--track", "B"]) == 2
    assert f"There are no results of tiny B in {made}. There are those of {TRACK}." in capsys.readouterr().err


def _board(values: np.ndarray) -> table.Board:
    """A board of methods (rows) on sets, each with two seeds and some queries."""
    rng = np.random.default_rng(0)
    found = []
    for method, row in enumerate(values):
        for name, score in zip(list(suite.SETS)[: len(row)], row.tolist(), strict=True):
            each = np.round(1e4 * (score + 0.01 * rng.normal(size=(2, 30)))).astype(int).tolist()
            saved = replace(EMPTY, set=name, method=f"m{method}", scores={"score": [score, score]}, query_scores=each)
            found.append(saved)
    return table.build_board("tiny", "A-x", found, {})


EMPTY = result.Result(
    *(1, "tiny", "", "A-x", "", "x", "", "none", "", {}, [], {"run": 1.0, "trials": 0.0}, 1, {}, []), *("", {}, [], "")
)


def test_ranks_borda_and_the_critical_difference_follow_their_definitions(tmp_path: Path) -> None:
    board = _board(np.array([[0.9, 0.8, 0.9], [0.5, 0.6, 0.4], [0.5, 0.1, 0.2]]))
    assert board.means == {"m0": 1.0, "m1": (2.5 + 2 + 2) / 3, "m2": (2.5 + 3 + 3) / 3}
    assert board.borda["m0"] == 6
    assert board.critical == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 3)), rel=1e-3)  # Demsar, table 5
    assert all(("m0", name) in board.best and ("m2", name) not in board.best for name in board.sets)
    draw_critical_difference_diagram(board, tmp_path / "critical.png")
    assert (tmp_path / "critical.png").stat().st_size > 1000


def test_sets_on_which_defaults_were_chosen_are_left_out_of_a_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    board = _board(np.array([[0.9, 0.8, 0.1], [0.5, 0.6, 0.4], [0.6, 0.1, 0.2]]))
    assert board.other_means == {}
    assert "other sets" not in board.grid()[0]
    first, second, third = board.sets
    for name, chosen in (("m0", (first, second)), ("m2", (first,))):
        monkeypatch.setitem(methods.METHODS, name, methods.Method("cosent", {}, chosen_on=chosen))  # type: ignore[arg-type]
    assert board.other_sets == [third]
    assert board.other_means == {"m0": 3.0, "m1": 1.0, "m2": 2.0}
    rows = {row[0]: row for row in board.grid()}
    assert rows["m1"][rows[""].index("other sets")] == "1.00"
    assert ["°" in cell for cell in rows["m0"][1:4]] == [True, True, False]
    assert f"'other sets' is the mean rank on the sets without such a mark: {third}." in board.notes()
    assert board.to_json()["mean_ranks_on_other_sets"] == board.other_means


def test_scores_are_those_of_slow_definitions() -> None:
    rng = np.random.default_rng(0)
    distances = rng.random((3, 60)).astype(np.float32)
    top = rank_columns(distances + 0.3 * rng.random((3, 60)), scores.depth(distances))[0]
    found = score_queries(top, distances)
    chance, best = distances.mean(axis=1), np.sort(distances, axis=1)[:, :10].mean(axis=1)
    ours = np.array([row[first[:10]].mean() for row, first in zip(distances, top, strict=True)])
    np.testing.assert_allclose(found["score"].mean(), 1 - (ours - best).mean() / (chance - best).mean(), rtol=1e-5)
    np.testing.assert_allclose(found["label_distance"], ours, rtol=1e-6)
    assert found["worst"].shape == (3,)
    assert np.nanmean(found["worst"]) == found["score"].min()
    gains = 1 / (1 + np.argsort(np.argsort(distances, axis=1), axis=1))
    discounts = 1 / np.log2(np.arange(15) + 2)
    ideal = (np.sort(gains, axis=1)[:, ::-1][:, :15] * discounts).sum(axis=1)
    np.testing.assert_allclose(
        found["ndcg"], (np.take_along_axis(gains, top, axis=1) * discounts).sum(axis=1) / ideal, rtol=1e-5
    )
    oracle = score_queries(np.argsort(distances, axis=1), distances)
    for name in ("score", "ndcg"):
        np.testing.assert_allclose(oracle[name].mean(), 1, rtol=1e-6)


def test_a_validation_score_is_that_of_slow_definitions() -> None:
    rng = np.random.default_rng(0)
    embeddings, points = rng.random((30, 4)).astype(np.float32), rng.random((30, 1)).astype(np.float32)
    distances = np.abs(points - points.T) + np.where(np.eye(30) > 0, np.inf, 0).astype(np.float32)
    parts = []
    for row in range(30):
        others = [item for item in range(30) if item != row]
        near = sorted(others, key=lambda item, row=row: float(np.linalg.norm(embeddings[item] - embeddings[row])))
        parts.append(
            [distances[row, near[:10]].mean(), np.sort(distances[row])[:10].mean(), distances[row, others].mean()]
        )
    ours, best, chance = np.mean(parts, axis=0)
    assert scores.score_validation(embeddings, distances) == pytest.approx((chance - ours) / (chance - best), abs=2e-6)


def test_the_score_of_the_oracle_is_1_without_an_error(made: Path) -> None:
    board = table.read_board(made, "tiny", TRACK)
    assert board.to_json()["intervals"]["oracle"][SET] == [1, 1]
    assert next(line for line in board.grid() if line[0] == "oracle")[1] == "1.000"
    # the denominators of all scores, which have errors of their own
    values, reach = read_result(at(made, "random")).values, read_result(at(made, "oracle")).values[0]
    assert tuple(board.to_json()["intervals"]["random"][SET]) == pytest.approx(interval(values, reach))


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
