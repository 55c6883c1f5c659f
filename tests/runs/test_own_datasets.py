"""Data sets of one's own: each kind through fit, embed, evaluate, search, save and load; reads; refusals."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pytest
import torch
import two_processes_own_items
from start_two import run_two
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import cml
from cml.errors import UserError
from cml.training.randomness import seeded_randomness

LEVELS = np.linspace(0, 1, 40)
FAST: dict[str, Any] = {"sampler": "random(batch_size=20)", "quiet": True, "workers": 0}


class Folder(torch.utils.data.Dataset[Any]):
    """(x, label) of .npy files, whose reads are counted in a file that data workers share."""

    def __init__(self, paths: list[Path], transform: Callable[[Tensor], Tensor] | None = None) -> None:
        self.paths, self.transform = paths, transform
        self.log = paths[0].parent / "reads"
        self.log.touch()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        with self.log.open("a") as file:
            file.write(f"{index} {os.getpid()}\n")
        item = torch.from_numpy(np.load(self.paths[index]))
        return (item if self.transform is None else self.transform(item)), float(LEVELS[index])

    def reads(self) -> list[int]:
        numbers = [int(line.split()[0]) for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        return numbers


class Fields(torch.utils.data.Dataset[Any]):
    """The same as mappings."""

    def __init__(self, pairs: Any) -> None:  # noqa: ANN401
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item, label = self.pairs[index]
        return {"signal": item, "age": label, "name": f"item {index}"}


class GraphBatch:
    """An object with ``.to``, as those of graph libraries."""

    def __init__(self, graphs: list[Tensor]) -> None:
        self.nodes = torch.cat(graphs)
        self.graph = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(one) for one in graphs]))
        self.count = len(graphs)

    def to(self, device: torch.device) -> GraphBatch:
        self.nodes, self.graph = self.nodes.to(device), self.graph.to(device)
        return self


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 8)

    def forward(self, batch: GraphBatch) -> Tensor:
        return torch.zeros(batch.count, 8).index_add(0, batch.graph, self.layer(batch.nodes))


class Recurrent(nn.Module):
    """Sequences of different length: (padded, lengths)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(1, 8, batch_first=True)

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        assert isinstance(batch, tuple)
        outputs, _ = self.layer(batch[0])
        last: Tensor = outputs[torch.arange(len(outputs)), batch[1] - 1]
        return last


class Words(nn.Module):
    """Texts as a mapping of token numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(100, 8)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        vectors: Tensor = self.table(batch["tokens"])
        return vectors


def join_sequences(items: list[Tensor]) -> tuple[Tensor, Tensor]:
    return pad_sequence([item.reshape(-1, 1).float() for item in items], True), torch.tensor([len(i) for i in items])


def count_letters(texts: list[str]) -> dict[str, Tensor]:
    tokens = [torch.tensor([ord(letter) % 100 for letter in text]) for text in texts]
    return {"tokens": pad_sequence(tokens, True)}


def write(folder: Path, arrays: list[np.ndarray[Any, Any]]) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{number:03}.npy" for number in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


def spectrograms(folder: Path) -> Folder:
    rng = np.random.default_rng(1)
    return Folder(write(folder, [(level + rng.random((1, 16, 9))).astype(np.float32) for level in LEVELS]))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten())


def through_everything(
    dataset: Any,  # noqa: ANN401
    inputs: Any,  # noqa: ANN401
    network: nn.Module,
    folder: Path,
    **options: Any,  # noqa: ANN401
) -> cml.Model:
    """Fit, embed, evaluate, search, explore, save and load."""
    collate = options.get("collate")
    labels = {key: options[key] for key in ("label",) if key in options}
    model = cml.fit(dataset, backbone=network, steps=3, **{**FAST, **options})
    embeddings = model.embed(dataset)
    assert embeddings.shape == (40, 128)
    np.testing.assert_array_equal(model.embed(inputs), embeddings)
    assert list(model.evaluate(dataset, **labels).rows) == ["embedding", "random", "oracle"]
    separate, joined = (
        evaluation.rows["embedding"]["spearman_rho"].mean
        for evaluation in (model.evaluate(inputs, LEVELS.tolist()), model.evaluate(dataset, **labels))
    )
    assert separate == joined
    assert model.search(dataset, inputs, k=1)[1].max() < 1e-3
    assert "000039" in model.explore(dataset, path=folder / "page.html", maps=["pca"], **labels).path.read_text()
    model.save(folder / "model")
    with pytest.raises(UserError, match="The backbone of this model is its author's own"):
        cml.load(folder / "model")
    if collate is not None:
        with pytest.raises(UserError, match=r"Give it: cml.load\(path, backbone=module, collate=function\)"):
            cml.load(folder / "model", backbone=network)
    loaded = cml.load(folder / "model", backbone=network, collate=collate)
    np.testing.assert_array_equal(loaded.embed(dataset), embeddings)
    return loaded


def test_spectrograms_of_files(tmp_path: Path) -> None:
    dataset = spectrograms(tmp_path / "audio")
    inputs = [np.load(path) for path in dataset.paths]
    model = through_everything(dataset, inputs, convolution(), tmp_path)
    assert repr(model) == "Model(custom, tensors of 1 x 16 x 9 -> 128 numbers, L2-normalised)"
    np.testing.assert_array_equal(model.embed(np.stack(inputs)), model.embed(dataset))
    with pytest.raises(UserError, match="The model takes tensors of 1 x 16 x 9, which need no 'collate'"):
        cml.load(tmp_path / "model", backbone=convolution(), collate=torch.stack)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torch", "list", "hugging face", "numpy format", "transform"])
def test_mappings_with_named_fields(kind: str, tmp_path: Path) -> None:
    dataset: Any = Fields(spectrograms(tmp_path / "audio"))
    inputs = [dataset[index]["signal"] for index in range(40)]
    if kind == "list":
        dataset = list(dataset)
    elif kind != "torch":
        dataset = datasets.Dataset.from_list([{**item, "signal": item["signal"].tolist()} for item in list(dataset)])
        if kind == "numpy format":
            dataset = dataset.with_format("numpy")
        elif kind == "transform":
            dataset = dataset.with_transform(
                lambda batch: {**batch, "signal": [np.asarray(one, np.float32) for one in batch["signal"]]}
            )
    with pytest.raises(UserError, match=r"Name the field that holds the (inputs|labels)|Name the columns"):
        cml.fit(dataset, backbone=convolution(), steps=1, **FAST)
    with pytest.raises(UserError, match=r"no (field|column) (label=)?'agee'. Did you mean 'age'\?"):
        cml.fit(dataset, backbone=convolution(), features="signal", label="agee", steps=1, **FAST)
    through_everything(dataset, inputs, convolution(), tmp_path, features="signal", label="age")


def test_sequences_of_different_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    dataset = Folder(write(tmp_path / "series", [level + rng.random(5 + n % 4) for n, level in enumerate(LEVELS)]))
    inputs = [dataset[index][0] for index in range(40)]
    model = through_everything(dataset, inputs, Recurrent(), tmp_path, collate=join_sequences)
    assert repr(model) == "Model(custom, items -> 128 numbers, L2-normalised)"
    lists = cml.fit(inputs, LEVELS, backbone=Recurrent(), collate=join_sequences, steps=2, **FAST)
    np.testing.assert_array_equal(lists.embed(dataset), lists.embed(inputs))
    pairs = cml.fit(list(dataset), backbone=Recurrent(), collate=join_sequences, steps=2, **FAST)
    assert pairs.embed(inputs).shape == (40, 128)


def test_volumes_of_files_as_whole_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    volumes = [(1000 * level + rng.integers(0, 900, (1, 6, 6, 6))).astype(np.int16) for level in LEVELS]
    dataset = Folder(write(tmp_path / "scans", volumes))
    network = nn.Sequential(nn.Conv3d(1, 4, 3, stride=2), nn.BatchNorm3d(4), nn.Flatten())
    model = through_everything(dataset, volumes, network, tmp_path)
    assert repr(model) == "Model(custom, tensors of 1 x 6 x 6 x 6 -> 128 numbers, L2-normalised)"


def test_token_numbers_of_different_length(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    tokens = [rng.integers(1, 10, 4 + number % 5) + number // 2 for number in range(40)]
    dataset = Folder(write(tmp_path / "tokens", tokens))
    network = nn.Sequential(nn.EmbeddingBag(60, 8, padding_idx=0), nn.ReLU())

    def pad(items: list[Any]) -> Tensor:
        return pad_sequence([torch.as_tensor(item) for item in items], True)

    through_everything(dataset, tokens, network, tmp_path, collate=pad)


def test_vectors_of_a_data_set_are_standardised(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    rows = [(100 + level * np.arange(5) + rng.random(5)).astype(np.float32) for level in LEVELS]
    dataset = Folder(write(tmp_path / "rows", rows))
    model = cml.fit(dataset, steps=3, **FAST)
    arrays = cml.fit(np.stack(rows), LEVELS, steps=3, **FAST)
    assert repr(model) == repr(arrays) == "Model(none, 5 numbers -> 128 numbers, L2-normalised)"
    np.testing.assert_array_equal(model.embed(dataset), arrays.embed(rows))
    np.testing.assert_array_equal(cml.load(model.save(tmp_path / "model")).embed(dataset), arrays.embed(rows))


@pytest.mark.slow
def test_two_processes_join_their_shares(tmp_path: Path) -> None:
    run_two(Path(two_processes_own_items.__file__), str(tmp_path / "two.npy"))
    two_processes_own_items.main(str(tmp_path / "one.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "two.npy"), np.load(tmp_path / "one.npy"), atol=1e-5)


def test_graphs_and_texts(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    graphs = [torch.from_numpy(level + rng.random((2 + n % 3, 3))).float() for n, level in enumerate(LEVELS)]
    pairs = list(zip(graphs, LEVELS.tolist(), strict=True))
    model = cml.fit(pairs, backbone=GraphNet(), collate=GraphBatch, steps=2, **FAST)
    assert model.embed(graphs).shape == (40, 128)
    texts = ["ab" * (1 + number % 5) + "c" * number for number in range(40)]
    table = {"text": texts, "age": LEVELS.tolist(), "name": texts[::-1]}
    for frame in (pandas.DataFrame(table), polars.DataFrame(table), datasets.Dataset.from_dict(table)):
        folder = tmp_path / type(frame).__module__.partition(".")[0]
        folder.mkdir()
        options = {"features": "text", "label": "age", "collate": count_letters}
        loaded = through_everything(frame, texts, Words(), folder, **options)
        assert loaded.embed(["one text"]).shape == (1, 128)


def test_random_augmentation_is_drawn_anew_and_by_the_seed(tmp_path: Path) -> None:
    def augment(item: Tensor) -> Tensor:
        return item + random.random() + torch.rand(1) + np.random.rand()  # noqa: NPY002

    dataset = spectrograms(tmp_path / "audio")
    dataset.transform = augment
    options = {**FAST, "steps": 6, "evaluate_every": 3}
    network = convolution()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    first = cml.fit(dataset, backbone=network, **options)
    reads = dataset.reads()
    # the labels once; the kind, the shape; the first batch twice, then every batch and every validation of 8 items
    assert len(reads) == 40 + 2 + 20 + 6 * 20 + 2 * 8
    for workers in (0, 2):
        network.load_state_dict(state)
        again = cml.fit(dataset, backbone=network, **{**options, "workers": workers})
        for name, value in again.network.state_dict().items():
            assert torch.equal(value, first.network.state_dict()[name]), name
    dataset.transform = None
    plain = first.embed(dataset)
    dataset.transform = augment
    assert not np.allclose(first.embed(dataset), plain)


def test_interrupted_runs_with_random_augmentation_continue_to_the_same_bits(tmp_path: Path) -> None:
    dataset = spectrograms(tmp_path / "audio")
    dataset.transform = lambda item: item + random.random() + torch.rand(1) + np.random.rand()  # noqa: NPY002
    network = convolution()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    options = {**FAST, "backbone": network, "steps": 8, "evaluate_every": 2, "checkpoint_every": 4}

    class Stop(cml.Callback):
        def on_checkpoint(self, *arguments: object) -> None:
            raise KeyboardInterrupt

    whole = cml.fit(dataset, out=tmp_path / "whole", **options)
    weights = {key: value.clone() for key, value in whole.network.state_dict().items()}
    network.load_state_dict(state)
    with pytest.raises(KeyboardInterrupt):
        cml.fit(dataset, out=tmp_path / "part", callbacks=[Stop()], **options)
    random.seed(9)
    again = cml.fit(dataset, out=tmp_path / "part", resume=True, **options)
    for name, value in again.network.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_a_data_set_that_cannot_be_sent_to_workers_is_said(tmp_path: Path) -> None:
    dataset = spectrograms(tmp_path / "audio")
    dataset.transform = lambda item: item
    before = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        with pytest.raises(UserError, match=r"The inputs cannot be sent to data workers \(.*workers=0\."):
            cml.fit(dataset, backbone=convolution(), steps=2, **{**FAST, "workers": 1})
    finally:
        multiprocessing.set_start_method(before, force=True)


def test_the_generators_of_the_user_are_restored() -> None:
    drawn = []
    for _ in range(2):
        random.seed(1)
        torch.manual_seed(1)
        expected = random.random(), torch.rand(1)
        random.seed(1)
        torch.manual_seed(1)
        with seeded_randomness(3, 4):
            drawn.append((random.random(), torch.rand(1), np.random.rand()))  # noqa: NPY002
        assert (random.random(), torch.rand(1)) == expected
    assert drawn[0] == drawn[1]


def test_images_of_a_data_set_are_read_anew_and_never_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    images = [(rng.random((12, 12, 3)) * 255 * level).astype(np.uint8) for level in LEVELS]
    dataset = Folder(write(tmp_path / "images", images))
    options: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (12, 12), **FAST}
    cml.fit(dataset, steps=5, **options)
    assert len(dataset.reads()) == 40 + 1 + 20 + 5 * 20
    cml.fit(images, LEVELS, steps=5, **options)  # arrays are in memory anyway
    with_workers = cml.fit(dataset, steps=5, **{**options, "workers": 2})
    assert len(dataset.reads()) > 140
    assert with_workers.embed(dataset).shape == (40, 128)


def test_micro_batches_and_autocast(tmp_path: Path) -> None:
    dataset = spectrograms(tmp_path / "audio")
    options = {**FAST, "steps": 2, "collate": torch.stack}
    model = cml.fit(dataset, backbone=convolution(), micro_batch=8, precision="bfloat16", **options)
    assert model.embed(dataset).shape == (40, 128)
    frozen = cml.fit(dataset, backbone=convolution(), freeze_backbone=True, **options)
    assert frozen.embed(dataset).shape == (40, 128)
    graphs = {**options, "collate": lambda x: GraphBatch([i[0, :, :3] for i in x])}  # split before it joins them
    assert cml.fit(dataset, backbone=GraphNet(), micro_batch=8, **graphs).embed(dataset).shape == (40, 128)


class Broken(Folder):
    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        if index == 7:
            raise KeyError("gone")
        return super().__getitem__(index)


def refusals(tmp_path: Path) -> dict[str, tuple[Callable[[], Any], str]]:
    dataset = spectrograms(tmp_path / "audio")
    pairs = list(dataset)
    uneven = [*pairs[:5], (pairs[5][0][:, :4], 0.3), *pairs[6:]]
    network = convolution()

    def fit(inputs: Any, labels: Any = None, **options: Any) -> Callable[[], Any]:  # noqa: ANN401
        return lambda: cml.fit(inputs, labels, **{"backbone": network, "steps": 3, **FAST, **options})

    return {
        "generator": (
            fit(pair for pair in pairs),
            "a generator can be read only once: give the function that makes it",
        ),
        "set": (fit({1.5, 2.5}), "must be read by numbers, .* Got set without __getitem__"),
        "loader": (
            fit(torch.utils.data.DataLoader(dataset)),
            r"Got a DataLoader, .* give its data set, loader.dataset",
        ),
        "shapes": (fit(uneven), r"Item 5 of the data set has the shape \(1, 4, 9\), others \(1, 16, 9\): cut or pad"),
        "swapped": (
            fit([(label, x) for x, label in pairs]),
            "Item 0 of the data set is the single number|'labels' are",
        ),
        "objects": (
            fit([(np.array([x, None], dtype=object), label) for x, label in pairs]),
            "Item 0 of the data set must be an array or tensor of numbers. Got an array of object instead",
        ),
        "text": (fit([({"a": 1}, label) for _, label in pairs]), "must be an array or tensor of numbers. Got dict"),
        "labels only": (fit([x for x, _ in pairs]), "'labels' are missing"),
        "broken": (fit(Broken(dataset.paths)), r"Item 7 of the data set cannot be read \(KeyError: 'gone'\)"),
        "no backbone": (fit(pairs, backbone=None, collate=torch.stack), "'collate' joins need a backbone of your own"),
        "named backbone": (fit(pairs, backbone="mlp(8)", collate=torch.stack), "need a backbone of your own"),
        "no function": (fit(pairs, collate="stack"), "'collate' must be a function of a list of inputs. Got str"),
        "kind": (fit(pairs, collate=torch.stack, input_kind="tensors"), "Inputs of the kind 'items', and no others"),
        "no collate": (fit(pairs, input_kind="items"), "Inputs of the kind 'items', and no others, need 'collate'"),
        "uneven collate": (
            fit(uneven, collate=torch.stack),
            r"'collate' fails on a list of \d+ inputs of type Tensor, the items .*\(RuntimeError: stack expects",
        ),
        "too few rows": (
            fit(pairs, collate=lambda items: torch.stack(items[1:])),
            "A batch of 20 items gives 19 rows of features: let 'collate' keep each item once",
        ),
        "network": (
            fit(pairs, backbone=nn.Linear(3, 4), collate=torch.stack),
            r"The backbone 'custom' fails on inputs of shape \(2, 1, 16, 9\) \(RuntimeError",
        ),
        "augmentation": (
            fit(pairs, collate=torch.stack, flip="list"),
            "'flip' changes images, but the inputs are items",
        ),
        "missing label": (fit(list(Fields(pairs)), features="signal"), "Name the field that holds the labels"),
        "pairs by name": (
            fit(pairs, features="signal", label="age"),
            "must be mappings with the field 'age'. Got tuple",
        ),
        "labels": (fit(dataset, LEVELS[:3]), "one label per input. Got 40 tensors and 3 labels"),
    }


NAMES = (
    "generator",
    "set",
    "loader",
    "shapes",
    "swapped",
    "objects",
    "text",
    "labels only",
    "broken",
    "no backbone",
    "named backbone",
    "no function",
    "kind",
    "no collate",
    "uneven collate",
    "too few rows",
    "network",
    "augmentation",
    "missing label",
    "pairs by name",
    "labels",
)


@pytest.mark.parametrize("name", NAMES)
def test_refusals_in_one_line(name: str, tmp_path: Path) -> None:
    table = refusals(tmp_path)
    assert set(table) == set(NAMES)
    call, message = table[name]
    with pytest.raises(UserError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
