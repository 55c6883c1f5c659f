"""Every loss is compared on every task that has its labels, two steps each, beside the task's own variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cml
from cml import data_prep, distances, losses, tasks
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.errors import UserError

pytestmark = pytest.mark.slow

SOURCES = {"pose": "people", "layout": "rooms", "caption": "scenes", "value": "heads", "classes": "things"}
IN_BRACKETS = {
    "binary": "binary(loss=triplet, rule=nearest, k=3)",  # it has no loss by itself
    "language-guidance": "language-guidance(vectors=scene-words)",  # which come with cml
}
OF_CLASSES = {
    "matryoshka": "matryoshka(loss=cosent)",
    "proxy-gml": "proxy-gml(share=0.5)",  # of few classes
    "sum": "sum(cosent, 0.3*cosent(scale=2.0))",
}
TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 9,  # that of a rotation, which the loss "regression" predicts
    "steps": 2,
    "workers": 0,
    "flip": "none",
}


SAMPLERS = {"classes": "per-class(batch_size=16, per_class=4)"}  # random batches of the others


def tiny(task: str) -> dict[str, Any]:
    """Options of training that take a fraction of a second."""
    return {**TINY, "sampler": SAMPLERS.get(task, "random(batch_size=16)")}


def lacks_labels(dataset: PreparedDataset, loss: str) -> bool:
    """Whether the loss is over classes, vectors or judged triplets, that the labels of the dataset are not."""
    task = tasks.get(dataset.info.task)
    distance = distances.get(task.label_distance(task.recipe, dataset.info))
    labels = distance.encode(dataset.split("train").labels[:2])
    by_kind = {"classes": distance.class_names, "vectors": distance.label_vectors}
    kind = losses.get(loss).labels
    return kind == "triplets" or (kind in by_kind and by_kind[kind](labels) is None)


@pytest.fixture(scope="module", params=sorted(SOURCES))
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    source = data_prep.get(SOURCES[request.param], count=48, size=32, workers=1)
    return source.prepare(tmp_path_factory.mktemp("data") / request.param)


def test_every_task_of_cml_is_here() -> None:
    assert set(SOURCES) == {name for name in tasks.names() if type(tasks.get(name)).__module__ == "cml.task"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of batches with so few items of a class
@pytest.mark.usefixtures("undrawn", "unpublished")
def test_every_loss_is_compared_where_its_labels_exist(dataset: PreparedDataset, tmp_path: Path) -> None:
    task = dataset.info.task
    texts = {**IN_BRACKETS, **(OF_CLASSES if task == "classes" else {})}
    names = [texts.get(name, name) for name in losses.names()]
    no_labels = []
    for name in names:
        if lacks_labels(dataset, name):
            no_labels.append(name)
            with pytest.raises(UserError, match=r"which the label distance|take judged triplets"):
                cml.compare(task, dataset, tmp_path / "none", losses=[name], seeds=1, **tiny(task))
    compared = [name for name in names if name not in no_labels]
    comparison = cml.compare(task, dataset, tmp_path / "all", losses=compared, seeds=1, **tiny(task))
    assert list(comparison.trained) == compared
    folders = {path.parent.name for path in (tmp_path / "all").rglob("model.safetensors")}
    assert len(folders) == len(compared)
    assert ("proxy-anchor" in compared) is (task == "classes")
    assert {"cosent", "dense-triplet", IN_BRACKETS["binary"]} <= set(compared)


@pytest.mark.usefixtures("undrawn", "unpublished")
def test_a_loss_is_compared_beside_the_variant_that_has_its_folder(
    dataset: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tasks.get(dataset.info.task)
    variants = [name for name in task.variants if name in ("dense triplet", "direction proxy-nca")]
    loss = variants[0].replace(" ", "-")
    command = ["compare", task.name, "--data", str(dataset.folder), "--out", str(tmp_path), "--seeds", "1", "--json"]
    for name, value in tiny(task.name).items():
        command += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else [value])]
    for _ in range(2):  # the second time all is there
        assert main([*command, "--losses", loss, "--variants", variants[0]]) == 0
        assert {variants[0], loss} <= json.loads(capsys.readouterr().out)["rows"].keys()
    saved = [json.loads(path.read_text())["train"]["loss"] for path in sorted(tmp_path.rglob("config.json"))]
    assert sorted(saved) == sorted([loss, task.variants[variants[0]]["loss"]])
