"""Options that vary: how they are written, drawn and noted, what a sweep trains, chooses and evaluates."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.comparing import sweep
from cml.comparing.rows import slug
from cml.comparing.search_space import SearchDimension, grid, parse_search_space, settings_title, with_settings
from cml.comparing.sweep import SweepResult
from cml.comparing.trials import Trial, TrialLog, best_settings, draw_settings, search
from cml.data.prepared import PreparedDataset
from cml.data_prep.synthetic.people.source import People
from cml.errors import DataError, UserError
from cml.task import Task
from cml.trackers import TrackedRun
from cml.training.config import TrainConfig
from cml.training.learner import Learned

TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (32, 32),
    "workers": 0,
    "steps": 4,
    "dimension": 8,
    "sampler": "random(batch_size=20)",
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    return People(count=160, size=32).prepare(tmp_path_factory.mktemp("data") / "people")


def run_sweep(people: PreparedDataset, out: Path, **options: object) -> SweepResult:
    found = cml.compare("pose", people, out, **{**TINY, **options})
    assert isinstance(found, SweepResult)
    return found


# ---- how options that vary are written


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dimension=16,32", (16, 32)),
        ("learning-rate=1e-3, 1", (1e-3, 1.0)),
        ("image_size=64,(48,64)", ((64, 64), (48, 64))),
        ("loss=proxy-anchor(alpha=16, delta=0.1),cosent", ("proxy-anchor(alpha=16, delta=0.1)", "cosent")),
        (
            "loss=sum(log-ratio, 0.3*cosent(scale=2.0)),rkd-distance",
            ("sum(log-ratio, 0.3*cosent(scale=2.0))", "rkd-distance"),
        ),
        ("loss.alpha=16,32.5", (16, 32.5)),
        ("loss.weights=rank,uniform", ("rank", "uniform")),
        ("clip_gradient=none,1", (None, 1.0)),
        ("flip=none,list", ("none", "list")),
        ("freeze_backbone=true,false", (True, False)),
        ("weights=none,../a.safetensors", ("none", "../a.safetensors")),
    ],
)
def test_values_are_of_their_options_type(text: str, values: tuple[Any, ...]) -> None:
    made = SearchDimension.parse(text).values
    assert made == values
    assert [type(one) for one in made] == [type(one) for one in values]


def test_a_range_is_whole_where_the_option_or_both_ends_are() -> None:
    assert SearchDimension.parse("dimension=16..128") == SearchDimension("dimension", (), 16, 128)
    assert SearchDimension.parse("learning_rate=1e-5..1e-2:log") == SearchDimension(
        "learning_rate", (), 1e-5, 1e-2, True
    )
    assert not SearchDimension.parse("weight_decay=0..1").is_whole
    assert SearchDimension.parse("loss.alpha=8..64").is_whole
    assert not SearchDimension.parse("loss.alpha=8.0..64").is_whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dimension", "option=value,value"),
        ("dimension=", "option=value,value"),
        ("dimensions=1,2", "Did you mean 'dimension'"),
        ("dimension=16,x", "'dimension' cannot be 'x'"),
        ("dimension=16,16", "different values"),
        ("dimension=1.5..3", "'dimension' cannot be 1.5"),
        ("learning_rate=3..1", "the lower one first"),
        ("loss.alpha=a..b", "two numbers"),
        ("loss.alpha=-1..2:log", "above 0"),
        ("flip=foo", "'flip' cannot be 'foo'"),
        ("steps.x=1", "loss, sampler, backbone"),
        ("seed=1,2", "'seeds'"),
        ("label_distance=euclidean,cosine", "what is measured"),
        ("validation_fraction=0.1,0.2", "chosen by"),
    ],
)
def test_what_cannot_vary_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        SearchDimension.parse(text)


def test_from_python_values_are_a_list_or_a_text() -> None:
    texts = parse_search_space(["dimension=16,32", "learning_rate=1e-5..1e-2:log"])
    assert parse_search_space({"dimension": [16, 32], "learning_rate": "1e-5..1e-2:log"}) == texts
    with pytest.raises(UserError, match="once"):
        parse_search_space(["dimension=16", "dimension=32"])


def test_a_grid_has_all_combinations() -> None:
    cells = grid(parse_search_space(["dimension=16,32", "loss.alpha=1,2,3"]))
    assert cells == [{"dimension": one, "loss.alpha": other} for one in (16, 32) for other in (1, 2, 3)]
    with pytest.raises(UserError, match="'trials'"):
        grid(parse_search_space(["dimension=16..32"]))


def test_settings_change_options_and_what_stands_in_their_brackets() -> None:
    config = TrainConfig(loss="cosent", sampler="random(batch_size=20)")
    changed = with_settings(config, {"loss.scale": 4.0, "loss": "cosent(scale=1.0)", "sampler.batch_size": 30})
    assert (changed.loss, changed.sampler) == ("cosent(scale=4.0)", "random(batch_size=30)")
    assert (
        settings_title("a", {"image_size": (64, 64), "learning_rate": 1e-5}) == "a, image_size=64, learning_rate=1e-05"
    )


# ---- how trials are drawn, noted and chosen

SEARCH_SPACE = parse_search_space(
    ["learning_rate=1e-5..1e-2:log", "dimension=16..128", "loss=cosent,sum(log-ratio, 0.3*cosent(scale=2.0))"]
)


def rated(settings: Mapping[str, Any]) -> Trial:
    return Trial(dict(settings), score=abs(math.log10(settings["learning_rate"]) + 3) + settings["dimension"] / 1000)


def test_trials_are_drawn_by_their_number() -> None:
    apart = [draw_settings(SEARCH_SPACE, number, seed=5) for number in (3, 1, 2, 0)]
    assert [draw_settings(SEARCH_SPACE, number, seed=5) for number in range(4)] == [
        apart[3],
        apart[1],
        apart[2],
        apart[0],
    ]
    assert draw_settings(SEARCH_SPACE, 0, seed=6) != apart[3]
    for settings in apart:
        assert 1e-5 <= settings["learning_rate"] <= 1e-2
        assert 16 <= settings["dimension"] <= 128
        assert settings["loss"] in SEARCH_SPACE[2].values


def test_a_search_draws_near_what_went_well_and_repeats_itself() -> None:
    found = search(SEARCH_SPACE, 30, rated, seed=0)
    assert found == search(SEARCH_SPACE, 30, rated, seed=0)
    assert found[:15] == search(SEARCH_SPACE, 15, rated, seed=0)
    later = [one.loss for one in found[15:]]
    assert sum(later) / 15 < sum(one.loss for one in found[:10]) / 10


def test_a_failed_trial_does_not_end_a_search() -> None:
    found = search(
        SEARCH_SPACE, 14, lambda one: Trial(dict(one), failed="no number") if one["dimension"] > 60 else rated(one)
    )
    assert any(one.failed for one in found)
    assert best_settings(found)["dimension"] <= 60


def test_the_best_settings_are_so_on_average_over_seeds() -> None:
    scores = {16: (0.1, 0.9), 32: (0.4, 0.4), 64: (0.0, None)}
    trials = [
        Trial({"dimension": size}, seed=seed, score=one, failed="" if one is not None else "no number")
        for size, both in scores.items()
        for seed, one in enumerate(both)
    ]
    assert best_settings(trials) == {"dimension": 32}
    with pytest.raises(UserError, match="no number"):
        best_settings(trials[4:])


def test_noted_trials_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    trials = [Trial({"image_size": (32, 32), "learning_rate": 1e-5}, "a", 1, 0.5, 2.0), Trial({}, failed="no number")]
    log = TrialLog(path)
    for one in (*trials, trials[0]):
        log.add(one)
    again = TrialLog(path)
    assert again.find("a", {"image_size": (32, 32), "learning_rate": 1e-5}, 1) == dataclasses.replace(
        trials[0], settings={"image_size": [32, 32], "learning_rate": 1e-5}
    )
    assert again.find("", {}, 0) == trials[1]
    assert again.find("b", {}, 0) is None
    path.write_text('{"trials": [{"settings": 3}]}')
    with pytest.raises(DataError, match="settings"):
        TrialLog(path)


# ---- what a sweep trains, chooses and evaluates


@pytest.mark.slow
def test_of_a_grid_the_test_set_is_evaluated_for_the_chosen_alone(people: PreparedDataset, tmp_path: Path) -> None:
    found = run_sweep(
        people, tmp_path / "out", search_space={"dimension": [4, 8], "sampler.batch_size": [10, 20]}, seeds=2
    )
    assert len(found.trials) == 8
    reached = found.held_out()
    chosen = max(reached, key=lambda name: reached[name][0])
    assert list(found.trained) == [chosen]
    evaluated = {path.parent for path in (tmp_path / "out").rglob("evaluation.json")}
    assert {path.parent.name for path in evaluated} == {slug(chosen)}
    assert len(evaluated) == 2
    trained = list((tmp_path / "out").rglob("model.safetensors"))
    assert len(trained) == 8
    for one in found.trials:
        assert one.score is not None
        assert one.seconds is not None
        assert one.seconds > 0
    assert found.trial_table()[0][0] == "tried"
    assert sum(line[-1] == "chosen" for line in found.trial_table()) == 1
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert len(kept["trials"]) == 8
    assert "held out of the training set" in (tmp_path / "out" / "table.md").read_text()
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "over the options that varied" in report
    assert "over the budget: steps, and seconds" in report
    for picture in ("search_space.png", "convergence.png"):
        with Image.open(tmp_path / "out" / picture) as image:
            assert image.width > 800


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_a_study_evaluates_everything(people: PreparedDataset, tmp_path: Path) -> None:
    found = run_sweep(
        people,
        tmp_path,
        search_space=["image_size=24,32"],
        losses=["log-ratio", "cosent(scale=2.0)"],
        seeds=1,
        study=True,
    )
    assert list(found.trained) == [
        f"{loss}, image_size={size}" for loss in ("log-ratio", "cosent(scale=2.0)") for size in (24, 32)
    ]
    assert "do not choose by them" in found.notes()
    assert (tmp_path / "search_space.png").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_drawn_trials_go_on_after_a_kill(
    people: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "search_space": ["learning_rate=1e-4..1e-2:log", "dimension=4,8"],
        "trials": 3,
        "seeds": 2,
    }
    whole = run_sweep(people, tmp_path / "whole", **options)
    train, begun = sweep.train_task, []

    def killed(task: Task, dataset: PreparedDataset, config: TrainConfig, out: Path, **more: Any) -> Learned:  # noqa: ANN401
        begun.append(out)
        if len(begun) == 2:
            raise SystemExit
        return train(task, dataset, config, out, **more)

    monkeypatch.setattr(sweep, "train_task", killed)
    with pytest.raises(SystemExit):
        run_sweep(people, tmp_path / "cut", **options)
    again = run_sweep(people, tmp_path / "cut", **options)
    assert len(begun) == 4  # of which the second ended at once
    assert [one.settings for one in again.trials] == [one.settings for one in whole.trials]
    assert [one.score for one in again.trials] == [one.score for one in whole.trials]
    assert again.values("spearman_rho") == whole.values("spearman_rho")
    assert again.seeds == 2  # the chosen one's, where a trial has one
    run_sweep(people, tmp_path / "cut", **options)
    assert len(begun) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
@pytest.mark.parametrize("step", [2, 4])
def test_a_trial_that_diverges_is_noted_and_not_trained_again_unless_it_left_nothing(
    people: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    train, begun = sweep.train_task, []

    def diverging(task: Task, dataset: PreparedDataset, config: TrainConfig, out: Path, **more: Any) -> Learned:  # noqa: ANN401
        begun.append(config.dimension)
        if config.dimension == 4:
            if step > 2:
                train(task, dataset, config, out, **more)
            raise FloatingPointError(f"The loss is inf at step {step}")
        return train(task, dataset, config, out, **more)

    monkeypatch.setattr(sweep, "train_task", diverging)
    for _ in range(2):
        found = run_sweep(people, tmp_path, search_space=["dimension=4,8"], seeds=1)
        assert [one.failed for one in found.trials] == [f"The loss is inf at step {step}", ""]
        assert list(found.trained) == ["dimension=8"]
    assert begun == ([4, 8] if step > 2 else [4, 8, 4])


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_a_sweep_with_other_options_in_the_same_folder_is_refused(people: PreparedDataset, tmp_path: Path) -> None:
    run_sweep(people, tmp_path, search_space=["dimension=4,8"], seeds=1)
    with pytest.raises(UserError, match="steps=4, now steps=5"):
        run_sweep(people, tmp_path, search_space=["dimension=4,8"], seeds=1, steps=5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"search_space": ["loss.beta=1,2"]}, "no setting 'beta'"),
        ({"search_space": ["sampler.batch_size=1,20"]}, "at least 2"),
        ({"search_space": ["dimension=0,8"]}, "'dimension' must be 1 or more"),
        ({"search_space": ["learning_rate=0.0..1"], "trials": 2}, "'learning_rate' must be above 0"),
        ({"search_space": ["dimension=4..8"]}, "'trials'"),
        ({"search_space": ["loss=cosent,log-ratio"], "losses": ["cosent"]}, "not both"),
        ({"search_space": ["dimension=4,8"], "trials": 2, "study": True}, "leave 'trials' out"),
        ({"search_space": ["dimension=4,8"], "dimensions": [16]}, "by 'search_space'"),
        ({"search_space": ["dimension=4,8"], "evaluate_every": 9}, "at most 'steps'"),
        ({"search_space": ["dimension=4,8"], "variants": ["logratio"]}, "Unknown variant"),
        ({"trials": 3}, "name them by 'search_space'"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    people: PreparedDataset, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        run_sweep(people, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_command_line_takes_search_space_again_and_again(
    people: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "pose", "--data", str(people.folder), "--out", str(tmp_path / "out"), "--seeds", "1"]
    words += [
        "--backbone",
        "small-cnn",
        "--weights",
        "none",
        "--image-size",
        "32",
        "32",
        "--workers",
        "0",
        "--steps",
        "2",
    ]
    words += [
        "--search-space",
        "dimension=4,8",
        "--search-space",
        "sampler=random(batch_size=10),random(batch_size=20)",
        "--json",
    ]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["trials"]) == 4
    assert len(found["rows"]) == 1 + 3  # frozen, random, oracle


# ---- trackers


class Noting:
    """A tracker that notes what it gets."""

    names: list[str] = []  # noqa: RUF012
    numbers: set[str] = set()  # noqa: RUF012

    def begin(self, run: TrackedRun, /) -> None:
        self.names.append(run.name)

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        self.numbers.update(numbers)

    def log_image(self, name: str, path: Path, /) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_a_tracker_follows_every_run_of_a_comparison(people: PreparedDataset, tmp_path: Path) -> None:
    tracker = Noting()
    cml.compare("pose", people, tmp_path, losses=["log-ratio"], seeds=2, tracker=tracker, **TINY)
    assert tracker.names == ["log-ratio/seed-0"] * 2 + ["log-ratio/seed-1"] * 2  # trained, evaluated
    assert {"loss", "evaluation/spearman_rho"} <= tracker.numbers
