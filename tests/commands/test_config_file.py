"""Options of training from files: --config and TrainConfig.load."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from test_training import CONFIG, bars

import cml
from cml import tasks
from cml.cli import main
from cml.commands.train import recipe_for
from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.saved_model import RunConfig

FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "options.json": json.dumps,
    "options.yaml": lambda options: "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items()),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_some_options_leaves_the_others_as_they_are(name: str, tmp_path: Path) -> None:
    options = {"steps": 7, "loss": "cosent(scale=2.0)", "image_size": [32, 48], "clip_gradient": None, "crop": 1}
    path = tmp_path / name
    path.write_text(FORMS[name](options))
    named = {**options, "image_size": (32, 48)}
    assert TrainConfig.load(path) == TrainConfig(**named)  # type: ignore[arg-type]
    assert TrainConfig.load(str(path), replace(CONFIG, seed=3)) == replace(CONFIG, seed=3, **named)  # type: ignore[arg-type]


def test_a_runs_own_config_is_its_options(tmp_path: Path) -> None:
    config = replace(CONFIG, steps=2)
    model = cml.fit(*bars(), config, out=tmp_path / "run", quiet=True)
    assert TrainConfig.load(tmp_path / "run" / "config.json", TrainConfig(seed=9)) == config
    saved = model.save(tmp_path / "saved") / "config.json"
    assert TrainConfig.load(saved) == config
    wrong = json.loads(saved.read_text())
    wrong["train"]["steps"] = "many"
    saved.write_text(json.dumps(wrong))
    with pytest.raises(UserError, match=r"config\.json: the option 'steps' cannot be 'many': expected int, got str"):
        TrainConfig.load(saved)


REFUSED = {
    '{"stesp": 3}': "has the option 'stesp', which this version of cml does not know. Did you mean 'steps'?",
    '{"train": {"steps": 3}}': "has the option 'train', which this version",
    '{"steps": "3"}': "the option 'steps' cannot be '3': expected int, got str",
    '{"image_size": [3]}': "'image_size' cannot be [3]: expected array of length 2, got 1",
    '{"steps": 0}': "'steps' must be 1 or more. Got 0 instead.",
    '{"patience": 2}': "'patience' counts validations",
    '["steps"]': "is not options of training: Expected object, got array",
    '{"steps": 3, "steps": 4}': "names the key 'steps' twice",
}
ONLY_JSON = {"": "cannot be parsed: it is not JSON", '{"steps": NaN}': "holds NaN"}
ONLY_YAML = {
    "steps: 3\nsteps: 4\n": "names the key 'steps' twice",
    "": "is not options of training: Expected object, got null",
    "steps: [3\n": "it is not YAML: while parsing a flow sequence, expected ',' or ']'",
    "steps: !!python/object/apply:os.system [ls]": "could not determine a constructor",
    "[" * 5000: "is nested too deep",
    "loss: 2001-99-99": "holds a value that cannot be read: month must be in 1..12",
    "learning_rate: .nan": "'learning_rate' must be a finite number",
    "a: &a [1]\n3: *a": "has the option 'a'",
    "steps: 3\n---\nsteps: 4": "expected a single document in the stream, but found another document in line 2",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [*(("x.json", text) for text in [*REFUSED, *ONLY_JSON]), *(("x.yml", text) for text in [*REFUSED, *ONLY_YAML])],
)
def test_what_is_wrong_is_one_line_with_file_and_key(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        TrainConfig.load(tmp_path / name)
    said = str(caught.value)
    assert said.startswith(str(tmp_path / name))
    assert "\n" not in said
    assert {**REFUSED, **(ONLY_JSON if name == "x.json" else ONLY_YAML)}[text] in said


def test_yaml_numbers_are_those_of_people(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("learning_rate: 1e-3  # of the head\nweight_decay: 5E+0\nloss: log-ratio\n")
    found = TrainConfig.load(tmp_path / "x.yaml")
    assert (found.learning_rate, found.weight_decay, found.loss) == (1e-3, 5.0, "log-ratio")


def test_without_its_library_yaml_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:  # noqa: ANN401
        if name == "yaml":
            raise ImportError("No module named 'yaml'")
        return really(name, *arguments)

    (tmp_path / "x.yaml").write_text("steps: 3\n")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install .*\[yaml\]'"):
        TrainConfig.load(tmp_path / "x.yaml")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    for name in ("x.json", "x.yaml"):
        with pytest.raises(UserError, match=f"{name} is missing: it should hold options of training"):
            TrainConfig.load(tmp_path / name)


def test_a_frozen_backbone_in_the_file_turns_the_recipes_mirroring_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pose = tasks.get("pose")
    recipe = replace(pose.recipe, flip="image")
    (tmp_path / "x.json").write_text('{"freeze_backbone": true, "steps": 5}')
    words = ("--config", str(tmp_path / "x.json"))
    assert recipe_for(pose, recipe, words, "cml") == replace(recipe, flip="none", freeze_backbone=True, steps=5)
    assert "the recipe's mirroring is off" in capsys.readouterr().err
    assert recipe_for(pose, recipe, ("--no-freeze-backbone", *words), "cml") == replace(recipe, steps=5)
    (tmp_path / "x.json").write_text('{"freeze_backbone": false, "steps": 5}')
    assert recipe_for(pose, recipe, words, "cml") == replace(recipe, steps=5)
    assert asdict(recipe_for(pose, recipe, ("--freeze-backbone", *words), "cml"))["flip"] == "none"
    assert recipe_for(pose, recipe, (), "cml") == recipe
    (tmp_path / "x.json").write_text('{"lora": 8}')  # which a frozen backbone cannot have, but for what is given beside
    assert recipe_for(pose, recipe, ("--freeze-backbone", "--lora", "0", *words), "cml").lora == 8


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_train_and_compare_take_a_file_and_what_is_given_beside_it_goes_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, runs = tmp_path / "people", tmp_path / "runs"
    assert main(["prepare", "people", "--out", str(data), "--count", "120", "--size", "32"]) == 0
    (tmp_path / "x.yaml").write_text(
        "backbone: small-cnn\nweights: none\nimage_size: [16, 16]\nworkers: 0\ndimension: 8\nsteps: 2\n"
        "sampler: random(batch_size=20)\nloss: cosent\nflip: none\n"
    )
    words = ["--data", str(data), "--config", str(tmp_path / "x.yaml"), "--steps", "3"]
    assert main(["train", "pose", *words, "--out", str(runs / "one")]) == 0
    first = RunConfig.load(runs / "one").train
    recipe = tasks.get("pose").recipe
    assert first == replace(TrainConfig.load(tmp_path / "x.yaml", recipe), steps=3)
    assert (first.loss, first.dimension, first.learning_rate) == ("cosent", 8, recipe.learning_rate)

    again = ["--data", str(data), "--config", str(runs / "one" / "config.json")]
    assert main(["train", "pose", *again, "--out", str(runs / "two")]) == 0
    assert RunConfig.load(runs / "two").train == first
    rows = ["--losses", "log-ratio", "soft-target", "--seeds", "1", "--out", str(runs / "compared")]
    assert main(["compare", "pose", *again, *rows]) == 0
    trained = [RunConfig.load(path.parent).train for path in runs.glob("compared/**/model.safetensors")]
    assert {one.loss for one in trained} == {"log-ratio", "soft-target"}
    assert {replace(one, loss="") for one in trained} == {replace(first, loss="")}

    capsys.readouterr()
    resumed = ["train", "pose", "--out", str(runs / "one"), "--resume"]
    assert main([*resumed, "--config", str(runs / "two" / "config.json")]) == 0
    (tmp_path / "x.yaml").write_text("dimension: 16\n")
    assert main([*resumed, "--config", str(tmp_path / "x.yaml")]) == 2
    assert "was started with dimension=8, now dimension=16" in capsys.readouterr().err
    (tmp_path / "x.yaml").write_text("dimensions: 16\n")
    for command in ("train", "compare"):
        assert main([command, "pose", *words, "--out", str(tmp_path / "none")]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path}/x.yaml has the option 'dimensions'" in said
        assert "Did you mean 'dimension'?" in said
