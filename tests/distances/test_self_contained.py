"""What a dataset.json may name: label distances that read nothing outside the dataset, of cml's or of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from page_examples import forget_plugins

import cml.distances
from cml.data.prepared import DatasetInfo
from cml.distances.composed import is_self_contained
from cml.distances.cosine import Cosine
from cml.errors import DataError, UserError
from cml.tasks.value import TASK

READING = {  # names of cml's distances that read a file or fetch a model, with settings that let them
    "precomputed": ["precomputed", "precomputed(path='/etc/passwd')"],
    "captions": ["captions(vectors='/etc/passwd')", "captions(vectors='../glove.txt')"],
    "sentences": ["sentences(model='someone/model')", "sentences(model='/tmp/model')"],
    "sets": ["sets(base=precomputed(path='/etc/passwd'))", "sets(base=sets(base=sentences(model='a/b')))", "sets"],
    "combined": [
        "combined(parts={'a': 'euclidean', 'b': 'precomputed(path=\"/etc/passwd\")'})",
        "combined(parts={'a': 1})",
        "combined",
    ],
}
QUIET = [
    "sentences", "captions",
    "captions(vectors=glove-6b-50d)", "captions(vectors=scene-words)", "sets(base=circular(period=24))",
    "combined(parts={'a': 'euclidean', 'b': 'sets(base=rotation)'})", "rotation(form=euler)", "place(metres=20)",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_plugins(monkeypatch)


def chosen(text: Any) -> str:  # noqa: ANN401 - anything
    info = DatasetInfo("mine", "value", "value", "", "", "", "", {"label_distance": text})
    return TASK.label_distance(TASK.recipe, info)


@pytest.mark.parametrize("name", sorted(set(cml.distances.names()) - READING.keys()))
def test_distances_that_read_nothing_may_be_named(name: str) -> None:
    assert is_self_contained(name)
    assert chosen(name) == name


@pytest.mark.parametrize("text", QUIET)
def test_packaged_vectors_and_models_may_be_named(text: str) -> None:
    assert chosen(text) == text


@pytest.mark.parametrize("text", [text for texts in READING.values() for text in texts])
def test_distances_that_could_read_a_file_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", lambda *arguments, **options: pytest.fail("a file is opened"))
    assert not is_self_contained(text)
    with pytest.raises(DataError, match="should be a label distance that reads nothing outside the dataset"):
        chosen(text)


@pytest.mark.parametrize("text", ["nonsense", "circular(", 3, None, ["euclidean"], "sets(base=nonsense)"])
def test_what_is_no_distance_is_an_error_of_the_data(text: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(DataError, match=r"dataset.json of 'mine', details.label_distance.*choose one with"):
        chosen(text)


def test_distances_of_ones_own() -> None:
    @cml.distances.register("hours")
    def hours(a: float, b: float) -> float:
        return abs(a - b)

    @cml.distances.register("from-file")
    @dataclass(frozen=True)
    class FromFile(Cosine):
        name: ClassVar[str] = "from-file"
        path: str = ""

    @cml.distances.register("by-word")
    @dataclass(frozen=True)
    class ByWord(Cosine):
        name: ClassVar[str] = "by-word"
        form: Literal["a", "b"] = "a"

        @classmethod
        def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
            return True

    assert chosen("hours") == "hours"
    assert chosen("from-file") == "from-file"
    assert not is_self_contained("from-file(path='/etc/passwd')")
    assert not is_self_contained("from-file(path=[1, {'a': '/etc/passwd'}])")
    assert is_self_contained("by-word(form=b)")
    with pytest.raises(UserError, match="Unknown label distance"):
        is_self_contained("other")
