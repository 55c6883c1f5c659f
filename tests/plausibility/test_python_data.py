"""What Python objects say of themselves: streams, parts, classes, names of columns, and types that NumPy lacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import cml
from cml.data_prep.row_files import suggest_mend
from cml.errors import ImplausibleData, UserError

OPTIONS: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=20)", "quiet": True}
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 4)).astype(np.float32)
AGES = RNG.integers(16, 80, 40).tolist()


def hub_data() -> Any:  # noqa: ANN401 - of a library without types
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"x": ROWS.tolist(), "age": AGES, "kind": [n % 4 for n in range(40)]})


REFUSED: dict[str, Callable[[Any, Any], object]] = {
    "labels in a stream": lambda library, data: cml.fit(ROWS, data.to_iterable_dataset(), **OPTIONS),
    "parts to train on": lambda library, data: cml.fit(library.DatasetDict({"train": data}), label="age", **OPTIONS),
    "labels in parts": lambda library, data: cml.fit(ROWS, library.DatasetDict({"train": data}), **OPTIONS),
    "parts of streams": lambda library, data: cml.fit(
        library.IterableDatasetDict({"train": data.to_iterable_dataset()}), label="age", **OPTIONS
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_streams_and_parts_are_refused_in_one_line(kind: str) -> None:
    data = hub_data()
    import datasets

    with pytest.raises(UserError) as refused:
        REFUSED[kind](datasets, data)
    text = str(refused.value)
    assert "\n" not in text
    assert ("data['train']" if "parts" in kind else "without streaming=True") in text


def test_a_model_refuses_streams_and_parts_too() -> None:
    data = hub_data()
    import datasets

    model = cml.fit(ROWS, AGES, **OPTIONS)
    with pytest.raises(UserError, match="is read as a stream"):
        model.evaluate(data.to_iterable_dataset())
    with pytest.raises(UserError, match=r"give one of them, as in data\['train'\]"):
        model.embed(datasets.DatasetDict({"train": data}))


def test_bfloat16_is_taken_as_inputs_and_as_labels() -> None:
    halves = torch.tensor(ROWS).to(torch.bfloat16)
    labels = torch.tensor(AGES).to(torch.bfloat16)
    model = cml.fit(halves, labels, **OPTIONS)
    assert np.array_equal(model.embed(halves), model.embed(halves.float().numpy()))
    plain = cml.fit(halves.float().numpy(), labels.float().numpy(), **OPTIONS)
    assert np.array_equal(model.embed(ROWS), plain.embed(ROWS))


def test_a_column_of_class_labels_is_compared_as_classes() -> None:
    data = hub_data()
    import datasets

    typed = data.cast_column("kind", datasets.ClassLabel(names=["a", "b", "c", "d"]))
    assert cml.fit(typed, features="x", label="kind", **OPTIONS).label_distance.name == "classes"
    numbers = cml.fit(typed, features="x", label="kind", label_distance="euclidean", **OPTIONS)
    assert numbers.label_distance.name == "euclidean"
    assert cml.fit(data, features="x", label="kind", **OPTIONS).label_distance.name == "euclidean"


def places() -> dict[str, list[float]]:
    rng = np.random.default_rng(1)
    return {"longitude": rng.uniform(5, 80, 40).tolist(), "latitude": rng.uniform(30, 60, 40).tolist()}


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_frame_of_places_are_taken_by_their_names(library: Callable[[Any], Any]) -> None:
    frame = places()
    ordered = np.column_stack([frame["latitude"], frame["longitude"]])
    options = {**OPTIONS, "label_distance": "haversine"}
    named, plain = cml.fit(ROWS, library(frame), **options), cml.fit(ROWS, ordered, **options)
    assert np.array_equal(named.embed(ROWS), plain.embed(ROWS))
    with pytest.raises(UserError, match=r"latitude, longitude: name the columns in this order\. Got longitude, y"):
        cml.fit(ROWS, library({"longitude": frame["longitude"], "y": frame["latitude"]}), **options)


def test_findings_name_the_columns_of_a_frame() -> None:
    frame = pd.DataFrame({"age": [*AGES[:39], 2014], "height": RNG.normal(170, 9, 40)})
    with pytest.warns(ImplausibleData, match="1 of 40 numbers in 'age' lie far away") as caught:
        cml.fit(ROWS, frame, **OPTIONS)
    assert {warning.filename for warning in caught} == {__file__}  # the line that calls cml.fit
    one = cml.fit(ROWS, frame[["height"]], **OPTIONS)
    with warnings.catch_warnings(action="error", category=ImplausibleData):
        assert np.array_equal(one.embed(ROWS), cml.fit(ROWS, frame["height"], **OPTIONS).embed(ROWS))


@pytest.mark.parametrize("latitude", [100.0, 95.5, -170.0])
def test_latitudes_beyond_the_poles_are_said_to_be_swapped(latitude: float) -> None:
    labels = [[latitude, 40.0], *[[10.0 + n, 30.0] for n in range(39)]]
    with pytest.raises(UserError, match="Latitude and longitude seem to be swapped"):
        cml.fit(ROWS, labels, label_distance="haversine", **OPTIONS)
    labels[0] = [latitude, 120.0]
    with pytest.raises(UserError, match=r"-90\.\.90 degrees") as refused:
        cml.fit(ROWS, labels, label_distance="haversine", **OPTIONS)
    assert "swapped" not in str(refused.value)


def test_columns_of_places_are_ordered_for_every_kind(tmp_path: Path) -> None:
    frame = places()
    lines = [
        "f,longitude,latitude",
        *(f"{n},{x},{y}" for n, (x, y) in enumerate(zip(frame["longitude"], frame["latitude"], strict=True))),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    dataset = cml.prepare(
        "table",
        tmp_path / "set",
        source=tmp_path / "rows.csv",
        features=("f",),
        label_columns=("longitude", "latitude"),
        label_distance="haversine",
    )
    assert dataset.info.details["label_columns"] == ["latitude", "longitude"]
    assert np.asarray(dataset.split("train").labels)[:, 0].max() <= 60
    assert np.asarray(dataset.split("train").labels)[:, 0].min() >= 30


@pytest.mark.parametrize(
    ("cell", "mend"),
    [
        ("1 200", '--thousands " "'),
        ("1'200.5", '--thousands "\'"'),
        ("n02084071", "an id is no number"),
        ("img_0001", "an id is no number"),
        ("3f2a-77", "an id is no number"),
        ("12 cm", "write the number alone, 12"),
        ("2020-01-02", "a date or time"),
        ("good", "for texts take"),
    ],
)
def test_the_mend_fits_the_cause(cell: str, mend: str) -> None:
    assert mend in suggest_mend(cell)
