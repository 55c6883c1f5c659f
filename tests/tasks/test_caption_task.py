"""The task of captions: which word vectors, what mirroring does to words, label distances that training can afford."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cml import distances, losses, sampling, tasks
from cml.approximate.dataset_distances import find_label_faults
from cml.data.images import Images
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data_prep.synthetic.scenes.source import Scenes
from cml.distances import LabelDistance, LabelError
from cml.distances.captions.distance import Captions
from cml.distances.jobs import stored_matrix
from cml.distances.jobs.stored_matrix import MOST_ITEMS, replace_costly_distance
from cml.distances.precomputed import Precomputed
from cml.doors.train import train_task
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.registry import Choice
from cml.reporting.retrieval_report import Picture, ReportRow, write_retrieval_page
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig
from cml.training.learner import Place
from cml.training.saved_model import RunConfig

TASK = tasks.get("caption")
QUICK = replace(
    TASK.recipe,
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    crop=1.0,
    dimension=8,
    sampler="random(batch_size=12)",
    steps=3,
    workers=0,
)


def info(**details: object) -> DatasetInfo:
    return DatasetInfo("photos", "caption", "captions", "captions", "", "", "", details)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    return Scenes(count=36, size=16).prepare(tmp_path_factory.mktemp("scenes") / "scenes")


def test_word_vectors_are_the_settings_or_the_datasets_or_glove() -> None:
    choice = Choice.parse(TASK.label_distance(TASK.recipe, info()))
    assert choice.name == "captions"
    assert choice.settings["vectors"] == "glove-6b-50d"
    choice = Choice.parse(TASK.label_distance(TASK.recipe, info(word_vectors="scene-words")))
    assert choice.settings["vectors"] == "scene-words"
    for own in ("captions(vectors='my words.txt', stop_words=none)", "precomputed(path='d.npy')"):
        recipe = replace(TASK.recipe, label_distance=own)
        assert TASK.label_distance(recipe, info(word_vectors="scene-words")) == own
    recipe = replace(TASK.recipe, label_distance="captions(normalize=False)")
    choice = Choice.parse(TASK.label_distance(recipe, info()))
    assert choice == Choice("captions", {"vectors": "glove-6b-50d", "empty_caption": "drop", "normalize": False})


@pytest.mark.parametrize("vectors", ["/etc/passwd", "../words.txt", 7, None])
def test_a_dataset_cannot_name_files_to_read(vectors: object) -> None:
    with pytest.raises(DataError, match=r"details.word_vectors one of glove-6b-50d, scene-words\. Got"):
        TASK.label_distance(TASK.recipe, info(word_vectors=vectors))


def test_every_variant_can_be_made() -> None:
    for changes in TASK.variants.values():
        config = replace(TASK.recipe, **changes)
        losses.registry.make(config.loss)
        sampling.registry.make(config.sampler)


def test_mirroring_exchanges_left_and_right() -> None:
    assert TASK.recipe.flip == "none"
    assert TASK.mirror is not None
    captions = ["Left of the box is a ball, right? A cup on the RIGHT.", "leftover rights on a bright bus", "a tree"]
    mirrored = TASK.mirror(captions, info())
    assert mirrored == ["Right of the box is a ball, left? A cup on the LEFT.", *captions[1:]]


@pytest.mark.slow
@given(st.lists(st.text(), min_size=1, max_size=3))
def test_mirroring_twice_changes_nothing(captions: list[str]) -> None:
    assert TASK.mirror is not None
    assert TASK.mirror(TASK.mirror(captions, info()), info()) == captions


def test_captions_without_a_known_word_are_left_out_counted_and_named_while_their_image_keeps_one() -> None:
    choice = TASK.label_distance(TASK.recipe, info(word_vectors="scene-words"))
    with pytest.warns(
        UserWarning, match=r"^2 caption\(s\) of which scene-words knows no word are left out: 'A', 'Xq \.'$"
    ):
        labels = distances.get(choice).encode([["a red ball", "A"], ["a blue cup", "Xq ."], ["a cup"]])
    assert len(labels) == 3
    with pytest.raises(LabelError, match=r"has no caption with a known word: \['A'\]"):
        distances.get(choice).encode([["a red ball"], ["A"]])


def test_check_tells_all_that_the_label_distance_will_refuse(dataset: PreparedDataset, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    shutil.copytree(dataset.folder, folder)
    table = folder / "train" / "metadata.jsonl"
    lines = [json.loads(line) for line in table.read_text().splitlines()]
    for line in lines[1:3]:
        line["captions"] = ["Xq .", "zzz"]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [fault.split(": its label has no caption")[0] for fault in find_label_faults(folder)] == [
        f"train item {line['item_id']!r}" for line in lines[1:3]
    ]


@pytest.mark.slow
def test_mirrored_captions_train(dataset: PreparedDataset, tmp_path: Path) -> None:
    trained = train_task(TASK, dataset, replace(QUICK, flip="image"), Place(tmp_path / "run", quiet=True))
    assert all(np.isfinite(record["loss"]) for record in trained.metrics)


def test_captions_are_told_in_full() -> None:
    assert TASK.describe(["A red ball. ", "Two balls"], info()) == "A red ball. / Two balls"
    picture = Image.new("RGB", (8, 8), "red")
    assert TASK.draw(picture, ["A red ball."], info()).tobytes() == picture.tobytes()


def test_the_gallery_shows_captions_and_runs_nothing_of_them(tmp_path: Path) -> None:
    captions = ['<script>alert(1)</script> & a "cat"', "two cats \u202e </figure>", "'); drop"]
    words = TASK.describe(captions, info())
    picture = Picture(Image.new("RGB", (8, 8)), words)
    row = ReportRow(picture, {"ours": [replace(picture, distance=1.0)]}, 0.5)
    write_retrieval_page(tmp_path / "retrieval_report.html", [row], title="captions", unit="summed WMD")
    page = (tmp_path / "retrieval_report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert page.count("</figure>") == 2  # those of the page
    shown = [html.unescape(text) for text in re.findall(r"<bdi aria-hidden=\"true\">(.*?)</bdi>", page)]
    assert len(shown) == 2
    assert all(text.startswith(captions[0]) and "two cats" in text and "\u202e" not in text for text in shown)


def run_losses(dataset: PreparedDataset, out: Path, **options: Any) -> list[float]:  # noqa: ANN401 - of TrainConfig
    trained = train_task(TASK, dataset, replace(QUICK, **options), Place(out, quiet=True))
    return [record["loss"] for record in trained.metrics if "loss" in record]


@pytest.mark.slow
def test_a_small_set_is_trained_on_through_a_matrix_that_the_next_run_reads(
    dataset: PreparedDataset, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_demand = run_losses(dataset, tmp_path / "a", steps=3)  # 24 x 24 pairs are more than 3 batches ask for
    assert not list(cache.rglob("matrix.npy"))
    longer = run_losses(dataset, tmp_path / "b", steps=5, schedule="constant")
    assert len(list(cache.rglob("matrix.npy"))) == 1
    assert RunConfig.load(tmp_path / "b").label_distance == RunConfig.load(tmp_path / "a").label_distance
    again = run_losses(dataset, tmp_path / "c", steps=3, schedule="constant")
    assert again == longer[:3]  # on demand and from the matrix: the same run, to the last bit
    assert on_demand[0] == longer[0]

    def no_more(*arguments: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Captions, "pairwise", no_more)
    assert run_losses(dataset, tmp_path / "d", steps=5, schedule="constant") == longer


def labels_of(dataset: PreparedDataset) -> tuple[LabelDistance, distances.Labels]:
    distance = distances.get("captions", vectors="scene-words")
    return distance, distance.encode(dataset.split("train").labels)


@pytest.mark.slow
def test_the_matrix_gives_the_same_distances(dataset: PreparedDataset) -> None:
    distance, labels = labels_of(dataset)
    stored, rows = replace_costly_distance(distance, labels, blocks=100, rows=24)
    assert isinstance(stored, Precomputed)
    assert stored.unit == distance.unit
    items = np.random.default_rng(0).permutation(24)[:10]
    np.testing.assert_array_equal(
        stored.pairwise(rows[items[:3]], rows[items]), distance.pairwise(labels[items[:3]], labels[items])
    )
    np.testing.assert_array_equal(stored.neighbors(rows, 5).ids, distance.neighbors(labels, 5).ids)


def test_a_matrix_is_made_only_where_it_pays(dataset: PreparedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    distance, labels = labels_of(dataset)
    assert replace_costly_distance(distance, labels, blocks=3, rows=13)[0] is distance  # 507 pairs, the matrix has 576
    assert replace_costly_distance(distance, labels, blocks=4, rows=12)[0] is not distance
    cheap = distances.get("euclidean")
    assert replace_costly_distance(cheap, cheap.encode([1, 2, 3]), blocks=100, rows=24)[0] is cheap
    monkeypatch.setattr(stored_matrix, "MOST_ITEMS", 20)
    assert MOST_ITEMS > 20
    assert replace_costly_distance(distance, labels, blocks=100, rows=24)[0] is distance


def test_without_a_cache_blocks_are_made_on_demand(
    dataset: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "file"))
    distance, labels = labels_of(dataset)
    assert replace_costly_distance(distance, labels, blocks=100, rows=24) == (distance, labels)


@pytest.mark.slow
@pytest.mark.parametrize(("start", "workers"), [("fork", 2), ("spawn", 1)])
def test_data_workers_make_the_same_blocks_on_one_thread_each(
    dataset: PreparedDataset, start: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # a spawned worker imports this module as tests.*
    distance, labels = labels_of(dataset)
    images = Images(dataset.split("train").paths, (16, 16))
    source = BatchSource(
        LabelledItems(images, labels, distance),
        sampling.get("random", batch_size=12),
        np.empty((24, 0), np.int32),
        TrainConfig(image_size=(16, 16)),
    )
    # as in training, where the loss is fitted on label distances first: what follows compiles nothing
    expected = [source[step][1] for step in range(2)]
    loader: Any = torch.utils.data.DataLoader(
        _WithThreads(source), batch_size=None, num_workers=workers, multiprocessing_context=start
    )
    for step, (block, threads, compiling) in enumerate(loader):
        assert torch.equal(block, expected[step])
        assert threads == 1
        assert compiling == 0
        if step == 1:
            break


class _WithThreads(torch.utils.data.Dataset[Any]):
    """Label distances of a step, the worker's threads, and how many kernels it had to compile anew."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return 2

    def __getitem__(self, step: int) -> tuple[torch.Tensor, int, int]:
        from cml.distances.captions.exact_wmd import fill_row

        kernel: Any = fill_row
        before = sum(kernel.stats.cache_misses.values())  # a forked worker inherits its parent's count
        made = self._source[step][1]
        return made, torch.get_num_threads(), sum(kernel.stats.cache_misses.values()) - before


def test_wrong_captions_name_the_item(dataset: PreparedDataset, tmp_path: Path) -> None:
    folder = tmp_path / "scenes"
    shutil.copytree(dataset.folder, folder)
    path = folder / "train" / "metadata.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    entry = {**json.loads(lines[3]), "captions": ["Zzgl xqst."]}
    path.write_text("\n".join([*lines[:3], json.dumps(entry), *lines[4:]]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"item '00003': its label has no caption with a known word: \['Zzgl xqst\.'\]"):
        train_task(TASK, PreparedDataset.open(folder), QUICK, Place(tmp_path / "run", quiet=True))


def test_unknown_vectors_are_refused(dataset: PreparedDataset, tmp_path: Path) -> None:
    config = replace(QUICK, label_distance="captions(vectors=no-such-words)")
    with pytest.raises(UserError, match=r"The word vectors 'no-such-words' cannot be read"):
        train_task(TASK, dataset, config, Place(tmp_path / "run", quiet=True))
