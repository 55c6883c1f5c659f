"""Judgements: the questions that are held out, what agreement their judges allow, and the items that they name."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, overload

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.errors import UserError


class TripletQuestions(NamedTuple):
    """The questions of T judged triplets."""

    questions: Int64  # (Q, 3) the different questions: the anchor and the two others, the lower number first
    place: Int64  # (T,) which question each triplet answers
    is_swapped: Bools  # (T,) whether its answer is the other with the higher number

    def count_votes(self, counts: Int64) -> Float64:  # counts (T,) -> (Q, 2)
        """Count how often each question got each of its two answers."""
        answers = ~self.is_swapped, self.is_swapped
        sides = [np.bincount(self.place, counts * is_given, len(self.questions)) for is_given in answers]
        return np.stack(sides, axis=1).astype(np.float64)


def find_questions(
    anchor: Int64,  # (T,) numbers of the anchors
    nearer: Int64,  # (T,) numbers of the items that were judged nearer
    farther: Int64,  # (T,) numbers of the others
) -> TripletQuestions:  # the questions, in ascending order
    """Find the questions that judged triplets answer."""
    asked = np.stack([anchor, np.minimum(nearer, farther), np.maximum(nearer, farther)], axis=1)
    questions, place = np.unique(asked, axis=0, return_inverse=True)
    return TripletQuestions(questions, place.ravel(), nearer > farther)


FEWEST_REPEATED = 10  # questions from which a ceiling means something
_HALVES = 50  # random splits of repeated judgements into halves


def estimate_pair_ceiling(
    pair: Int64,  # (J,) which pair each judgement is of
    values: Float64,  # (J,) judged distances
) -> float | None:  # the correlation; None where fewer than 10 pairs were judged several times
    """Estimate the largest rank correlation that an embedding can have with the mean distances of repeated pairs.

    It is the root of their reliability: the mean correlation of two random halves of the judgements, by Spearman and
    Brown's formula.
    """
    from scipy.stats import spearmanr

    counts = np.bincount(pair)
    chosen = counts[pair] > 1
    if int((counts > 1).sum()) < FEWEST_REPEATED:
        return None
    _, place = np.unique(pair[chosen], return_inverse=True)
    some = values[chosen]
    generator = np.random.default_rng(0)
    correlations = []
    for _ in range(_HALVES):
        order = np.lexsort((generator.random(len(some)), place))
        rank = np.arange(len(order)) - np.searchsorted(place[order], place[order])
        in_first = rank < (np.bincount(place) // 2)[place[order]]
        halves = []
        for half in (order[in_first], order[~in_first]):
            halves.append(np.bincount(place[half], some[half]) / np.bincount(place[half]))
        if all(np.ptp(half) > 0 for half in halves):
            correlations.append(spearmanr(*halves)[0])
    agreement = max(0.0, float(np.mean(correlations))) if correlations else 0.0
    return float(np.sqrt(2 * agreement / (1 + agreement)))


def estimate_triplet_ceiling(
    votes: Float64,  # (Q, 2) how often each question got each of its two answers
    anchors: Int64,  # (Q,) the anchor of each
) -> float | None:  # the share; None where fewer than 10 questions were judged several times
    """Estimate the share of the judgements of repeated questions that an embedding can agree with at most.

    It is 1 - e of the flip rate e by which two judgements of one question agree as often as they do, with probability
    (1 - e)^2 + e^2. As in triplet_agreement, an anchor's judgements count the same, and so do all anchors.
    """
    total = votes.sum(axis=1)
    repeated = total > 1
    if repeated.sum() < FEWEST_REPEATED:
        return None
    total, votes = total[repeated], votes[repeated]
    agreeing = (votes * (votes - 1)).sum(axis=1) / (total * (total - 1))  # share of the pairs of judgements
    _, place = np.unique(anchors[repeated], return_inverse=True)
    agreement = float((np.bincount(place, total * agreeing) / np.bincount(place, total)).mean())
    return float((1 + np.sqrt(max(0.0, 2 * agreement - 1))) / 2)


FEWEST_QUESTIONS = 20


def choose_questions(
    count: int,
    test_fraction: float,  # fraction of them to hold out
    seed: int,
    kind: str,
) -> Bools:  # (Q,) True for the questions that are held out
    """Choose the questions to hold out."""
    if not 0 < test_fraction < 1:
        raise UserError(f"'test_fraction' should be above 0 and below 1. Got {test_fraction} instead.")
    if count < FEWEST_QUESTIONS:
        raise UserError(
            f"To hold out judgements takes at least {FEWEST_QUESTIONS} different {kind}. Got {count}; judge more."
        )
    held = round(test_fraction * count)
    if held in (0, count):
        side, change = ("training", "Lower") if held else ("test", "Raise")
        raise UserError(
            f"A test_fraction of {test_fraction} of {count} {kind} leaves none on the {side} side. {change} it."
        )
    is_held = np.zeros(count, np.bool_)
    is_held[np.random.default_rng(seed).permutation(count)[:held]] = True
    return is_held


class ItemLabels(Sequence[list[str]]):
    """The label of each of N items, a list of texts."""

    label_distance: ClassVar[str]  # name of the label distance that reads them

    def __init__(self, labels: list[list[str]]) -> None:
        self._labels = labels

    def __len__(self) -> int:
        """N, the number of items."""
        return len(self._labels)

    @overload
    def __getitem__(self, item: int) -> list[str]: ...
    @overload
    def __getitem__(self, item: slice) -> list[list[str]]: ...
    def __getitem__(self, item: int | slice) -> list[str] | list[list[str]]:
        """The label of an item, or those of some."""
        return self._labels[item]
