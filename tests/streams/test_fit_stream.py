"""``cml.fit`` on streams: every kind of input and source, what is refused, and what is held in memory."""

from __future__ import annotations

import gc
import io
import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_texts import LABELS, TEXTS, tiny_transformer

import cml
from cml.errors import UserError

FAST: dict[str, Any] = {"steps": 3, "workers": 0, "quiet": True, "sampler": "random(batch_size=8)"}
PICTURES: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 4}
ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
SUMS = ROWS.sum(axis=1).tolist()
LEVELS = np.linspace(0, 250, 40).astype(np.uint8)


def pairs() -> Iterator[Any]:
    yield from zip(ROWS, SUMS, strict=True)


def mappings() -> Iterator[Any]:
    for row, label in pairs():
        yield {"row": row, "sum": label, "__key__": "k"}


class Pairs(torch.utils.data.IterableDataset[Any]):
    """A data set that divides itself among workers, and is told the pass."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return itertools.islice(pairs(), start, None, step)


def picture(level: int) -> Any:  # noqa: ANN401
    return np.full((20, 24, 3), level, np.uint8)


def encoded(level: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(level)).save(file, "PNG")
    return file.getvalue()


def test_a_stream_larger_than_its_buffer_learns_what_a_list_does() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3000, 4)).astype(np.float32)
    labels = (rows @ [1, -1, 0.5, 0]).tolist()
    options: dict[str, Any] = {**FAST, "steps": 150, "sampler": "random(batch_size=50)", "dimension": 4}
    stream = cml.LabelledStream(lambda: zip(rows, labels, strict=True), buffer=300)
    learned, known = cml.fit(stream, **options), cml.fit(rows, labels, **options)
    held_out = rng.normal(size=(200, 4)).astype(np.float32)
    truth = held_out @ [1, -1, 0.5, 0]
    scores = [model.evaluate(held_out, truth.tolist()).rows["embedding"]["ndcg@10"].mean for model in (learned, known)]
    assert scores[0] > scores[1] - 0.02


@pytest.mark.parametrize("source", [pairs, Pairs(), list(pairs())], ids=["function", "dataset", "list"])
def test_sources_of_the_same_items_give_the_same_model(source: Any) -> None:  # noqa: ANN401
    expected = cml.fit(cml.LabelledStream(pairs, buffer=30), **FAST).embed(ROWS)
    assert np.array_equal(cml.fit(cml.LabelledStream(source, buffer=30), **FAST).embed(ROWS), expected)


def test_columns_are_named_as_for_other_data_sets() -> None:
    model = cml.fit(cml.LabelledStream(mappings, buffer=30), label="sum", **FAST)
    again = cml.fit(cml.LabelledStream(mappings, buffer=30), features="row", label="sum", **FAST)
    expected = cml.fit(cml.LabelledStream(pairs, buffer=30), **FAST)
    assert np.array_equal(model.embed(ROWS), expected.embed(ROWS))
    assert np.array_equal(again.embed(ROWS), expected.embed(ROWS))
    assert model.form.fields == ("row",)


def test_an_iterable_data_set_is_a_stream_by_itself_and_is_told_the_pass() -> None:
    data = Pairs()
    cml.fit(data, **{**FAST, "steps": 12})
    assert set(data.epochs) == {0, 1}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_data_set_divides_itself_into_shares(workers: int) -> None:
    options = {**FAST, "workers": workers}
    model = cml.fit(cml.LabelledStream(Pairs(), buffer=30, shares=3), **options)

    def shared(share: int, shares: int) -> Iterator[Any]:
        return itertools.islice(pairs(), share, None, shares)

    expected = cml.fit(cml.LabelledStream(shared, buffer=30, shares=3), **FAST)
    assert np.array_equal(model.embed(ROWS), expected.embed(ROWS))


def images(kind: str, folder: Path) -> Callable[[], Iterator[Any]]:
    def read() -> Iterator[Any]:
        for level in LEVELS.tolist():
            path = folder / f"{level}.png"
            if not path.exists():
                path.write_bytes(encoded(level))
            forms = {"array": picture, "bytes": encoded, "path": lambda _, path=path: path}
            forms["pillow"] = lambda level: Image.fromarray(picture(level))
            yield {"picture": forms[kind](level), "level": float(level)}

    return read


@pytest.mark.parametrize("kind", ["bytes", "path", "pillow"])
def test_images_of_any_form_give_the_same_model(kind: str, tmp_path: Path) -> None:
    models = [
        cml.fit(
            cml.LabelledStream(images(form, tmp_path), buffer=20), image="picture", label="level", **FAST, **PICTURES
        )
        for form in ("array", kind)
    ]
    pictures = np.stack([picture(level) for level in LEVELS])
    assert np.array_equal(*(model.embed(pictures) for model in models))


def test_images_have_jitter_views_and_other_bands(tmp_path: Path) -> None:
    def grey() -> Iterator[Any]:
        for level in LEVELS.tolist():
            yield np.full((16, 16, 1), level, np.uint8), float(level)

    stream = cml.LabelledStream(images("array", tmp_path), buffer=20)
    named: dict[str, Any] = {"image": "picture", "label": "level"}
    cml.fit(
        stream, **named, views=2, brightness_jitter=0.2, shift_jitter=0.1, crop=0.8, flip="list", **FAST, **PICTURES
    )
    other = {**PICTURES, "backbone": "small-cnn(channels=1)"}
    assert cml.fit(cml.LabelledStream(grey, buffer=20), **FAST, **other).form.channels == 1


def test_items_of_any_kind_are_joined() -> None:
    def sequences() -> Iterator[Any]:
        for length in range(3, 40):
            yield torch.ones(length), float(length)

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 4)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.layer(batch.sum(dim=1, keepdim=True))

    def join(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)

    model = cml.fit(cml.LabelledStream(sequences, buffer=20), backbone=Mean(), collate=join, micro_batch=4, **FAST)
    assert model.embed([torch.ones(3), torch.ones(5)]).shape == (2, 128)


def test_losses_over_classes_and_label_vectors_learn_from_streams() -> None:
    def classes() -> Iterator[Any]:
        for number, row in enumerate(ROWS):
            yield row, "even" if number % 2 else "odd"

    stream = cml.LabelledStream(classes, buffer=20)
    cml.fit(stream, label_distance="classes", loss="proxy-anchor", **FAST)
    cml.fit(stream, label_distance="classes", loss="log-ratio", **FAST)
    cml.fit(cml.LabelledStream(pairs, buffer=20), loss="regression", dimension=1, **FAST)


def test_augmentation_may_change_labels() -> None:
    seen: list[float] = []

    def shift(row: torch.Tensor, label: float) -> tuple[torch.Tensor, float]:
        seen.append(label)
        return row + 1, label + 1

    cml.fit(cml.LabelledStream(pairs, buffer=20), augment=shift, **FAST)
    assert len(seen) == 24
    assert set(np.round(seen, 4)) <= set(np.round(SUMS, 4))


def test_validation_is_by_items_that_are_given() -> None:
    stream = cml.LabelledStream(pairs, buffer=20)
    model = cml.fit(stream, validation=(ROWS[:20], SUMS[:20]), evaluate_every=1, **FAST)
    assert model.history.validation_steps.tolist() == [1, 2, 3]
    with pytest.raises(UserError, match=r"none are held out of a stream: give them by validation=\(inputs, labels\)"):
        cml.fit(stream, evaluate_every=1, **FAST)


def test_what_the_first_items_decide_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    cml.fit(cml.LabelledStream(pairs, buffer=30), **{**FAST, "quiet": False, "workers": 2})
    said = capsys.readouterr().err
    assert "are computed from the first 30 items of the stream" in said
    assert "one worker reads the stream: it is not divided into shares" in said


def test_a_run_folder_holds_the_model(tmp_path: Path) -> None:
    model = cml.fit(cml.LabelledStream(pairs, buffer=30), out=tmp_path / "run", **FAST)
    assert np.array_equal(cml.load(tmp_path / "run").embed(ROWS), model.embed(ROWS))
    with pytest.raises(UserError, match="A run on a stream cannot be resumed: train anew"):
        cml.fit(cml.LabelledStream(pairs, buffer=30), out=tmp_path / "run", resume=True, **FAST)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "labels": ({"labels": SUMS}, "A stream gives a label with each item.*Got 'labels' with a stream"),
    "groups": ({"groups": [1] * 60}, r"no items of a stream are held out: give validation=\(inputs, labels\)"),
    "weights": ({"sample_weight": SUMS}, "'sample_weight' needs all items: let the stream give an item more often"),
    "tune": ({"tune": True}, "'tune' compares heads on all items: take a part of the stream as a list"),
    "frozen": ({"freeze_backbone": True}, "'freeze_backbone'"),
    "memory": ({"memory": 100}, "'memory' compares with items of earlier batches, which a stream does not keep"),
    "sampler": ({"sampler": "dense"}, "A stream is trained on in random batches.* but 'dense' chooses among all items"),
    "batch": ({"sampler": "random(batch_size=40)"}, "drawn from the buffer of the stream, which holds 30"),
    "views": ({"views": 2}, "All 2 views of an item would be equal"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_all_items_is_refused_by_name(what: str) -> None:
    given, text = REFUSED[what]
    with pytest.raises(UserError, match=text) as refused:
        cml.fit(cml.LabelledStream(pairs, buffer=30), **{**FAST, **given})
    assert "\n" not in str(refused.value)


def test_epochs_are_refused() -> None:
    options = {name: value for name, value in FAST.items() if name != "steps"}
    with pytest.raises(UserError, match="set 'steps' in place of 'epochs'"):
        cml.fit(cml.LabelledStream(pairs, buffer=30), epochs=2, **options)


def test_what_cannot_be_read_again_is_refused() -> None:
    with pytest.raises(UserError, match="a generator can be read only once: give the function that makes it"):
        cml.fit(pairs(), **FAST)
    with pytest.raises(UserError, match="The stream gives no item"):
        cml.fit(cml.LabelledStream(lambda: iter(())), **FAST)
    with pytest.raises(UserError, match="needs their number"):
        cml.LabelledStream(lambda share, shares: iter(()))
    with pytest.raises(UserError, match="Got int instead"):
        cml.LabelledStream(3)
    with pytest.raises(UserError, match="'buffer' must be a whole number of at least 1"):
        cml.LabelledStream(pairs, buffer=0)


def test_a_stream_that_dries_up_is_an_error() -> None:
    passes = iter([[*pairs()], []])
    with pytest.raises(UserError, match="a function must return a new iterator at each call"):
        cml.fit(cml.LabelledStream(lambda: iter(next(passes, [])), buffer=10), **{**FAST, "steps": 20, "workers": 0})
    opened = pairs()
    with pytest.raises(UserError, match="a function must return a new iterator at each call"):
        cml.fit(cml.LabelledStream(lambda: opened, buffer=10), **{**FAST, "steps": 20})
    sizes = iter([60, 60, 5])
    with pytest.raises(UserError, match="pass 2 over the stream gives 5: make the sampler's batch_size smaller"):
        cml.fit(
            cml.LabelledStream(lambda: itertools.islice(pairs(), next(sizes, 5)), buffer=10), **{**FAST, "steps": 20}
        )


def test_a_stream_is_iterated_over_where_a_list_is_needed() -> None:
    stream = cml.LabelledStream(Pairs(), buffer=20, shares=3)
    items = list(stream)
    assert sorted(label for _, label in items) == sorted(SUMS)
    assert [label for _, label in items[:16]] == SUMS[: 3 * 16 : 3]  # a chunk of each share by turns
    model = cml.fit(list(itertools.islice(stream, 40)), **FAST)
    assert model.embed(ROWS).shape == (60, 128)
    advice = re.escape("list(itertools.islice(source, 10_000))")
    with pytest.raises(UserError, match=f"Got LabelledStream without __len__ instead: .*{advice}"):
        model.evaluate(stream)


def test_a_function_is_named_as_the_source_of_a_stream() -> None:
    with pytest.raises(UserError, match=r"to train on the items that it returns, give cml.LabelledStream\(function\)"):
        cml.fit(pairs, **FAST)
    with pytest.raises(UserError, match=r"itertools.islice\(function\(\), 10_000\)"):
        cml.fit(list(pairs()), **FAST).evaluate(pairs)


@pytest.mark.parametrize("at", [5, 45])  # among the first items, and after them
def test_a_broken_image_is_named(at: int) -> None:
    def opened() -> Iterator[Any]:  # Pillow decodes them when their pixels are needed
        for number in range(60):
            content = encoded(number)
            yield Image.open(io.BytesIO(content[: 60 if number == at else None])), float(number)

    def decoded() -> Iterator[Any]:
        for image, label in opened():
            image.load()
            yield image, label

    options = {**FAST, **PICTURES, "steps": 7}
    with pytest.raises(UserError, match=f"^The image of item {at} of the stream cannot be read: .*leave the item out"):
        cml.fit(cml.LabelledStream(opened, buffer=16), **options)
    with pytest.raises(UserError, match=f"^The stream cannot be read at item {at}: its image cannot be read .OSError"):
        cml.fit(cml.LabelledStream(decoded, buffer=16), **options)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_items_that_cannot_be_read_are_skipped_and_counted(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    bad = {5, 11, 40, 41, 57}

    def contents(share: int, shares: int) -> Iterator[Any]:
        for number in range(share, 60, shares):
            yield encoded(number)[: 60 if number in bad else None], float(number)

    def good(share: int, shares: int) -> Iterator[Any]:
        return (item for item in contents(share, shares) if int(item[1]) not in bad)

    options = {**FAST, **PICTURES, "steps": 20, "workers": workers}
    streams = [cml.LabelledStream(source, buffer=60, shares=2, skip_bad=True) for source in (contents, good)]
    skipping, wanted = (cml.fit(stream, **options).embed([picture(9), picture(99)]) for stream in streams)
    assert skipping.shape == wanted.shape
    said = capsys.readouterr().err
    assert said.count("skipped: The image of item ") == 3
    assert "item 2 of share 1 of the stream cannot be read" in said
    assert "5 items of the stream were skipped up to the end of pass 1." in said
    assert "15 items" not in said or "end of pass 3" in said
    with pytest.raises(UserError, match="item 2 of share 1 of the stream cannot be read"):
        cml.fit(cml.LabelledStream(contents, buffer=60, shares=2), **options)


def test_a_skipped_item_changes_nothing_else() -> None:
    def broken() -> Iterator[Any]:
        for number, (row, label) in enumerate(pairs()):
            yield (row * np.nan if number in (7, 55) else row), label

    kept = [(row, label) for number, (row, label) in enumerate(pairs()) if number not in (7, 55)]
    options = {**FAST, "steps": 5}
    streams = cml.LabelledStream(broken, buffer=58, skip_bad=True), cml.LabelledStream(kept, buffer=58)
    skipping, wanted = (cml.fit(stream, **options).embed(ROWS) for stream in streams)
    assert np.array_equal(skipping, wanted)


def test_a_stream_of_bad_items_alone_is_refused() -> None:
    def broken() -> Iterator[Any]:
        yield from ((row * np.nan, 1.0) for row in ROWS)

    with pytest.raises(UserError, match="No item of the stream can be read: Item 0 of the stream: column 0 of its"):
        cml.fit(cml.LabelledStream(broken, skip_bad=True), **FAST)


def test_texts_are_trained_on_from_a_stream() -> None:
    batches = {**FAST, "sampler": "random(batch_size=12)", "device": "cpu", "dimension": 4}

    def scored() -> Iterator[Any]:
        for text, label in zip(TEXTS, LABELS, strict=True):
            yield {"text": text, "score": label}

    def paired() -> Iterator[Any]:
        yield from ((item["text"], item["score"]) for item in scored())

    named = cml.fit(cml.LabelledStream(scored, buffer=60), label="score", backbone=tiny_transformer(), **batches)
    plain = cml.fit(cml.LabelledStream(paired, buffer=60), backbone=tiny_transformer(), **batches)
    assert np.array_equal(named.embed(TEXTS), plain.embed(TEXTS))
    assert str(named) == "Model(sentence-transformers, texts -> 4 numbers, L2-normalised)"


@pytest.mark.parametrize("label", [float("nan"), None])
def test_a_label_among_the_first_items_is_named(label: Any) -> None:  # noqa: ANN401
    def shared(share: int, shares: int) -> Iterator[Any]:
        for number, (row, value) in enumerate(itertools.islice(pairs(), share, None, shares)):
            yield {"row": row, "sum": label if (share, number) == (1, 3) else value, "__key__": number}

    with pytest.raises(UserError, match=r"^The label of item 3 of share 1 \(3\) of the stream does not fit"):
        cml.fit(cml.LabelledStream(shared, buffer=30, shares=2), label="sum", **FAST)


BROKEN: dict[str, tuple[Any, str]] = {
    "nan": ((ROWS[0], float("nan")), "The label of item 45 of the stream does not fit .* it holds nan where"),
    "shape": ((ROWS[0], [1.0, 2.0]), "The label of item 45 of the stream does not fit"),
    "none": ((ROWS[0], None), "The label of item 45 of the stream does not fit"),
    "missing": ((ROWS[0],), "Got a tuple of 1 as item 45 instead"),
    "input": ((np.ones(4, np.float32), 1.0), r"Item 45 of the stream has the shape \(4,\), others \(3,\)"),
    "infinite": ((np.float32([1, np.inf, 1]), 1.0), "Item 45 of the stream: column 1 of its input is inf"),
    "text": (("a text", 1.0), "Item 45 of the stream must be an array or tensor of numbers. Got str"),
}


@pytest.mark.parametrize(("what", "workers"), [*((what, 0) for what in BROKEN), ("missing", 1)])
def test_a_broken_item_in_the_middle_is_named_in_one_line(what: str, workers: int) -> None:
    item, text = BROKEN[what]

    def broken() -> Iterator[Any]:
        for number, pair in enumerate(pairs()):
            yield item if number == 45 else pair

    with pytest.raises(UserError, match=text) as refused:
        cml.fit(cml.LabelledStream(broken, buffer=16), **{**FAST, "steps": 7, "workers": workers})
    assert "\n" not in str(refused.value)


def test_a_missing_field_and_a_failing_source_are_named() -> None:
    def without_field() -> Iterator[Any]:
        for number, item in enumerate(mappings()):
            yield {name: value for name, value in item.items() if number != 45 or name != "sum"}

    def failing() -> Iterator[Any]:
        yield from itertools.islice(pairs(), 45)
        raise OSError("the disk is gone")

    def shared(share: int, shares: int) -> Iterator[Any]:
        yield from itertools.islice(pairs(), 20)
        yield (ROWS[0],)

    with pytest.raises(UserError, match=r"^Item 45 \(k\) of the stream has no field 'sum'"):
        cml.fit(cml.LabelledStream(without_field, buffer=16), label="sum", **{**FAST, "steps": 7})
    with pytest.raises(UserError, match=r"The stream cannot be read at item 45 \(OSError: the disk is gone\)"):
        cml.fit(cml.LabelledStream(failing, buffer=16), **{**FAST, "steps": 7})
    with pytest.raises(UserError, match="In the stream, item 20 of share 0: 'labels' are missing"):
        cml.fit(cml.LabelledStream(shared, buffer=16, shares=2), **{**FAST, "steps": 7})


def test_a_class_that_the_first_items_lack_is_named() -> None:
    def sorted_classes() -> Iterator[Any]:
        for number, row in enumerate(ROWS):
            yield row, f"class {number // 15}"

    with pytest.raises(UserError, match=r"The class 'class 2' of item .* is none of the 2 of its first 20 items"):
        cml.fit(
            cml.LabelledStream(sorted_classes, buffer=20),
            label_distance="classes", loss="proxy-anchor", **{**FAST, "steps": 10},
        )  # fmt: skip


MOST = 64 + 16  # the buffer, and a chunk


def test_the_buffer_bounds_what_is_held() -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    class Word(str):
        __slots__ = ("__weakref__",)

    def words() -> Iterator[Any]:
        for number in range(2000):
            word = Word(f"word {number}")
            alive.add(word)
            yield word, float(number)

    class Lengths(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 4)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.layer(batch)

    def count(state: Any) -> None:  # noqa: ANN401
        nonlocal most
        if len(alive) > MOST:  # all objects of a test run are many to collect at each step
            gc.collect()
        most = max(most, len(alive))

    def join(parts: list[str]) -> torch.Tensor:
        return torch.tensor([[float(len(part))] for part in parts])

    cml.fit(
        cml.LabelledStream(words, buffer=64), backbone=Lengths(), collate=join,
        callbacks=[cml.Callback(on_step=count)], **{**FAST, "steps": 100},
    )  # fmt: skip
    assert 40 < most <= MOST


def test_an_interrupt_keeps_the_model_and_promises_no_resumption() -> None:
    def interrupt(state: Any) -> None:  # noqa: ANN401
        if state.step == 2:
            raise KeyboardInterrupt

    stream = cml.LabelledStream(pairs, buffer=30)
    with pytest.raises(cml.Interrupted) as stop:
        cml.fit(stream, callbacks=[cml.Callback(on_step=interrupt)], **FAST)
    assert stop.value.model.embed(ROWS).shape == (60, 128)
    assert "resume" not in str(stop.value)


def test_the_model_does_not_keep_the_items() -> None:
    model = cml.fit(cml.LabelledStream(pairs, buffer=50), **FAST)
    assert model.novelty(ROWS[:3], known=ROWS).shape == (3,)
    with pytest.raises(UserError, match="loaded, or trained on a stream, does not have its items: give 'known'"):
        model.novelty(ROWS)
    with pytest.raises(UserError, match="give 'gallery' and 'gallery_labels'"):
        model.predict(ROWS)
