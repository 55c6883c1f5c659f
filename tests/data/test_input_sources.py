"""Which kind of inputs ``cml.fit`` recognises, how columns of frames are read, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import torch

from cml.data.input_form import AcceptedInputs, FieldNames
from cml.data.input_sources import LabelledInputs, open_inputs, recognize_inputs
from cml.data.items import Tensors
from cml.data.vectors import Vectors
from cml.errors import UserError

ROWS = np.random.default_rng(1).normal(0, 2, (6, 3))
LABELS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
TABLE = {"emb_0": ROWS[:, 0], "age": LABELS, "emb_1": ROWS[:, 1], "emb_2": ROWS[:, 2], "name": list("abcdef")}


def recognize(
    inputs: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    *,
    features: str | list[str] | None = None,
    label: str | None = None,
    **accepted: Any,  # noqa: ANN401
) -> LabelledInputs:
    return recognize_inputs(inputs, labels, FieldNames(None, features, label), AcceptedInputs(**accepted))


def read(inputs: Any) -> Any:  # noqa: ANN401
    return inputs.read(np.arange(len(inputs)))


def test_every_kind_of_vectors_is_the_same_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    kinds = {
        "array": ROWS,
        "float32": ROWS.astype(np.float32),
        "tensor": torch.from_numpy(ROWS),
        "rows": ROWS.tolist(),
        "arrays": list(ROWS),
        "tensors": list(torch.from_numpy(ROWS)),
        "memory map": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "file": tmp_path / "rows.npy",
        "file name": str(tmp_path / "rows.npy"),
    }
    for name, kind in kinds.items():
        labelled = recognize(kind, LABELS)
        assert labelled.kind == "vectors", name
        assert np.array_equal(read(labelled.inputs), ROWS.astype(np.float32)), name
        assert labelled.labels == LABELS


def test_columns_of_every_kind_of_frame(tmp_path: Path) -> None:
    frames = {"pandas": pandas.DataFrame(TABLE), "polars": polars.DataFrame(TABLE), "arrow": pa.table(TABLE)}
    for name, frame in frames.items():
        for features in ("emb_*", "emb_", ["emb_0", "emb_1", "emb_2"]):
            labelled = recognize(frame, None, features=features, label="age")
            assert np.array_equal(read(labelled.inputs), ROWS.astype(np.float32)), (name, features)
            assert labelled.labels == LABELS
            assert labelled.inputs.form.columns == ("emb_0", "emb_1", "emb_2")  # type: ignore[union-attr]
        again = open_inputs(frame, labelled.inputs.form, (1, 1))  # type: ignore[union-attr]
        assert np.array_equal(read(again), ROWS.astype(np.float32)), name
        assert recognize(frame, LABELS[::-1], features="age").labels == LABELS[::-1]


def test_a_column_of_lists_holds_vectors() -> None:
    lists = {"vector": ROWS.tolist(), "age": LABELS}
    for frame in (pandas.DataFrame(lists), polars.DataFrame(lists), pa.table(lists)):
        labelled = recognize(frame, None, features="vector", label="age")
        assert np.array_equal(read(labelled.inputs), ROWS.astype(np.float32))
        assert labelled.inputs.form.columns == ()  # type: ignore[union-attr]


def test_missing_numbers_of_frames_are_nan() -> None:
    table = {"a": [1, None, 3, 4, 5, 6], "b": [1.0, 2.0, None, 4.0, 5.0, 6.0]}
    for frame in (pandas.DataFrame(table), pandas.DataFrame(table).convert_dtypes(), polars.DataFrame(table)):
        rows = read(recognize(frame, LABELS, features=["a", "b"], missing="mean").inputs)
        assert np.isnan(rows).tolist() == [[False, False], [True, False], [False, True], *[[False, False]] * 3]


def test_tensors_need_a_backbone_of_ones_own() -> None:
    for array, whole in (
        (np.zeros((6, 1, 8)), False),
        (np.zeros((6, 8), np.int64), True),
        (np.zeros((6, 2), "u1"), False),
    ):
        labelled = recognize(torch.from_numpy(array), LABELS, own_backbone=True)
        assert isinstance(labelled.inputs, Tensors)
        assert read(labelled.inputs).dtype == (np.int64 if whole else np.float32)
        with pytest.raises(UserError, match=r"(give|need) a backbone of your own"):
            recognize(array, LABELS)


def test_pictures_stay_pictures() -> None:
    pixels = np.zeros((6, 8, 8, 3), np.uint8)
    assert recognize(pixels, LABELS).kind == "images"
    assert recognize(pixels, LABELS, own_backbone=True).kind == "images"
    assert recognize(list(pixels), LABELS).kind == "images"
    assert recognize(pixels, LABELS, kind="tensors").kind == "tensors"
    assert recognize(ROWS, LABELS, own_backbone=True).kind == "vectors"


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (ROWS[:, 0], {}, r"Got one axis of 6 numbers instead; a single number per item is X.reshape\(-1, 1\)"),
        (ROWS.astype(int), {}, r"are int64: if they are vectors, convert them by X.astype\(np.float32\)"),
        (ROWS.astype(object), {}, "are Python objects, not numbers"),
        ([[1.0, 2.0], [1.0], *[[1.0, 2.0]] * 4], {}, "Row 1 of the vectors must be 2 numbers, as row 0 has. Got 1"),
        ([[1.0, "x"], *[[1.0, 2.0]] * 5], {}, r"Row 0 of the vectors must be numbers. Got \[1.0, 'x'\] instead"),
        (ROWS[:4], {}, "There must be one label per input. Got 4 rows of vectors and 6 labels"),
        (np.random.default_rng(0).random((6, 4, 4, 3)), {}, "look like pictures. If they are, convert them"),
        (np.random.default_rng(0).random((6, 3, 4, 4)), {}, "look like pictures. If they are, convert them"),
        (
            pandas.DataFrame(TABLE),
            {},
            r"Name the columns of the data frame: image='...' for one of images, or features=",
        ),
        (
            pandas.DataFrame(TABLE),
            {"features": "embb"},
            r"no column that matches features='embb'. Did you mean 'emb_.'\? There are: emb_0",
        ),
        (pandas.DataFrame(TABLE), {"features": ["emb_9"]}, r"no column 'emb_9'. Did you mean 'emb_\d'\?"),
        (pandas.DataFrame(TABLE), {"features": "name"}, "Row 0 of the column 'name' must be a number. Got 'a' instead"),
        ([np.zeros((1, 4)), np.zeros((1, 5))], {"own_backbone": True}, "Item 1 of the tensors must be an array of the"),
        ({"a": 1}, {"kind": "vectors"}, "Vectors must be an array .* Got dict instead"),
        ("gone.npy", {}, "gone.npy cannot be read: "),
        ("table.csv", {"kind": "vectors"}, "table.csv must be a .npy file. Read others first"),
    ],
)
def test_other_inputs_are_refused_in_one_sentence(inputs: Any, options: dict[str, Any], message: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=message) as error:
        recognize(inputs, LABELS, **options)
    assert "\n" not in str(error.value)


def test_a_model_refuses_another_shape() -> None:
    form = Vectors(ROWS).form
    with pytest.raises(UserError, match=r"The model takes 3 numbers. Got 2 numbers instead."):
        open_inputs(ROWS[:, :2], form, (1, 1))
    with pytest.raises(UserError, match=r"The model takes tensors of 1 x 8. Got tensors of 8 instead."):
        open_inputs(np.zeros((4, 8)), Tensors(np.zeros((4, 1, 8))).form, (1, 1))
