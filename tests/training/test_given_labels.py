"""Labels as people have them: dates, ordered categories, attributes of items; and the state that torch is in."""

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import cml
from cml.sklearn import CMLEmbedder

OPTIONS: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=12)", "quiet": True, "device": "cpu"}
ROWS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
DAYS = pd.Series(pd.date_range("2020-01-01", periods=60))
GRADES = pd.Series(pd.Categorical(["low", "middle", "high"] * 20, ["low", "middle", "high"], ordered=True))


@pytest.mark.parametrize(
    ("labels", "mend", "mended"),
    [
        (DAYS, r"\[label\.toordinal\(\) for label in labels\]", [day.toordinal() for day in DAYS]),
        ([datetime.date(2020, 1, 1)] * 60, r"\[label\.toordinal\(\) for label in labels\]", None),
        (GRADES, r"labels\.cat\.codes", GRADES.cat.codes),
        (pd.DataFrame({"grade": GRADES})["grade"], r"label_distance='classes'", GRADES.cat.codes),
    ],
)
def test_dates_and_ordered_categories_are_named_with_what_makes_numbers_of_them(
    labels: Any,  # noqa: ANN401
    mend: str,
    mended: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(cml.UserError, match=mend):
        cml.fit(ROWS, labels, **OPTIONS)
    if mended is not None:
        cml.fit(ROWS, mended, **OPTIONS)


@dataclass
class Graph:
    """An item with its label, as those of torch_geometric."""

    x: torch.Tensor
    y: torch.Tensor


class Sums(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.linear(batch)
        return features


def join(graphs: list[Graph]) -> torch.Tensor:
    return torch.stack([graph.x.sum(0) for graph in graphs])


def test_an_attribute_of_the_items_is_their_label() -> None:
    nodes = [torch.randn(1 + row % 3, 4, generator=torch.Generator().manual_seed(row)) for row in range(60)]
    graphs = [Graph(x, x.sum().reshape(1)) for x in nodes]
    results = []
    for labels in ({"label": "y"}, {"labels": [graph.y.item() for graph in graphs]}):
        torch.manual_seed(0)
        model = cml.fit(graphs, backbone=Sums(), collate=join, **labels, **OPTIONS)
        results.append(model.embed(graphs))
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)
    del graphs[7].y
    with pytest.raises(cml.UserError, match="Item 7 of the data set has no attribute 'y', as item 0 has"):
        cml.fit(graphs, label="y", backbone=Sums(), collate=join, **OPTIONS)


def test_training_turns_gradients_on() -> None:
    usual = cml.fit(ROWS, ROWS[:, 0], **OPTIONS)
    with torch.no_grad():
        model = cml.fit(ROWS, ROWS[:, 0], **OPTIONS)
    np.testing.assert_allclose(model.embed(ROWS), usual.embed(ROWS), atol=1e-5)


def test_the_estimator_speaks_only_if_it_is_asked_to(capfd: pytest.CaptureFixture[str]) -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"}
    CMLEmbedder(**options).fit(ROWS, ROWS[:, 0])
    assert "".join(capfd.readouterr()) == ""
    CMLEmbedder(quiet=False, **options).fit(ROWS, ROWS[:, 0])
    assert "".join(capfd.readouterr()) != ""
