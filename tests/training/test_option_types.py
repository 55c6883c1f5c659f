"""Options that are wrong are refused in one line at every door: the command, Python, scikit-learn, a config file."""

from __future__ import annotations

import json
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import cml
from cml.cli import main
from cml.errors import UserError
from cml.option_types import check_options, convert_option
from cml.settings import check_above_zero, check_auto, check_flag, check_number, check_whole, check_word
from cml.training.config import TrainConfig

TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "steps": 1,
    "sampler": "random(batch_size=10)",
}
LEVELS = np.linspace(0, 255, 24)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
KINDS = typing.get_type_hints(TrainConfig)


def _kind(name: str) -> Any:  # noqa: ANN401 - a type
    """What an option is when it is not None."""
    kinds = [kind for kind in typing.get_args(KINDS[name]) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 and type(None) in typing.get_args(KINDS[name]) else KINDS[name]


def wrong_values(name: str) -> list[Any]:
    """Five values of an option that are wrong in Python and in JSON."""
    kind = _kind(name)
    if kind is bool:
        return ["no", "true", 1, 0, [True]]
    if kind is int:
        return ["10", 2.5, True, -1, [3]]
    if kind is float:
        return ["0.5", -1.0, True, 1e300, [0.5]]
    if kind is str:
        return [3, True, ["cpu"], {"name": "cpu"}, "no-such("]
    if typing.get_origin(kind) is Literal:
        first = typing.get_args(kind)[0]
        return [first.upper(), f"{first}s", True, 3, [first]]
    if kind == tuple[str, ...]:
        return [3, True, [3], {"head": 1}, ["no-such.*"]]
    if kind == tuple[int, ...]:
        return [32, "32", [0], [32.5], [True]]
    if kind == tuple[float, ...]:
        return [0.5, "0.5", [0.0], [1e300], [True]]
    assert kind == tuple[int, int]
    return [32, [32], [32, 0], ["32", "32"], [32.5, 32]]


def wrong_words(name: str) -> list[list[str]]:
    """Five texts of an option that are wrong on the command line."""
    kind, flag = _kind(name), f"--{name.replace('_', '-')}"
    if kind is bool:
        return [[f"{flag}=no"], [flag, "no"], [f"{flag}=1"], [f"--no{flag[1:]}=yes"], [flag, "True"]]
    if kind is int:
        words = ["ten", "2.5", "True", "-1", ""]
    elif kind is float:
        words = ["half", "-1.0", "True", "nan", ""]
    elif kind is str:
        words = ["no-such(", "no-such", "(", "no such", "no-such()()"]
    elif typing.get_origin(kind) is Literal:
        first = typing.get_args(kind)[0]
        words = [first.upper(), f"{first}s", "True", "3", ""]
    elif kind == tuple[str, ...]:
        words = ["no-such", "head", "head.*.weight", "*.no-such", ""]
    elif kind == tuple[int, ...]:
        words = ["0", "-1", "32.5", "a", ""]
    elif kind == tuple[float, ...]:
        words = ["0", "-1", "nan", "a", ""]
    else:
        return [[flag, *words.split()] for words in ("32", "32 0", "-1 32", "32.5 32", "a b")]
    return [[flag, word] for word in words]


NAMES = [option.name for option in fields(TrainConfig)]


def test_every_option_has_five_wrong_values() -> None:
    assert all(len(wrong_values(name)) == len(wrong_words(name)) == 5 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_values_are_refused_in_python_and_by_the_estimator(name: str) -> None:
    for value in wrong_values(name):
        options = TINY | {name: value}
        for door in (
            lambda options=options: cml.fit(IMAGES, LEVELS, quiet=True, **options),
            lambda options=options: cml.sklearn.CMLEmbedder(**options).fit(IMAGES, LEVELS),
        ):
            with pytest.raises(UserError) as caught:
                door()
            assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "people"
    assert main(["prepare", "people", "--out", str(folder), "--count", "40", "--size", "16"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_wrong_values_are_refused_by_the_command_and_in_a_config_file(
    name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [word for option, value in TINY.items() if option != name for word in _words(option, value)]
    command = ["train", "pose", "--data", str(data)]
    lines = [["--flip", "none", *base, *words] for words in wrong_words(name)]
    for number, value in enumerate(wrong_values(name)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(TINY | {"flip": "none", name: value}))
        lines.append(["--config", str(path)])
    for number, words in enumerate(lines):
        capsys.readouterr()
        assert main([*command, *words, "--out", str(tmp_path / f"run{number}")]) == 2, words
        said = capsys.readouterr().err.strip()
        assert said.count("\n") == 0, said
        assert "Traceback" not in said
        assert not list(tmp_path.glob("*/model.safetensors"))


def _words(option: str, value: object) -> list[str]:
    return [f"--{option.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "adamm"}, "Did you mean 'adam'? Known: adam, adamw, rmsprop, sgd."),
        ({"optimizer": "sgd(nesterov=True)"}, "The optimizer 'sgd' has no setting 'nesterov'. It has: momentum."),
        (
            {"optimizer": "rmsprop(momentum=1)"},
            "'momentum' must be a finite number at least 0 and below 1. Got 1 instead.",
        ),
        ({"optimizer": "adam(epsilon=0)"}, "The 'epsilon' must be a finite number above 0. Got 0 instead."),
        ({"optimizer": torch.optim.SGD}, "'optimizer' must be a text, such as 'adamw'. Got SGD instead."),
        ({"schedule": "Cosine"}, "Did you mean 'cosine'? Known: constant, cosine, inverse, step."),
        ({"schedule": None}, "'schedule' must be a text, such as 'cosine'. Got None instead."),
        ({"precision": "bf16"}, "Did you mean 'bfloat16'?"),
        ({"precision": 16}, "Did you mean 'bfloat16'?"),
        ({"freeze_backbone": "no"}, "'freeze_backbone' must be True or False. Got 'no' instead. Did you mean False?"),
        ({"steps": "10"}, "'steps' must be a whole number. Got '10' instead. Did you mean 10?"),
        ({"steps": 10.0}, "'steps' must be a whole number. Got 10.0 instead. Did you mean 10?"),
        ({"steps": True}, "'steps' must be a whole number. Got True instead."),
        ({"learning_rate": "1e-3"}, "'learning_rate' must be a number. Got '1e-3' instead. Did you mean 0.001?"),
        ({"learning_rate": 10**400}, "'learning_rate' must be a finite number. Got inf instead."),
        ({"clip_gradient": "x"}, "'clip_gradient' must be a number, or none. Got 'x' instead."),
        ({"image_size": 32}, "'image_size' must be 2 whole numbers. Got 32 instead. Did you mean (32, 32)?"),
        ({"image_size": (32, 32.5)}, "'image_size' must be 2 whole numbers. Got (32, 32.5) instead."),
        ({"weights": None}, "'weights' must be a text, such as 'imagenet'. Got None instead."),
    ],
)
def test_a_near_miss_is_refused_with_the_value_that_may_be_meant(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        check_options(TrainConfig(**options))
    assert str(caught.value).endswith(said)


def test_a_near_miss_is_named_by_command_and_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "value", "--data", "x", "--out", str(tmp_path / "run"), "--precision", "bf16"]) == 2
    assert "Did you mean 'bfloat16'?" in capsys.readouterr().err
    for options, hint in [
        ({"precision": "bf16"}, "'bfloat16'"),
        ({"steps": "7"}, "7"),
        ({"keep_models": "no"}, "False"),
    ]:
        (tmp_path / "x.json").write_text(json.dumps(options))
        with pytest.raises(UserError, match=rf"x\.json: the option .* Did you mean {hint}\?$"):
            TrainConfig.load(tmp_path / "x.json")


def test_numbers_of_numpy_become_pythons_and_the_model_is_saved(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "steps": np.int64(2),
        "seed": np.uint8(3),
        "dimension": np.int32(8),
        "learning_rate": np.float32(0.25),
        "image_size": np.array([16, 16]),
        "crop": 1,
        "freeze_backbone": np.False_,
        "schedule": np.str_("cosine"),
        "device": torch.device("cpu"),
    }
    model = cml.fit(IMAGES, LEVELS, quiet=True, **{**TINY, **options})
    config = model.run_config.train
    found = [getattr(config, name) for name in options]
    assert found == [2, 3, 8, 0.25, (16, 16), 1.0, False, "cosine", "cpu"]
    assert [type(value) for value in found] == [int, int, int, float, tuple, float, bool, str, str]
    assert cml.load(model.save(tmp_path / "model")).run_config == model.run_config


@pytest.mark.parametrize(
    "text",
    [
        "log-ratio(normalize=no)",
        "triplet(squared=1)",
        "n-pair(normalize=none)",
        "lifted-structure(normalize=no)",
        "proxy-gml(share=true)",
        "matryoshka(dimensions=[])",
        "language-guidance(vectors=3)",
        "cosent(scale=true)",
    ],
)
def test_wrong_settings_of_losses_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="must "):
        cml.losses.get(text)


@pytest.mark.parametrize(
    "text", ["random(batch_size=true)", "random(batch_size=10.0)", "grouped(groups='2')", "per-class(per_class=none)"]
)
def test_wrong_settings_of_samplers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be a whole number"):
        cml.sampling.get(text)


@pytest.mark.parametrize(
    "text",
    [
        "euclidean(squared=no)",
        "captions(vectors=3)",
        "oks(sigmas=[])",
        "keypoints(normalization=Torso)",
        "procrustes(reflection=1)",
        "rotation(scalar_first=yes)",
        "sentences(model=none)",
    ],
)
def test_wrong_settings_of_label_distances_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be "):
        cml.distances.get(text)


@pytest.mark.parametrize("text", ["small-cnn(grid=true)", "small-cnn(layers='6')", "small-cnn(norm=Batch)"])
def test_wrong_settings_of_backbones_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="must be "):
        cml.models.get(text, weights="none")


def test_checks_of_settings_take_the_numbers_of_numpy() -> None:
    assert check_whole("k", np.int64(3)) == 3
    assert type(check_whole("k", np.int64(3))) is int
    assert type(check_above_zero("scale", np.float32(0.5))) is float
    assert type(check_number("scale", np.int16(2), least=0)) is float
    assert type(check_auto("scale", np.float64(2))) is float
    assert check_flag("squared", np.True_) is True  # type: ignore[arg-type]
    for check, wrong, hint in [
        (lambda value: check_whole("k", value), "3", " Did you mean 3?"),
        (lambda value: check_above_zero("k", value), True, " Got True instead."),
        (lambda value: check_auto("k", value), "Auto", " Did you mean 'auto'?"),
        (lambda value: check_word("k", value, ["a", "Other"]), "other", " Did you mean 'Other'?"),
        (lambda value: check_flag("k", value), "off", " Did you mean False?"),
    ]:
        with pytest.raises(UserError) as caught:
            check(wrong)
        assert str(caught.value).endswith(hint)


def test_a_kind_that_is_not_known_is_left_to_the_class() -> None:
    assert convert_option("parts", {"a": 1}, dict[str, int] | None) == {"a": 1}
    assert convert_option("sizes", [1, 2, 3], tuple[int, ...]) == (1, 2, 3)
    assert convert_option("path", Path("a"), str) == "a"
