from __future__ import annotations

import doctest
import errno
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cml import errors
from cml.cli import COMMANDS, main
from cml.command_line.parse_options import parse
from cml.commands.train import Train
from cml.doors.trained_run import TrainedRun
from cml.errors import UserError
from cml.training.config import TrainConfig

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--workers", "0"]
LISTS = ["--sampler", "grouped(batch_size=30, groups=5, drawn=2, pool=6)"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "people"
    assert main(["prepare", "people", "--out", str(folder), "--count", "160", "--size", "32"]) == 0
    return folder


@pytest.fixture(scope="module")
def run(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pose"
    assert main(["train", "pose", "--data", str(people), "--out", str(folder), "--steps", "12", *SMALL, *LISTS]) == 0
    return folder


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a failing command prints; its exit code must be 2."""
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_prepare_train_evaluate_gallery(people: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--data", str(people)]) == 0
    assert main(["evaluate", str(run)]) == 0
    table = capsys.readouterr().out
    for row in ("embedding", "random", "oracle", "frozen efficientnet-lite0 at 32 x 32 pixels"):
        assert row in table
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert set(evaluation["rows"]) == {"embedding", "random", "oracle", "frozen efficientnet-lite0 at 32 x 32 pixels"}

    assert main(["report", str(run), "--queries", "5", "--k", "3"]) == 0
    page = (run / "retrieval_report.html").read_text()
    assert page.count("<img") >= 5 or page.count("data:image/jpeg") >= 5
    assert "<script" not in page
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "checkpoints",
        "lock",
        "model.safetensors",
        "loss.png",
        "training_items.npy",
        "evaluation.json",
        "retrieval_report.html",
        "modules.json",
        "config_sentence_transformers.json",
    }


def test_training_is_better_than_chance_on_drawn_people(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    found = {name: row["label_distance@10"]["mean"] for name, row in rows.items()}
    assert found["oracle"] < found["embedding"] < found["random"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Some anchors have no positive")  # 10 % of few people: some are rare
def test_demo_runs_from_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "2", "--count", "300"]) == 0
    out = capsys.readouterr().out
    assert "\nlog-ratio  " in out
    assert "\nbinary triplet, threshold  " in out
    assert "next:" in out
    page = next(line for line in out.splitlines() if line.startswith("look:")).split()[1]
    assert Path(page).name == "retrieval_report.html"
    assert Path(page).exists()
    assert "Unknown task 'classes'. Known: " in failure(capsys, "demo", "classes")


@pytest.mark.slow
@pytest.mark.parametrize("said", ["", "the checkpoint of step 1 of 2 is written"])
def test_an_interrupted_demo_goes_on_with_the_same_command(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt(said)

    monkeypatch.setattr("cml.comparing.train_comparison.train_task", stopped)
    assert main(["demo", "--out", str(tmp_path / "demo"), "--steps", "2", "--count", "150"]) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"stopped; {said or 'what is finished is kept'}; the same command continues from there"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Some anchors have no positive")
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_demo_with_seeds_and_variants_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["demo", "--out", str(tmp_path / "demo"), "--steps", "1", "--count", "200", "--seeds", "2"]
    assert main([*start, "--variants", "dense triplet", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "| dense triplet |" in out
    assert "log-ratio" not in out
    assert "over 2 seeds" in out
    assert " ± " in next(line for line in out.splitlines() if line.startswith("| dense triplet"))
    assert len(list((tmp_path / "demo").rglob("retrieval_report.html"))) == 1
    assert "Unknown variant 'dense' of task 'pose'. Known: \"log-ratio\"" in failure(
        capsys, *start, "--variants", "dense"
    )


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    for name in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert "usage: cml " + name in capsys.readouterr().out


def test_users_mistakes_are_one_line_and_code_2(
    people: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Did you mean 'train'? Known: demo" in failure(capsys, "trian")
    assert "Unknown task 'posse'" in failure(capsys, "train", "posse")
    assert "Unknown source 'mpi'. Did you mean 'mpii'? Known: " in failure(capsys, "prepare", "mpi")
    assert "Did you mean 'coco_captions'?" in failure(capsys, "prepare", "coco-captions")
    train = ("train", "pose", "--data", people, "--out", tmp_path / "run", *SMALL)
    assert "takes 150 different items, but there are 106" in failure(capsys, *train)
    assert "takes 150 different items" in failure(capsys, *train)  # and no complaint about what the first try left
    assert "Unknown loss 'log'" in failure(capsys, *train, "--loss", "log")
    assert "'steps' must be 1 or more" in failure(capsys, *train, "--steps", "0")
    assert "holds a finished run" in failure(capsys, "train", "pose", "--data", people, "--out", run, *SMALL, *LISTS)
    gone = ("prepare", "cub", "--source", tmp_path / "gone", "--out", tmp_path / "set")
    assert f"There is no {tmp_path / 'gone'}. Give the folder or file of the raw data with --source." in failure(
        capsys, *gone
    )
    assert "dataset.json cannot be read" in failure(
        capsys, "train", "pose", "--data", tmp_path, "--out", tmp_path / "r"
    )
    assert "is not a folder" in failure(capsys, "evaluate", tmp_path / "nowhere")
    assert "holds no run to resume" in failure(
        capsys, "train", "pose", "--data", people, "--out", tmp_path / "none", "--resume"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train pose --data d --out o --step 3", "cml train pose has no option --step. Did you mean --steps?"),
        ("train pose --data d --out o --image_sise=3", "no option --image_sise. Did you mean --image-size?"),
        ("train pose --data d --out o --batch-size 9", "The size of batches is the sampler's, as in --sampler"),
        ("train pose --data d --out o --zzzzzz", "cml train pose has no option --zzzzzz. 'cml train pose --help'"),
        ("train pose --data d", "cml train pose needs --out."),
        ("train pose", "cml train pose needs --data and --out."),
        ("train pose --data d --out o --seed one", "--seed: invalid literal for int() with base 10: 'one'."),
        ("train pose --data d --out o --flip both", "Expected one of ('none', 'list', 'image')."),
        ("train pose --data d --out o --image-size 32", "'--image-size'. Expected 2 values."),
        ("train pose --data d --out o --clip-gradient q", "--clip-gradient: no type matching"),
        ("train pose --data d --out o stray", "Unrecognized options: stray."),
        ("prepare people --cuont 3", "cml prepare people has no option --cuont. Did you mean --count?"),
        ("evaluate --k 3", "cml evaluate has no option --k."),
        ("demo --task pose", "cml demo pose has no option --task."),
        ("evaluate", "cml evaluate needs RUN."),
        ("report --k 3", "cml report needs RUN."),
        ("evaluate --run", "Missing value for argument '--run'. Expected 1 values."),
        ("evaluate run another", "Unrecognized options: another."),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_wrong_options_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, said: str, encoding: str
) -> None:
    # the parser's frame depends on what the terminal can show
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert main(arguments.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert "--help' lists all" in lines[0]


@pytest.mark.parametrize("command", ["evaluate", "report", "check", "distances", "embed", "index", "search"])
def test_what_a_command_works_on_is_given_by_place_or_by_flag(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are refused in the same words: there is no such folder."""
    gone = str(tmp_path / "gone")
    flag = {"check": "--data", "distances": "--data", "search": "--index"}.get(command, "--run")
    rest = {
        "distances": ["--summary"],
        "embed": ["--images", gone, "--out", gone],
        "index": [gone, "--out", gone],
        "search": [gone],
    }.get(command, [])
    said = {failure(capsys, command, *words, *rest) for words in ([gone], [flag, gone], [f"{flag}={gone}"])}
    assert len(said) == 1
    assert "gone" in said.pop()


def test_an_option_explained_in_several_lines_is_explained_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "value", "--help-all"])
    said = " ".join(re.sub(r"[│|]", "", capsys.readouterr().out).split())
    assert (
        "They are trained instead of the backbone's weights, which needs less memory, and are merged into the weights "
        "at the end." in said
    )


def test_a_sources_help_says_each_thing_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["prepare", "people", "--help"])
    assert capsys.readouterr().out.count("Drawn people in random poses") == 1


def test_flags_may_be_written_as_the_parser_takes_them() -> None:
    for arguments in (["--image_size", "3", "4"], ["--image-size", "3", "4", "--steps=7"], ["--no-resume"], []):
        default = Train(Path("d"), Path("o"), TrainConfig())
        parsed = parse(Train, arguments, prog="cml", description="", default=default)
        assert parsed.training.image_size == ((3, 4) if "3" in arguments else (224, 224))
        assert parsed.training.steps == (7 if "--steps=7" in arguments else 1000)


def test_frozen_backbone_turns_the_recipes_mirroring_off(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    command = ("train", "pose", "--data", people, "--out", out, "--steps", "2", "--freeze-backbone", *SMALL, *LISTS)
    assert main([str(word) for word in command]) == 0
    assert "the recipe's mirroring is off" in capsys.readouterr().err
    assert json.loads((out / "config.json").read_text())["train"]["flip"] == "none"
    assert "set 'flip' to none. Got flip=list" in failure(capsys, *command, "--flip", "list")
    assert "set 'flip' to none. Got flip=image" in failure(capsys, *command, "--flip=image")


def test_too_few_images_for_a_batch_leave_no_run_behind(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = failure(capsys, "train", "pose", "--data", people, "--out", tmp_path / "run", "--steps", "2", *SMALL)
    assert 'as in "random(batch_size=' in message
    assert not (tmp_path / "run").exists()


def test_a_label_distance_of_another_process_is_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"label_distance": "hours-of-mine"}))
    message = failure(capsys, "evaluate", copy)
    assert "Unknown label distance 'hours-of-mine'" in message
    assert "load the file that does it by --plugin FILE" in message


@pytest.mark.parametrize("tampered", [False, True])
def test_a_head_on_a_frozen_backbone_reads_features_from_the_cache_if_they_are_the_models(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tampered: bool
) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    out, small = tmp_path / "run", ["--image-size", "32", "32", "--crop", "1", "--workers", "0", *LISTS]
    command = ["train", "pose", "--data", str(people), "--out", str(out), "--steps", "3", "--freeze-backbone", *small]
    assert main(command) == 0
    trained, again = TrainedRun.open(out), TrainedRun.open(out)
    if tampered:
        for one in (trained, again):
            next(one.model.network.backbone.parameters()).data *= 1.5
    paths = trained.dataset.split("query").paths
    expected = trained.model.embed(paths)
    assert np.array_equal(trained.embeddings[0], expected)
    if not tampered:  # the second time no image goes through the network
        monkeypatch.setattr(type(again.model.network), "features", lambda *_: pytest.fail("the cache was not read"))
        assert np.array_equal(again.embeddings[0], expected)


def test_a_head_on_a_frozen_backbone_needs_no_published_weights_to_be_evaluated(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    out, small = tmp_path / "run", ["--image-size", "32", "32", "--crop", "1", "--workers", "0", *LISTS]
    command = ["train", "pose", "--data", str(people), "--out", str(out), "--steps", "2", "--freeze-backbone", *small]
    assert main(command) == 0
    trained = TrainedRun.open(out)
    assert trained.model.network.embed_feature_rows(np.empty((0, 1280), np.float32)).shape == (0, 128)

    def missing(*_: object) -> None:
        raise UserError("the weights cannot be downloaded")

    monkeypatch.setattr(TrainedRun, "_published", property(missing))
    assert np.array_equal(trained.embeddings[0], trained.model.embed(trained.dataset.split("query").paths))


def test_run_of_another_dataset_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert main(["prepare", "people", "--out", str(other), "--count", "160", "--size", "32", "--seed", "1"]) == 0
    message = failure(capsys, "evaluate", run, "--data", other)
    assert "trained on another dataset" in message
    assert str(other) in message


def test_bad_image_stops_training_with_its_name(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(people, broken)
    victim = sorted((broken / "train").rglob("*.png"))[3]
    victim.write_bytes(victim.read_bytes()[:100])
    command = ("train", "pose", "--data", broken, "--out", tmp_path / "run", "--steps", "2", *SMALL, *LISTS)
    assert victim.name in failure(capsys, *command)
    assert main(["check", "--data", str(broken)]) == 2
    assert victim.name in capsys.readouterr().out


def test_full_disk_is_said_and_leaves_nothing_whole(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    command = ["train", "pose", "--data", str(people), "--out", str(tmp_path / "run"), "--steps", "2", *SMALL, *LISTS]
    with monkeypatch.context() as patch:
        patch.setattr("torch.save", full)
        assert main(command) == 1
    assert "The disk is full" in capsys.readouterr().err
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert main([*command, "--resume"]) == 0
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_goes_on_with_its_own_options_wherever_its_dataset_is(
    people: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = shutil.copytree(run, tmp_path / "cut")
    (cut / "model.safetensors").unlink()
    resume = ("train", "pose", "--out", str(cut), "--resume")
    assert "was started with learning_rate=0.001, now learning_rate=0.5" in failure(
        capsys, *resume, "--learning-rate", "0.5"
    )
    assert "different settings (task was pose, now layout)" in failure(capsys, "train", "layout", *resume[2:])
    assert main([*resume]) == 0
    assert (cut / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()

    (cut / "model.safetensors").unlink()
    config = json.loads((cut / "config.json").read_text())
    (cut / "config.json").write_text(json.dumps(config | {"dataset": str(tmp_path / "gone")}))
    assert str(tmp_path / "gone") in failure(capsys, *resume)
    assert main([*resume, "--data", str(people), "--device", "cpu"]) == 0
    assert (cut / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_progress_bar_in_a_log_is_a_line_every_ten_seconds(run: Path, tmp_path: Path) -> None:
    for number in range(40):
        Image.new("RGB", (32, 32)).save(tmp_path / f"{number}.png")
    command = [
        sys.executable,
        "-m",
        "cml",
        "embed",
        str(run),
        "--images",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run([*command, "--batch-size", "1"], capture_output=True, text=True, check=True, timeout=120)
    assert "embed: 100%" in done.stderr
    lines = [line for line in done.stderr.split("\n") if line.startswith("embed:")]
    assert len(lines) == 2  # the first and the last, for it takes less than ten seconds
    assert "\r" not in done.stderr


def test_own_folder_of_images_from_start_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    lines = ["file_name,age,height"]
    for index in range(90):
        level = rng.integers(20, 230)
        Image.fromarray(np.full((40, 50, 3), level, np.uint8)).save(tmp_path / "pictures" / f"{index}.png")
        lines.append(f"{index}.png,{level / 3:.1f},{level * 0.01:.2f}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    data, out = str(tmp_path / "mine"), str(tmp_path / "run")
    command = ["prepare", "folder", "--images", str(tmp_path / "pictures"), "--labels", str(tmp_path / "labels.csv")]
    assert main([*command, "--label-columns", "age", "height", "--out", data]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("next: "))
    # what it says to do next
    check, then = map(shlex.split, said.removeprefix("next: ").split(" && "))
    assert check == ["cml", "check", data]
    program, *following = then
    following[following.index("--out") + 1] = str(tmp_path / "next")
    assert program == "cml"
    following[following.index("--tune")] = "--steps=2"  # what tune does is in tests/training/test_tune.py
    assert main([*following, *SMALL, *LISTS]) == 0
    assert main(["train", "value", "--data", data, "--out", out, "--steps", "5", *SMALL, *LISTS]) == 0
    assert main(["evaluate", out]) == 0
    assert main(["report", out]) == 0


def test_examples() -> None:
    failed, tried = doctest.testmod(errors)
    assert tried > 0
    assert failed == 0
