from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cml.array_types import Float32
from cml.cli import main
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobResult
from cml.distances.jobs.summary import QUANTILES, summarize
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]), min_size=15, max_size=15), st.integers(3, 6))
def test_summary_equals_plain_loops(values: list[float], n: int) -> None:
    matrix = np.zeros((n, n), np.float32)
    matrix[np.triu_indices(n, 1)] = values[: n * (n - 1) // 2]
    matrix += matrix.T
    pairs = [float(matrix[i, j]) for i in range(n) for j in range(i)]
    finite = [d for d in pairs if d < math.inf]
    positive = [d for d in finite if d > 0]
    distance = Table(tuple(map(tuple, matrix.tolist())))
    labels = distance.encode(list(range(n)))
    if not positive:
        with pytest.raises(UserError, match="none has a label distance above 0 and finite"):
            summarize(distance, labels)
        return
    found = summarize(distance, labels)
    equal = triples = alone = 0
    for i in range(n):
        others = [matrix[i, j] for j in range(n) if j != i and matrix[i, j] < math.inf]
        alone += not others
        for a in range(len(others)):
            for b in range(len(others)):
                equal += a != b and others[a] == others[b]
                triples += a != b
    assert found.pairs == len(pairs)
    assert found.zeros == pytest.approx(pairs.count(0.0) / len(pairs))
    assert found.infinities == pytest.approx(pairs.count(math.inf) / len(pairs))
    assert found.alone == pytest.approx(alone / n)
    assert found.ties == pytest.approx(equal / triples if triples else 0)
    assert found.mean == pytest.approx(sum(finite) / len(finite))
    logs = [math.log(d) for d in positive]
    middle = sum(logs) / len(logs)
    assert found.log_std == pytest.approx(math.sqrt(sum((v - middle) ** 2 for v in logs) / len(logs)), abs=1e-7)
    for share in QUANTILES:
        place = share * (len(finite) - 1)
        low, high = (sorted(finite)[round(end)] for end in (math.floor(place), math.ceil(place)))
        assert found.quantiles[share] == pytest.approx(low + (place - math.floor(place)) * (high - low))
    assert found.positive_quantiles[0.0] == min(positive)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["quantiles"]["0.5"] == found.quantiles[0.5]
    assert "quantile 0.5" in found.table()
    assert replace(found, zeros=0.4).table().count(" (without the zeros: ") == len(found.quantiles)


@dataclass(frozen=True)
class Table(LabelDistance):
    """Distances read off a table; labels are row numbers."""

    table: tuple[tuple[float, ...], ...]
    name = "test table"
    unit = "none"

    def encode(self, labels: Any) -> Labels:  # noqa: ANN401
        return Labels({"rows": np.asarray(labels)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        block: Float32 = np.array(self.table, np.float32)[a.arrays["rows"][:, None], b.arrays["rows"]]
        return block


def test_summary_sees_the_pairs_that_fix_a_losss_constants(tmp_path: Path) -> None:
    from cml.losses.label_distance_loss import sample_label_distances

    distance = Euclidean()
    labels = distance.encode(np.random.default_rng(2).normal(size=700).tolist())
    for seed in (0, 3):
        np.testing.assert_array_equal(
            summarize(distance, labels, seed=seed).distances, sample_label_distances(distance, labels, seed)
        )
    with pytest.raises(UserError, match="at least 3 items"):
        summarize(distance, labels[:2])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "people"
    assert main(["prepare", "people", "--out", str(folder), "--count", "60", "--size", "32"]) == 0
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What a command prints on stdout, or its one line of error."""
    capsys.readouterr()
    assert main(["distances", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    if code:
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1
        return lines[0]
    return out


def test_command_writes_finds_and_verifies(
    people: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m"
    assert "matrix of " in printed(capsys, people, "--matrix", "--out", out)
    record, items = (json.loads((out / name).read_text()) for name in ("job.json", "items.json"))
    assert record["label_distance"].startswith("keypoints(")
    assert record["items"] == len(items) == len(np.load(out / "matrix.npy"))
    assert "was there already" in printed(capsys, people, "--matrix", "--out", out)
    files = "the checksums of items.json, matrix.npy hold"
    again = r"[\d,]+ of [\d,]+ stored distances computed again, all equal"
    assert re.search(f"{files}; {again}", printed(capsys, people, "--matrix", "--out", out, "--verify"))
    found = json.loads(printed(capsys, "--data", people, "--neighbors", 5, "--json"))
    assert str(cache) in found["folder"]
    assert found["unit"] == "px"
    assert json.loads(printed(capsys, people, "--neighbors", 5, "--verify", "--json"))["compared"] == 16 * 5
    both = json.loads(printed(capsys, people, "--matrix", "--role", "query-gallery", "--json", "--out", tmp_path / "q"))
    every = json.loads(printed(capsys, people, "--matrix", "--role", "all", "--json", "--out", tmp_path / "a"))
    assert (every["items"], record["items"] + both["items"]) == (60, 60)
    torsos = ("--label-distance", "keypoints(min_shared=2)")
    assert "label_distance was keypoints(" in printed(capsys, people, "--matrix", "--out", out, *torsos, code=2)


def test_command_summarizes(people: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, people, "--summary", "--out", tmp_path / "s")
    for part in ("distance 0", "infinite", "ties", "scale", "quantile 0.05", " px"):
        assert part in text
    with Image.open(tmp_path / "s" / "histogram.png") as image:
        assert image.width > 1000
    found = json.loads(printed(capsys, people, "--summary", "--json"))
    assert Path(found["histogram"]).is_file()
    assert 0 < found["quantiles"]["0.05"] < found["quantiles"]["0.5"]


def test_users_mistakes_are_one_line(
    people: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Choose one of --neighbors K, --matrix, --budget and --summary" in printed(capsys, people, code=2)
    assert "Choose one of" in printed(capsys, people, "--matrix", "--summary", code=2)
    assert "--verify goes with" in printed(capsys, people, "--summary", "--verify", code=2)
    assert "Got k=500" in printed(capsys, people, "--neighbors", 500, code=2)
    assert "job.json is missing" in printed(capsys, people, "--neighbors", 3, "--verify", code=2)
    assert "Unknown label distance" in printed(capsys, people, "--matrix", "--label-distance", "far", code=2)
    assert "its label should be a number" in printed(
        capsys, people, "--matrix", "--label-distance", "euclidean", code=2
    )
    (tmp_path / "file").write_text("")
    for options in (("--matrix",), ("--summary",), ("--neighbors", 3)):
        assert "cannot be written" in printed(capsys, people, *options, "--out", tmp_path / "file" / "x", code=2)
    assert "dataset.json cannot be read" in printed(capsys, tmp_path, "--summary", code=2)


def test_interrupted_command_says_how_to_go_on(
    people: Path, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> JobResult:
        raise KeyboardInterrupt

    monkeypatch.setattr("cml.distances.jobs.run.run_job", interrupted)
    assert main(["distances", str(people), "--matrix"]) == 130
    assert "the same command continues from there" in capsys.readouterr().err


def captions_dataset(folder: Path, label: object) -> Path:
    """Twelve captioned images; the label of the item "third" is ``label``."""
    from cml.data.prepared import DatasetInfo
    from cml.data.prepared_writer import Item, PreparedWriter

    np.save(folder / "words.npy", np.eye(3))
    (folder / "words.txt").write_text("dog\ncat\nruns")
    info = DatasetInfo("spoken", "value", "captions", "", "", "drawn", "none")
    with PreparedWriter(folder / "data", info) as writer:
        for number, role in enumerate(["train"] * 8 + ["query"] * 2 + ["gallery"] * 2):
            name = "third" if number == 3 else f"item {number}"
            text = ["dog runs", "cat runs"] if number % 2 else ["dog", "cat"]
            writer.add([Item(item_id=name, role=role, image=Image.new("RGB", (4, 4)), label=text)])
    lines = (folder / "data" / "train" / "metadata.jsonl").read_text().splitlines()
    lines[3] = json.dumps({**json.loads(lines[3]), "captions": label})
    (folder / "data" / "train" / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "data"


@pytest.mark.parametrize(
    ("label", "error"),
    [
        (["dog", "xyzzy"], r"item 'third': its label caption 1, 'xyzzy', has no word left that .*words\.npy knows"),
        ([], r"train/metadata\.jsonl:4: captions holds empty lists"),
        ("a dog", r"train/metadata\.jsonl:4: captions is a text, but the first item's is a list of texts"),
    ],
)
def test_a_bad_caption_is_named_by_its_item(
    label: object, error: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = captions_dataset(tmp_path, label)
    distance = f"captions(vectors='{tmp_path / 'words.npy'}')"
    for job in (("--matrix",), ("--neighbors", 3), ("--summary",)):
        assert re.search(error, printed(capsys, data, *job, "--label-distance", distance, code=2))


@pytest.mark.parametrize(
    ("third", "error"),
    [
        (np.zeros((4, 4), np.uint8), "only ignored pixels"),
        (np.ones((5, 4), np.uint8), "is 4x5 pixels, the first is 4x4"),
    ],
)
def test_a_bad_mask_is_named_by_its_item(
    third: np.ndarray[Any, Any], error: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cml.data.prepared import DatasetInfo
    from cml.data.prepared_writer import Item, PreparedWriter

    info = DatasetInfo("rooms", "value", "layout_file_name", "", "", "drawn", "none", details={"ids": {"1": "front"}})
    with PreparedWriter(tmp_path / "data", info) as writer:
        for number, role in enumerate(["train"] * 8 + ["query"] * 2 + ["gallery"] * 2):
            name = "third" if number == 3 else f"item {number}"
            mask = third if number == 3 else np.full((4, 4), 1 + number % 2, np.uint8)
            image = Image.new("RGB", (mask.shape[1], mask.shape[0]))
            writer.add([Item(item_id=name, role=role, image=image, label=Image.fromarray(mask))])
    distance = ("--label-distance", "layout(resolution=none, ignore=0)")
    for job in (("--matrix",), ("--neighbors", 3), ("--summary",)):
        said = printed(capsys, tmp_path / "data", *job, *distance, code=2)
        assert "item 'third': its label" in said
        assert error in said
