"""Faulty sequences are refused in one line with place, rule and mend, wherever they come in."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.errors import UserError

RNG = np.random.default_rng(0)
SOUND = [RNG.normal(size=(5 + number % 2, 2)).tolist() for number in range(12)]
VECTORS = RNG.normal(size=(12, 4)).astype(np.float32)
WRONG = 7
FORM = r"should be a sequence of numbers \(T,\) or of vectors \(T, F\), T at least 1\. Got "
FAULTS: dict[str, tuple[Any, str, str, str]] = {  # label, distance, what Python says, what is said of a file
    "empty": ([], "dtw", FORM + r"\[\]", r"should hold one array of numbers .* T at least 1"),
    "width": (
        [[1.0, 2, 3]] * 5,
        "dtw",
        "has 3 numbers a step, the first has 2; give as many",
        "export all with the same",
    ),
    "nan": (
        [[1.0, float("nan")]],
        "frechet",
        "holds nan at step 0 .* finite number .*; fill it in",
        "holds nan at step 0",
    ),
    "texts": ([["a", "b"]] * 5, "dtw", FORM + r"\[\['a', 'b'\]", "should hold one array of numbers .* It holds list"),
    "words": ("walk", "frechet", FORM + "'walk'", "should hold one array of numbers .* It holds str"),
    "long": (
        [[1.0, 2.0]] * 20,
        "dtw(band=3)",
        "has 20 steps and label 0 has 5: the band of 3 .* 'band' to at least 15, or to 0",
        "has 20 steps, .* the band of 3 .* to at least 15, or to 0",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_python_names_the_label(kind: str) -> None:
    wrong, name, message, _ = FAULTS[kind]
    labels = [*SOUND[:WRONG], wrong, *SOUND[WRONG + 1 :]]
    model = cml.fit(VECTORS, SOUND, label_distance=name, steps=1, sampler="random(batch_size=12)", quiet=True)
    calls = [
        lambda: cml.distances.get(name).encode(labels),
        lambda: cml.fit(VECTORS, labels, label_distance=name, steps=1, quiet=True),
        lambda: model.evaluate(VECTORS, labels),
        lambda: model.audit(VECTORS, labels),
        lambda: cml.distances.approximate(name, labels, VECTORS, "50%", k=2, quiet=True),
    ]
    for call in calls:
        with pytest.raises(UserError, match=rf"(?s)Label {WRONG} {message}") as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", FAULTS)
def test_prepare_names_the_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, name, _, message = FAULTS[kind]
    for folder in ("images", "steps"):
        (tmp_path / folder).mkdir()
    for number, label in enumerate([*SOUND[:WRONG], wrong, *SOUND[WRONG + 1 :]]):
        Image.new("RGB", (32, 32), (20 * number, 0, 0)).save(tmp_path / "images" / f"{number:02}.png")
        (tmp_path / "steps" / f"{number:02}.json").write_text(json.dumps(label))
    with pytest.raises(UserError, match=rf"{WRONG:02}\.png: .*{message}"):
        cml.prepare(
            "folder",
            tmp_path / "data",
            images=tmp_path / "images",
            kind="sequence",
            label_files=tmp_path / "steps",
            label_distance=name,
        )


def test_commands_name_the_item(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("images", "steps"):
        (tmp_path / folder).mkdir()
    for number, label in enumerate(SOUND):
        Image.fromarray(RNG.integers(0, 255, (32, 32, 3), np.uint8)).save(tmp_path / "images" / f"{number}.png")
        (tmp_path / "steps" / f"{number}.json").write_text(json.dumps(label))
    options = ["--images", str(tmp_path / "images"), "--kind", "sequence", "--label-files", str(tmp_path / "steps")]
    assert main(["prepare", "folder", *options, "--out", str(tmp_path / "data")]) == 0
    path = tmp_path / "data" / "train" / "metadata.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for label, message in (
        (["1 2", "nan 1"], "its label holds nan at step 1 where a finite number should be; fill it in"),
        (["1 2 3", "1 2 3"], "its label has 3 numbers a step, the first has 2"),
        (["1 2", "a b"], "its label should be a sequence of numbers"),
        (["1 2"] * 30, "its label has 30 steps and label .* the band of 4 steps is narrower"),
    ):
        entries[3]["value"] = label
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        capsys.readouterr()
        command = ["distances", str(tmp_path / "data"), "--matrix", "--label-distance", "dtw(band=4)"]
        assert main([*command, "--out", str(tmp_path / "out")]) == 2
        assert re.search(f"role train, item '{entries[3]['item_id']}': {message}", capsys.readouterr().err)
