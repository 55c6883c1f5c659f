"""What fuzzing found, kept as inputs, and round trips of the parsers; each parser's first inputs are read too.

Not for: fuzzing itself (fuzz.py), nor files made by hand to do harm (test_hostile_files.py).
"""

from __future__ import annotations

import json
import keyword
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fuzz_parsers import CUT, PARSERS
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cml.data.dataset_info import DatasetInfo
from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, PreparedWriter
from cml.errors import UserError, escape_moves
from cml.registry import Choice
from cml.storage.json_file import parse_json
from cml.word_vectors.open import open_word_vectors

QUICK = [name for name in PARSERS if name not in ("run", "index", "choice")]  # those import torch


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def changed_config(part: str, **changes: object) -> bytes:
    config, *others = PARSERS["run"].seeds()[0].split(CUT)
    value = json.loads(config)
    value[part] |= changes
    return CUT.join([json.dumps(value).replace("Infinity", "1e999").encode(), *others])


EMPTY_EVALUATION = json.dumps(
    {"unit": "", "reported_unit": "", "gain": "", "queries": 1, "gallery": 1, "hit_neighbors": 1, "rows": {}}
).encode()
FINDINGS = [
    ("word-vectors", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3\n")),  # tokenize.TokenError
    ("array", header("(" * 90)),
    ("array", b"PK\x03\x04" + bytes(30)),  # zipfile.BadZipFile
    ("choice", b"binary(loss=5)"),  # TypeError: a choice that is a number
    ("choice", b"combined(parts={'a': 'euclidean', b'': 'jaccard'}, weights={'a': 1})"),  # TypeError: a key of bytes
    ("choice", b"euclidean(squared=1e999)"),  # read back as the word inf
    ("choice", b"euclidean(name=3)"),  # TypeError: two values for one argument
    ("annotations", json.dumps({"images": [{"cocoid": [7], "split": "test"}]}).encode()),  # TypeError: unhashable
    ("annotations", json.dumps({"rooms": {"a": {"panos": []}}, "suggested_split": {"test_rooms": [[]]}}).encode()),
    ("annotations", json.dumps([{"image": "a", "scale": 1, "center": [10**400, 1]}]).encode()),  # OverflowError
    ("index", json.dumps({"parts": ["0001"], "items": 2, "model": "", "method": "x", "run": ""}).encode()),  # KeyError
    ("metadata", b'{"name": "' + b"9" * 5000 + b'", "counts": ' + b"9" * 5000 + b"}"),
    ("metadata", b"[" * 100_000),
    ("hf", json.dumps({"image": {"bytes": None, "path": "a.png\0"}, "label": 3.5}).encode()),  # ValueError: a NUL
    ("run", CUT.join([b"{}", b"", EMPTY_EVALUATION])),  # StopIteration
    ("run", changed_config("train", learning_rate=1e999)),  # ValueError: no finite number, read but not written
    ("run", changed_config("model", backbone=[], dimension=10**9, image_size=[1])),
    (
        "run",
        b'{"train": {}, "model": {"image_size": 7}, "task": 1}' + CUT + b'{"step": 1e999}\n' + CUT + b'{"rows": 3}',
    ),
]


@pytest.mark.parametrize(
    ("name", "data"), FINDINGS, ids=[f"{name} {number}" for number, (name, _) in enumerate(FINDINGS)]
)
def test_what_was_found_is_a_users_error_at_most(name: str, data: bytes, tmp_path: Path) -> None:
    try:
        PARSERS[name].run(data, tmp_path)
    except UserError as error:
        assert str(error)  # noqa: PT017 - no error is right too: some parsers keep theirs to themselves


@pytest.mark.parametrize("name", QUICK)
def test_first_inputs_are_read(name: str, tmp_path: Path) -> None:
    for seed in PARSERS[name].seeds():
        PARSERS[name].run(seed, tmp_path)


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8)
names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=9)
numbers = st.floats(-1e6, 1e6, width=32)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(name=st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True), given=st.dictionaries(
    st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(lambda key: not keyword.iskeyword(key)),
    plain, max_size=3,
))  # fmt: skip
def test_a_choice_is_read_back(name: str, given: dict[str, object]) -> None:
    choice = Choice(name, given)
    assert Choice.parse(str(choice)) == choice


@settings(max_examples=60, deadline=None)
@given(value=plain)
def test_json_is_read_back(value: object) -> None:
    try:
        raw = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError, match="half a character"):
            parse_json(json.dumps(value).encode())
        return
    assert parse_json(raw) == value == parse_json(json.dumps(value).encode())


@settings(max_examples=25, deadline=None)
@given(
    vectors=st.dictionaries(words, st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5),
    binary=st.booleans(),
)
def test_word_vectors_are_read_back(vectors: dict[str, list[float]], binary: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors"
        head = f"{len(vectors)} 3\n".encode()
        if binary:
            lines = [word.encode() + b" " + struct.pack("<3f", *vector) + b"\n" for word, vector in vectors.items()]
        else:
            lines = [f"{word} {' '.join(map(repr, vector))}\n".encode() for word, vector in vectors.items()]
        path.write_bytes(head + b"".join(lines))
        made = open_word_vectors(str(path))
        found = made.find(vectors)
        assert found == {word: row for row, word in enumerate(vectors)}
        np.testing.assert_array_equal(made.rows(np.arange(len(vectors))), np.array(list(vectors.values()), np.float32))


@settings(max_examples=10, deadline=None)
@given(
    ids=st.lists(names, min_size=3, max_size=3, unique=True),
    labels=st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=3, max_size=3),
    unit=st.text(st.characters(codec="utf-8"), max_size=9),
)  # fmt: skip
def test_a_dataset_is_read_back(ids: list[str], labels: list[list[float]], unit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        info = DatasetInfo("set", "value", "value", unit, "", "", "")
        with PreparedWriter(Path(folder) / "set", info) as writer:
            for item_id, role, label in zip(ids, ("train", "query", "gallery"), labels, strict=True):
                writer.add([Item(item_id=item_id, role=role, image=Image.new("L", (2, 2)), label=label)])
        dataset = PreparedDataset.open(Path(folder) / "set")
        splits = [dataset.split(role) for role in ("train", "query", "gallery")]
        assert [split.item_ids for split in splits] == [(item_id,) for item_id in ids]
        assert [split.labels[0] for split in splits] == labels
        assert dataset.info.label_unit == escape_moves(unit)
