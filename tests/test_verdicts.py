"""The sentence at the end of an evaluation, a comparison and a check: what the figures say, and whether they can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import cml
from cml.cli import main
from cml.data_prep.drawn.source import People
from cml.retrieval.comparison import Comparison
from cml.retrieval.results import Evaluation, Metric
from cml.retrieval.verdict import judged


def evaluation(**rows: NDArray[np.float64]) -> Evaluation:
    """Rows of label distances at 10 of every query."""
    made = {
        name.replace("_", " "): {"label_distance@10": Metric("label_distance@10", values, values.mean(), 0.0, 0.0)}
        for name, values in rows.items()
    }
    return Evaluation(made, "px", "reciprocal", len(next(iter(rows.values()))), 30)


def sample(count: int, mean: float) -> NDArray[np.float64]:
    values = np.random.default_rng(round(mean * 1000) + count).normal(mean, 1, count)
    return values - values.mean() + mean


@pytest.mark.parametrize(
    ("count", "means", "losses", "said"),
    [
        (500, (3, 5, 6), (), "better than frozen (3 against 5 in label_distance@10) and random (3 against 6 in label_"),
        (20, (3, 5, 6), (), "random (3 against 6 in label_distance@10); 20 queries are few: by how much is uncertain."),
        (500, (5, 3, 6), (), "worse than frozen (5 against 3 in label_distance@10); better than random (5 against 6"),
        (
            7,
            (5, 5.1, 5.05),
            (),
            "not better than random (5 against 5.05 in label_distance@10); 7 queries are too few to",
        ),
        (7, (5, 5, 5), [0.7, 0.0007] * 2, "Verdict: not better than frozen (5 against 5 in label_distance@10); not"),
        (
            7,
            (5, 5, 5),
            [0.7] * 10 + [0.0007] * 10,
            "Verdict: overfitted, as the training loss fell from 0.7 to 0.0007; not better than frozen (5 against 5 in",
        ),
    ],
)
def test_an_evaluation_ends_with_a_verdict(
    count: int, means: tuple[float, float, float], losses: Sequence[float], said: str
) -> None:
    ours, frozen, random = (sample(count, mean) for mean in means)
    found = judged(evaluation(embedding=ours, frozen=frozen, random=random, oracle=ours * 0), "embedding", losses)
    assert said in found.verdict
    assert ("stop earlier" in found.verdict) == ("overfitted" in found.verdict)  # says how to mend it
    assert found.table().endswith(found.verdict)
    assert Evaluation.from_json(found.to_json()).table() == found.table()


def comparison(*values: float, frozen: float) -> Comparison:
    runs = [evaluation(embedding=np.array([value])) for value in values]
    references = evaluation(embedding=np.array([values[0]]), frozen=np.array([frozen]), oracle=np.array([0.0]))
    return Comparison({"ours": runs}, references, "embedding", 16, {})


def test_a_comparison_says_how_many_seeds_would_tell() -> None:
    assert (
        comparison(3.0, frozen=5)
        .notes()
        .endswith("one seed tells nothing of the spread between trainings; take --seeds 3.")
    )
    assert (
        comparison(3, 3.1, 3.2, frozen=5)
        .notes()
        .endswith("ours is ahead of frozen by 1.9 in label_distance@10; few queries (1): by how much is uncertain.")
    )
    assert (
        comparison(7, 7.1, 7.2, frozen=5)
        .notes()
        .endswith("ours is behind frozen by 2.1 in label_distance@10; few queries (1): by how much is uncertain.")
    )
    wide = comparison(3, 4, frozen=5.5).notes()
    # by hand: sd .7071, t(.975, 1) 12.706, and 2.776 * .7071 / sqrt(5) = .878 <= 1 = half of the gap
    assert wide.endswith("they differ by 2 px, and the 95 % interval over 2 seeds is ± 6.35; take 5 seeds.")
    assert "even 20 seeds would not tell" in comparison(3, 6, frozen=4.6).notes()


def test_check_and_a_model_of_arrays_end_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    People(count=24, size=32).prepare(tmp_path / "people")
    assert main(["check", str(tmp_path / "people")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/people: nothing wrong",
        "Verdict: 2 queries, each among 6 items, can only show large differences: the 95 % interval of a mean over "
        "them is ± 1.4 standard deviations.",
    ]
    images = np.random.default_rng(0).integers(0, 255, (20, 16, 16, 3), np.uint8)
    model = cml.fit(
        images, range(20), backbone="small-cnn", weights="none", image_size=(16, 16), steps=1, workers=0, quiet=True,
        sampler="random(batch_size=8)",
    )  # fmt: skip
    assert "Verdict: " in model.evaluate(images, range(20)).table()
