"""Records, options and paths that somebody else wrote: each is refused by one error that names it, or is no hindrance.

Not for: images, archives and parsers (test_hostile_files.py). The whole series is hostile_inputs.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export_runs import draw_images, make_run

from cml.cli import main
from cml.errors import DataError, UserError, shorten_message
from cml.option_types import check_options
from cml.registry import NAME
from cml.storage.atomic import atomic_folder
from cml.storage.json_file import write_json
from cml.storage.saved_options import read_record, saved_options
from cml.storage.work_folder import encode_line, parse_line
from cml.training.config import TrainConfig

pytestmark = pytest.mark.slow


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line with which a command refuses."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    return last


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, a dataset and a run on it, made by the commands."""
    root = tmp_path_factory.mktemp("made")
    draw_images(root / "photos", 24, name="{:02}.png", size=20)
    lines = "".join(f"{item:02}.png,{item}\n" for item in range(24))
    (root / "labels.csv").write_text(f"file_name,value\n{lines}")
    assert main(f"prepare folder --images {root}/photos --labels {root}/labels.csv --out {root}/data".split()) == 0
    options = "--backbone small-cnn --weights none --dimension 8 --image-size 16 16 --steps 2 --workers 0 --device cpu"
    train = f"train value --data {root}/data --out {root}/run {options} --sampler random(batch_size=8)"
    assert main(train.split()) == 0
    return root


@pytest.mark.slow
def test_the_series_finds_nothing() -> None:
    from hostile_inputs import series

    assert series(10, seed=7, report=lambda text: None) == {}


@pytest.mark.slow
def test_the_sound_files_of_the_series_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from foreign_files import FOREIGN, make_foreign_files

    make_foreign_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    commands = {command for _, _, _, commands in FOREIGN for command in commands if command.startswith("prepare")}
    assert len(commands) >= 20
    for command in sorted(commands):
        assert main(command.split()) == 0, command
        assert "skipped" not in capsys.readouterr().err


# ---- numbers of a config


@pytest.mark.parametrize("part", ["train", "model"])
def test_every_number_of_a_config_has_an_upper_limit(made: Path, tmp_path: Path, part: str) -> None:
    from cml.training.saved_model import RunConfig

    value = json.loads((made / "run" / "config.json").read_text())
    numbers = [
        name
        for name, saved in value[part].items()
        if isinstance(saved, int | float | list) and not isinstance(saved, bool)
    ]
    assert len(numbers) >= {"train": 20, "model": 3}[part]
    for name in [*numbers, *(["micro_batch", "clip_gradient", "clip_gradient_value"] if part == "train" else [])]:
        for number in (10**40, 1e300):
            huge = [number, 16] if isinstance(value[part].get(name), list) else number
            (tmp_path / "config.json").write_text(json.dumps(value | {part: value[part] | {name: huge}}))
            with pytest.raises(DataError, match=rf"config\.json: .*'{name}'"):
                RunConfig.load(tmp_path)


def test_a_config_asks_for_a_sane_number_of_workers_and_images(made: Path, tmp_path: Path) -> None:
    for name, value in (("workers", 100_000), ("seed", 10**30), ("dimension", 10**9)):
        with pytest.raises(UserError, match=f"'{name}' must be at most .*Got {str(value)[:4]}"):
            check_options(TrainConfig(**{name: value}))
    from cml.models.embedding import ModelConfig

    with pytest.raises(UserError, match=r"'crop' 1e-06 need images of 16000000 x 16000000 pixels; the limit"):
        check_options(ModelConfig("small-cnn", "none", 2, True, (16, 16), crop=1e-6))


def test_a_device_that_computes_nothing_is_none() -> None:
    from cml.processes.device import pick_device

    with pytest.raises(UserError, match="'meta' is not available"):
        pick_device("meta")


# ---- records


def test_records_say_which_entry_is_wrong(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Walk:
        steps: int
        rests: dict[str, list[int]]

    Walk.__annotations__ |= {"steps": int, "rests": dict[str, list[int]]}
    path = tmp_path / "walk.json"
    for text, message in (
        (
            '{"steps": "x", "rests": {}}',
            "walk.json: the entry 'steps' cannot be 'x': expected int, got str. Walk again.",
        ),
        ('{"rests": {}}', "walk.json is not a walk: Object missing required field steps. Walk again."),
        ('{"steps": 1, "rests": {"a": [null]}}', "walk.json is not a walk: Expected int, got null. Walk again."),
        ("[]", "walk.json is not a walk: Expected object, got array. Walk again."),
    ):
        path.write_text(text)
        with pytest.raises(DataError) as caught:
            read_record(path, Walk, "a walk", "Walk again.")
        assert str(caught.value).endswith(message)
    with pytest.raises(DataError, match="has the option 'way'"):
        saved_options(Walk, {"steps": 1, "rests": {}, "way": 2}, "here", "a walk")


@pytest.mark.parametrize(
    "line",
    [
        *('{"step": "1"}', '{"step": null}', '{"step": -1}', '{"step": 1e30}', '{"step": true}', "[1]", "null", '"x"'),
        *('{"step": 1, "loss": "x"}', '{"step": 1, "loss": [1]}', '{"step": 1, "loss": {}}', '{"loss": 1}'),
        '{"step": 1, "loss": 1' + "0" * 400 + "}",
    ],
)
def test_metrics_are_numbers_by_step(tmp_path: Path, line: str) -> None:
    from cml.training.metrics_log import read_metrics

    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 0.5, "validation": null}\n')
    assert read_metrics(path)[0]["step"] == 1
    path.write_text(f'{{"step": 1, "loss": 0.5}}\n{line}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is not a metrics record"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        *((("step",), value) for value in (-1, 10**9, 2.5, "1", None, float("inf"))),
        *((("parts", "validation", "best_weights"), value) for value in ({"a": 1}, [1], "x", {})),
        *((("parts", "validation", "best"), value) for value in ("x", None)),
        (("parts", "validation", "waited"), 10**9),
        *((("optimizer", "state", 0), value) for value in ({}, [], 1)),
        (("optimizer", "state", 10**6), {}),
        (("optimizer", "state", 0, "exp_avg"), None),
        (("parts", "memory", "items"), [1]),
        (("parts", "average"), {}),
        (("parts",), {}),
        (("rng",), "x"),
        (("network",), {}),
        (("optimizer", "state", 0, "exp_avg", 0, 0), float("nan")),
    ],
)
def test_checkpoints_that_do_not_fit_the_run(tmp_path: Path, keys: tuple[Any, ...], value: object) -> None:
    import torch

    import cml
    from cml.training.checkpoint import CHECKPOINT

    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    options: dict[str, Any] = {"steps": 2, "memory": 9, "ema_decay": 0.5, "evaluate_every": 1, "out": tmp_path / "run"}
    options |= {"sampler": "random(batch_size=9)", "dimension": 2, "quiet": True}
    cml.fit(rows, rows[:, 0], **options)
    path = tmp_path / "run" / CHECKPOINT
    state = torch.load(path, weights_only=True)
    inner = state
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    torch.save(state, path)
    with pytest.raises(DataError, match=r"last\.pt does not fit the run \(.*\); delete it to start over") as caught:
        cml.fit(rows, rows[:, 0], resume=True, **options)
    assert "\n" not in str(caught.value)


def test_a_bit_of_the_directory_of_a_checkpoint_tells_damage(tmp_path: Path) -> None:
    import torch

    from cml.training.checkpoint import CHECKPOINT, read_checkpoint

    (path := tmp_path / CHECKPOINT).parent.mkdir()
    with path.open("wb") as file:
        torch.save({"step": 1, "network": {"weight": torch.ones(8)}}, file)
    assert read_checkpoint(tmp_path) is not None
    content = bytearray(path.read_bytes())
    content[content.rindex(b"archive/data/0") - 8] ^= 0x10  # now a folder, of which torch reads nothing
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"last\.pt is damaged \(The entries of its directory differ in form\)"):
        read_checkpoint(tmp_path)


def test_a_device_in_the_place_of_a_checkpoint_is_not_read_for_ever(tmp_path: Path) -> None:
    from cml.training.checkpoint import CHECKPOINT, read_checkpoint

    (tmp_path / CHECKPOINT).parent.mkdir()
    (tmp_path / CHECKPOINT).symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is damaged"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["deflated", "overlapping"])
def test_a_checkpoint_that_unpacks_to_more_than_its_size_is_not_unpacked(tmp_path: Path, kind: str) -> None:
    import zipfile

    from cml.training.checkpoint import CHECKPOINT, read_checkpoint

    path = tmp_path / CHECKPOINT
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if kind == "deflated" else zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
        if kind == "overlapping":  # a second name for the same bytes
            archive.filelist.append(archive.filelist[0])
    with pytest.raises(DataError, match=r"is damaged \(It unpacks to [\d,]+ bytes, more than its own size\)"):
        read_checkpoint(tmp_path)


def test_a_config_that_names_a_huge_network_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torch import nn

    import cml
    from cml import models
    from cml.training.saved_model import load_model, save_tensors

    made: list[str] = []

    class Wide(nn.Linear):
        features = 256

        def __init__(self) -> None:
            super().__init__(8, 256)
            made.append(self.weight.device.type)

    monkeypatch.setitem(models.registry._entries, "wide", Wide)
    run = make_run(tmp_path / "run")
    config = dataclasses.replace(cml.load(run, device="cpu").config, backbone="wide")
    with pytest.raises(DataError, match=r"does not fit the run's config: it lacks backbone\.weight\."):
        load_model(run, config, torch.device("cpu"))
    assert made == ["meta"]
    head = {"head.weight": torch.ones(config.dimension, 256), "head.bias": torch.ones(config.dimension)}
    for change, message in (
        ({"backbone.weight": torch.ones(256, 9)}, r"backbone.weight has the shape \[256, 9\], .* \[256, 8\]"),
        ({"backbone.weight": torch.ones(256, 8), "more": torch.ones(1)}, "it also has more"),
    ):
        save_tensors(run / "model.safetensors", head | {"backbone.bias": torch.ones(256)} | change)
        with pytest.raises(DataError, match=message):
            load_model(run, config, torch.device("cpu"))


def test_evaluations_that_cml_did_not_write() -> None:
    from cml.retrieval.results import Evaluation

    metric = {"mean": 1.5, "low": 1, "high": None, "undefined": 0}
    sound: dict[str, Any] = {"unit": "px", "reported_unit": "", "gain": "inverse", "queries": 3, "gallery": 4}
    sound |= {"hit_neighbors": 1, "rows": {"embedding": {"ndcg@10": metric}}}
    assert Evaluation.from_json(sound).queries == 3
    for change in (
        *({"queries": "3"}, {"queries": -1}, {"unit": 7}, {"rows": {}}, {"rows": {"a": {}}}, {"rows": [1]}),
        *({"rows": {"a": {"b": {**metric, name: "1"}}}} for name in metric),
        {"rows": {"a": {"b": {**metric, "mean": 10**400}}}},
    ):
        with pytest.raises(DataError, match=r"evaluation.* Run cml evaluate again\."):
            Evaluation.from_json(sound | change)


def test_runs_that_lack_their_metrics_say_so(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(made / "run", tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    assert "metrics.jsonl is missing or holds no loss" in said(capsys, "train", "value", "--out", run, "--resume")


def test_a_task_that_does_not_fit_the_labels_is_named(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(made / "run", tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"task": "caption"}))
    line = said(capsys, "report", run, "--against", made / "run", "--queries", "2", "--device", "cpu")
    assert "The task 'caption'" in line
    assert "cannot show the label" in line


# ---- tasks


@pytest.mark.parametrize("task", ["os:system", "a b", "../value", "Ω!"])
def test_what_is_no_name_is_no_task(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str) -> None:
    data = shutil.copytree(made / "data", tmp_path / "data")
    info = json.loads((data / "dataset.json").read_text())
    assert NAME.fullmatch(info["task"])
    (data / "dataset.json").write_text(json.dumps(info | {"task": task}))
    assert main(["check", str(data)]) == 2
    assert "task should be the name of a task" in capsys.readouterr().out
    assert "task should be the name of a task" in said(capsys, "distances", data, "--summary", "--out", tmp_path / "o")


def test_tasks_that_are_not_registered_are_a_problem(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(made / "data", tmp_path / "data")
    assert main(["check", str(data)]) == 0
    info = json.loads((data / "dataset.json").read_text())
    (data / "dataset.json").write_text(json.dumps(info | {"task": "antigravity"}))  # a module, which is not imported
    assert main(["check", str(data)]) == 2
    assert "there is no task 'antigravity'. Known: caption, classes," in capsys.readouterr().out
    assert "antigravity" not in sys.modules


# ---- what was made otherwise


def test_another_dataset_is_told_by_what_changed(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(made / "data", tmp_path / "data")
    evaluate = ("evaluate", made / "run", "--data", data, "--device", "cpu")
    info = json.loads((data / "dataset.json").read_text())
    (data / "dataset.json").write_text(json.dumps(info | {"label_unit": "years"}))
    assert "is now (label_unit was " in (line := said(capsys, *evaluate))
    assert ", now years)" in line
    (data / "dataset.json").write_text(json.dumps(info, indent=2) + "\n")
    lines = (data / "train" / "metadata.jsonl").read_text().splitlines(keepends=True)
    (data / "train" / "metadata.jsonl").write_text("".join(reversed(lines)))
    assert "(not with the same train/metadata.jsonl)" in said(capsys, *evaluate)
    (data / "train" / "metadata.jsonl").write_text("".join(lines[1:]))
    info["counts"]["train"] -= 1
    (data / "dataset.json").write_text(json.dumps(info))
    there = f"(train items was {len(lines)}, now {len(lines) - 1})"
    assert there in said(capsys, *evaluate)
    assert there in said(capsys, "train", "value", "--out", made / "run", "--data", data, "--resume")


# ---- indexes


def test_embeddings_without_an_entry_or_that_are_no_numbers(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, search = tmp_path / "out", ("search", tmp_path / "out", made / "photos" / "00.png")
    embed = ["embed", str(made / "run"), "--images", str(made / "photos"), "--out", str(out), "--device", "cpu"]
    assert main(embed) == 0
    path = out / "manifest.json"
    sound = json.loads(path.read_text())
    for name in ("run", "model", "dimension", "items", "made_with", "sha256"):
        for changed in ({key: one for key, one in sound.items() if key != name}, sound | {name: [{}]}):
            path.write_text(json.dumps(changed))
            assert f"{path}" in (line := said(capsys, *search))
            assert f"field {name}." in line or f"{name!r} cannot be" in line
    np.save(out / "embeddings.npy", np.full_like(np.load(out / "embeddings.npy"), np.nan))
    digest = hashlib.sha256((out / "embeddings.npy").read_bytes()).hexdigest()
    path.write_text(json.dumps(sound | {"sha256": sound["sha256"] | {"embeddings.npy": digest}}))
    assert "NaN or infinity" in said(capsys, *search)


@pytest.mark.parametrize("file", ["embeddings.npy", "items.jsonl"])
@pytest.mark.parametrize("bit", [0.3, 0.6, 0.9])
def test_a_flipped_bit_of_embeddings(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, bit: float
) -> None:
    out, search = tmp_path / "out", ("search", tmp_path / "out", made / "photos" / "00.png")
    embed = ["embed", str(made / "run"), "--images", str(made / "photos"), "--out", str(out), "--device", "cpu"]
    assert main(embed) == 0
    path = out / file
    sound = path.read_bytes()
    place = int(bit * len(sound))
    if file == "items.jsonl":
        place = sound.index(b".png", place) - 1  # the last digit of a name, which becomes another one
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    assert f"{path} is damaged: its checksum is wrong. Delete {path.parent} and embed again." in said(capsys, *search)


@pytest.mark.parametrize(
    "change", [{"seen": -1}, {"kept": 10**6}, {"embeddings.npy": 1}, {"items.jsonl": None}, {"seen": []}]
)
def test_embedding_goes_on_from_the_last_sound_record(
    made: Path, tmp_path: Path, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    import cml
    from cml.data.image_list import ImageList
    from cml.searching.embed_folder import embed_folder

    model, photos = cml.load(made / "run", device="cpu").network, made / "photos"
    sound = embed_folder(model, ImageList.open(photos), tmp_path / "sound", batch_size=1, quiet=True)
    embed = model.embed
    left = iter(range(20))
    monkeypatch.setattr(model, "embed", lambda *words, **more: (next(left), embed(*words, **more))[1])
    with pytest.raises(RuntimeError, match="StopIteration"):
        embed_folder(model, ImageList.open(photos), tmp_path / "out", batch_size=1, quiet=True)
    monkeypatch.undo()
    journal = tmp_path / "out" / ".manifest.partial-work" / "journal.jsonl"
    *lines, last = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines, encode_line(parse_line(last) | change)]))
    again = embed_folder(model, ImageList.open(photos), tmp_path / "out", batch_size=1, quiet=True)
    np.testing.assert_array_equal(again.embeddings, sound.embeddings)


# ---- paths and terminals


def test_a_sound_model_lies_on_any_path(tmp_path: Path) -> None:
    import cml

    run = make_run(tmp_path / "run")
    odd = tmp_path / os.fsdecode(b"\xff \xfe")
    run.rename(odd)
    image = draw_images(tmp_path / "photos", 1)
    embedded = cml.load(odd, device="cpu").embed(image)
    cml.load(odd, device="cpu").save(tmp_path / os.fsdecode(b"saved \xff"))
    np.testing.assert_array_equal(cml.load(tmp_path / os.fsdecode(b"saved \xff")).embed(image), embedded)


def test_a_path_that_no_record_can_note_is_named(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"/data/\\udcff.* is not UTF-8 text: rename"):
        write_json(tmp_path / "x.json", {"dataset": "/data/\udcff"})
    data = tmp_path / os.fsdecode(b"\xff")
    shutil.copytree(made / "data", data)
    train = (
        "train",
        "value",
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--backbone",
        "small-cnn",
        "--weights",
        "none",
    )
    assert "is not UTF-8 text: rename" in said(capsys, *train, "--sampler", "random(batch_size=8)", "--device", "cpu")
    assert main(["check", str(data)]) == 0


def test_a_terminal_of_few_characters_gets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.command_line.streams import open_streams

    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    open_streams()
    print("4.5 \N{PLUS-MINUS SIGN} .1 caf\N{LATIN SMALL LETTER E WITH ACUTE} \udcff")
    stream.flush()
    assert stream.buffer.getvalue() == b"4.5 +- .1 caf\\xe9 \\udcff\n"  # type: ignore[attr-defined]


def test_a_locale_without_letters_is_one_line(tmp_path: Path) -> None:
    draw_images(tmp_path / "photos", 12, name="\N{LATIN SMALL LETTER E WITH ACUTE}{:02}.png", size=20)
    lines = "".join(f"\N{LATIN SMALL LETTER E WITH ACUTE}{item:02}.png,{item}\n" for item in range(12))
    (tmp_path / "labels.csv").write_text(f"file_name,value\n{lines}", encoding="utf-8")
    command = [sys.executable, "-m", "cml.cli", "prepare", "folder", "--images", "photos", "--labels", "labels.csv"]
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*command, "--out", "out"], cwd=tmp_path, env=env, capture_output=True, timeout=120)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(b"error: ")


def test_two_writers_of_one_folder(tmp_path: Path) -> None:
    def slower() -> None:
        with atomic_folder(tmp_path / "out"):
            (tmp_path / "out").mkdir()  # the other one is quicker
            (tmp_path / "out" / "model").write_text("")

    with pytest.raises(UserError, match="already exists and is not an empty folder"):
        slower()
    assert os.listdir(tmp_path) == ["out"]


# ---- texts


def test_long_values_are_not_repeated_whole(tmp_path: Path) -> None:
    assert len(str(UserError("It is " + "x" * 5_000_000 + ", so mend it."))) < 2000
    assert shorten_message("short") == "short"
    with pytest.raises(DataError) as caught:
        saved_options(TrainConfig, {"loss": 7, "x" * 5_000_000: 1}, "config.json", "a config")
    assert len(str(caught.value)) < 2000


def test_numbers_of_thousands_of_digits(made: Path, tmp_path: Path) -> None:
    from cml.data.image_list import ImageList
    from cml.word_vectors.open import open_word_vectors

    for header in ("9" * 5000 + " 3", "3 " + "9" * 5000):
        (tmp_path / "vectors.txt").write_text(f"{header}\nthe 1 2 3\n")
        with pytest.raises(DataError, match=r"vectors\.txt"):
            open_word_vectors(str(tmp_path / "vectors.txt")).find(["the"])
    (tmp_path / "ids.json").write_text(json.dumps({"images": [{"file_name": "00.png", "id": "9" * 5000}]}))
    with pytest.raises(DataError, match="should be a whole number"):
        ImageList.open(made / "photos").with_coco_ids(tmp_path / "ids.json")


def test_a_pipe_in_the_place_of_a_text_is_not_waited_for(tmp_path: Path) -> None:
    from cml.data_prep.row_files import read_rows
    from cml.data_prep.text_lines import read_lines
    from cml.word_vectors.word_vectors import text_words

    os.mkfifo(tmp_path / "labels.csv")
    with pytest.raises(OSError, match="no regular file"):
        next(iter(read_rows(tmp_path / "labels.csv")))
    with pytest.raises(OSError, match="no regular file"):
        next(iter(text_words(tmp_path / "labels.csv")))
    with pytest.raises(DataError, match="no regular file"):
        read_lines(tmp_path / "labels.csv")
