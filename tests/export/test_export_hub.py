from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from export_runs import CONFIG, draw_images, make_run
from huggingface_hub import ModelCard
from safetensors.numpy import load_file

import cml
from cml.cli import main
from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError
from cml.export.hub import build_model_card, export_hub
from cml.models.weights import model_fingerprint
from cml.training.saved_model import RunConfig


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    draw_images(folder / "photos", 60)
    rows = [f"{n:03}.png,{n},{('train', 'train', 'query', 'gallery')[n % 4]}" for n in range(60)]
    (folder / "labels.csv").write_text("\n".join(["file_name,age,split", *rows]) + "\n")
    command = ["prepare", "folder", "--images", folder / "photos", "--labels", folder / "labels.csv"]
    command += ["--label-columns", "age", "--split-column", "split", "--unit", "years", "--out", folder / "ages"]
    assert main([str(one) for one in command]) == 0
    return folder / "ages"


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "ages"
    command = ["train", "value", "--data", data, "--out", folder, "--backbone", "small-cnn", "--weights", "none"]
    command += ["--image-size", 32, 32, "--steps", 2, "--workers", 0, "--dimension", 8, "--device", "cpu"]
    assert main([str(one) for one in [*command, "--sampler", "random(batch_size=16)"]]) == 0
    assert main(["evaluate", str(folder), "--device", "cpu"]) == 0
    return folder


def test_the_folder_is_whole_loads_as_a_run_and_says_what_it_is(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "hub"
    command = ["export", "hub", str(run), "--out", str(out), "--name", "Ages of *photos*", "--licence", "mit"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "not on the card" not in shown.err
    of_sentence_transformers = ["config_sentence_transformers.json", "modules.json"]
    own = ["README.md", "config.json", "model.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == sorted(own + of_sentence_transformers)

    original, shared = cml.load(run, device="cpu"), cml.load(out, device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    np.testing.assert_array_equal(original.embed(images), shared.embed(images))
    assert model_fingerprint(original.network) == model_fingerprint(shared.network)
    weights = load_file(out / "model.safetensors")
    np.testing.assert_array_equal(weights["head.weight"], original.network.head.weight.detach().numpy())

    card = ModelCard.load(out / "README.md")
    assert card.data.license == "mit"
    assert card.data.library_name == "cml"
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    evaluation = json.loads((run / "evaluation.json").read_text())["rows"]["embedding"]
    assert results["label_distance@3"] == pytest.approx(evaluation["label_distance@3"]["mean"], abs=1e-6)
    assert not any(name in card.text for name in ("hit@", "ndcg@10", "label_distance@4"))  # of 15 gallery items
    for words in ("30 train, 15 query, 15 gallery", "years", "euclidean", "log-ratio", "| oracle |", "cml.load("):
        assert words in card.text, words
    assert r"# Ages of \*photos\*" in card.text
    for path in out.iterdir():  # nothing of this machine goes out
        content = path.read_bytes()
        assert str(data).encode() not in content
        assert str(run).encode() not in content


def test_what_takes_a_run_takes_the_folder(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "hub")
    assert main(["export", "hub", str(run), "--out", out]) == 0
    assert main(["embed", out, "--images", str(data), "--out", str(tmp_path / "e"), "--device", "cpu"]) == 0
    assert main(["evaluate", out, "--data", str(data), "--device", "cpu"]) == 0
    assert main(["export", "hub", out, "--out", str(tmp_path / "again"), "--data", str(data)]) == 0
    a, b = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "hub", tmp_path / "again"))
    assert a == b
    capsys.readouterr()
    assert main(["evaluate", out]) == 2
    assert f"{out} does not say where its dataset lies; give it with --data." in capsys.readouterr().err


def test_what_the_card_cannot_say_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "arrays")
    assert main(["export", "hub", str(run), "--out", str(tmp_path / "hub"), "--json"]) == 0
    shown = capsys.readouterr()
    gaps = json.loads(shown.out)["not_on_the_card"]
    assert len(gaps) == 3
    assert shown.err.count("not on the card: ") == 3
    card = ModelCard.load(tmp_path / "hub" / "README.md")
    assert card.data.license == "other"
    assert card.data.eval_results is None
    assert "Not measured" in card.text
    assert "Not stated" in card.text


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    hostile = 'x" ]\n---\n# owned\n<script>alert(1)</script> | `code` [a](javascript:b) \x00'
    config = RunConfig.load(make_run(tmp_path / "run"))
    config = replace(config, task=hostile, label_distance=hostile, train=replace(CONFIG, loss=hostile))
    info = DatasetInfo(hostile, hostile, hostile, hostile, hostile, hostile, hostile, counts={"train": 3})
    text = build_model_card(hostile, config, licence=hostile, data=info)
    header, body = text.split("\n---\n", 1)
    values = yaml.safe_load(header.removeprefix("---\n"))
    assert values["license"] == hostile
    assert values["tags"][3] == hostile
    assert "\n# owned" not in body
    shown = re.sub(r"(?<!\\)`[^`]*`", "", body)  # code shows as it is
    assert "<script" not in shown
    assert not re.search(r"(?<!\\)[\[\]]", shown)
    for line in body.splitlines():
        if line.startswith("| ") and "---" not in line[:4]:
            assert line.replace("\\|", "").count("|") == 3, line


def test_wrong_input_is_said(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "hub", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert main(["export", "hub", str(run), "--out", str(tmp_path / "full")]) == 2
    assert "already exists" in capsys.readouterr().err
    broken = make_run(tmp_path / "broken")
    (broken / "evaluation.json").write_text("{}")
    with pytest.raises(DataError, match="Run cml evaluate again"):
        export_hub(broken, tmp_path / "x")
    (broken / "evaluation.json").unlink()
    (broken / "model.safetensors").unlink()
    with pytest.raises(DataError, match="not finished"):
        export_hub(broken, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_another_dataset_is_not_put_on_the_card(run: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    info = json.loads((other / "dataset.json").read_text())
    (other / "dataset.json").write_text(json.dumps(info | {"source": "elsewhere"}))
    with pytest.raises(DataError, match=r"is not the dataset .* \(source was .*, now elsewhere\)"):
        export_hub(run, tmp_path / "x", data=other)
