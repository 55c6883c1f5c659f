"""A label distance and labels are given in one order, as texts and as objects; classes import beside names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml import distances, losses, sampling
from cml.errors import UserError

HOURS = [0.5, 3.0, 23.0, 12.0, 13.5, 7.0, 18.0, 20.0]
CALLS: dict[str, Callable[..., Any]] = {
    "fit": losses.get("soft-target").fit,
    "batches": sampling.get("random(batch_size=4)").batches,
}
FORMS = ["circular(period=24)", distances.get("circular", period=24), distances.Circular(period=24)]


def constants(distance: object, labels: object) -> dict[str, float]:
    return losses.get("soft-target").fit(distance, labels).constants()


def test_texts_objects_functions_and_matrices_are_taken_alike() -> None:
    matrix = distances.Circular(period=24).pairwise(*[distances.Circular(period=24).encode(HOURS)] * 2)
    expected = constants(FORMS[1], HOURS)
    for form in FORMS:
        assert constants(form, HOURS) == expected
        assert constants(form, np.array(HOURS)) == expected
        assert constants(form, torch.tensor(HOURS, dtype=torch.float64)) == expected
    assert constants(matrix, range(len(HOURS))) == expected
    by_function = constants(lambda a, b: min(abs(a - b), 24 - abs(a - b)), HOURS)
    assert by_function == pytest.approx(expected, rel=1e-6)
    assert losses.get("soft-target").fit(matrix).constants() == pytest.approx(expected, rel=1e-6)

    sampler = sampling.GroupedSampler(batch_size=6, groups=2, drawn=2, pool=3)
    drawn = [list(sampler.batches(form, HOURS)) for form in FORMS]
    drawn += [list(sampler.batches(matrix, range(len(HOURS))))]
    for batches in drawn[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(batches, drawn[0], strict=True))


@pytest.mark.parametrize("call", CALLS)
def test_the_other_order_is_one_line_that_says_so(call: str) -> None:
    for distance in ("euclidean", distances.Euclidean(), lambda a, b: abs(a - b)):
        for labels in (HOURS, np.array(HOURS), torch.tensor(HOURS)):
            with pytest.raises(UserError) as caught:
                CALLS[call](labels, distance)
            said = str(caught.value)
            assert said.startswith(f"{call} takes the label distance, then the labels of the training set, as in")
            assert said.endswith("exchange them.")
    for distance in ("euclidean", distances.Euclidean()):
        with pytest.raises(UserError, match="and no labels instead"):
            CALLS[call](distance)
    with pytest.raises(UserError, match=r"Unknown label distance 'euclidian'\. Did you mean 'euclidean'\?"):
        CALLS[call]("euclidian", HOURS)
    words = list(inspect.signature(CALLS[call]).parameters)
    assert words == [words[0], "labels", "seed"]


@pytest.mark.parametrize("module", [distances, sampling, losses])
def test_every_registered_class_imports_by_its_name(module: Any) -> None:  # noqa: ANN401
    for name in module.names():
        entry = module.registry.entry(name)
        if module.registry.origin(name) or not inspect.isclass(entry):
            continue
        assert getattr(module, entry.__name__) is entry
        assert entry.__name__ in dir(module)
        assert entry.__name__ in module.__all__
    with pytest.raises(AttributeError, match=r"no attribute 'RankNContrast'\. Did you mean 'RankNContrastLoss'\?"):
        losses.RankNContrast  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing


def test_a_class_trains_as_its_text_does() -> None:
    rows = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    words: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=8)", "quiet": True}
    hours = np.linspace(0, 23, 24)
    by_text, by_class = (
        cml.fit(rows, hours, label_distance=form, **words).embed(rows)
        for form in ("circular(period=24)", distances.Circular(period=24))
    )
    assert np.array_equal(by_text, by_class)
