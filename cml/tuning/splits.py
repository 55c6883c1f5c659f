"""Splits of items into those that heads are trained on and those that choose among them."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Float64, Int64
from cml.errors import UserError
from cml.retrieval.item_units import FEWEST_CLASSES, check_class_count, groups_hold_classes
from cml.retrieval.near_in_order import MUCH, share_of_near_neighbors

Split = tuple[Int64, Int64]  # the items to train on, and those held out
# what is held out: whole groups, of which each may hold all of its classes, blocks of the order, or any items
SplitKind = Literal["groups", "classes", "blocks", "random"]

SPLITS, MOST_SPLITS = 4, 12
TOLD_BY = 200  # held-out items of all splits together, which few items reach by more splits
HELD_OUT = 0.2  # of the items, in each split
FEWEST_HELD_OUT, FEWEST_TRAINED = 6, 16
_TRIES = 100  # draws of whole classes, of which few may have to be drawn again to be others


def make_splits(
    features: Float32,  # (N, F)
    groups: Int64 | None = None,  # (N,) numbers of groups; None for none
    classes: NDArray[np.str_] | None = None,  # (N,) names of classes; None if labels are not classes
    *,
    seed: int = 0,
) -> tuple[list[Split], SplitKind]:
    """Make splits, each of which holds out a fifth of the items: four, or more random ones of few items.

    Whole groups are held out where there are groups, two or more where these are classes. Without, neighbours in the
    order of the file may be almost the same item, as the frames of a film are; then each split holds out one block of
    that order. Otherwise the items are drawn at random, see ``count_splits``.
    """
    count = len(features)
    if groups is not None and groups_hold_classes(groups, classes):
        return list(_split_classes(groups, seed)), "classes"
    if groups is not None:
        splits = [_split_groups(groups, np.random.default_rng([seed, number])) for number in range(SPLITS)]
        return splits, "groups"
    if share_of_near_neighbors(features, seed=seed) >= MUCH:
        # the blocks of five folds, as evenly spread over the file as four of them can be
        edges = np.linspace(0, count, round(1 / HELD_OUT) + 1).round().astype(np.int64)
        blocks = [np.arange(edges[number], edges[number + 1]) for number in range(SPLITS)]
        return [_without(block, count) for block in blocks], "blocks"
    drawn = [np.random.default_rng([seed, number]).permutation(count) for number in range(count_splits(count))]
    return [
        _without(np.sort(order[: max(FEWEST_HELD_OUT, round(HELD_OUT * count))]), count) for order in drawn
    ], "random"


def count_splits(count: int) -> int:  # four, or as many splits as hold out 200 items together; 12 at most
    """Say how often items are drawn at random, so that few items tell as much as they can.

    Four splits of 125 items score 100 held-out ones, whose mean gain varies so much with the draw that embeddings that
    are far better than the features are not taken. More draws of the same items vary less together. What remains is
    that they share items, which ``measure_gain`` takes into account.
    """
    return min(MOST_SPLITS, max(SPLITS, math.ceil(TOLD_BY / (HELD_OUT * count))))


def _split_classes(groups: Int64, seed: int) -> Iterator[Split]:
    """Yield splits that hold out other classes, as far as there are others; of few classes more than a fifth."""
    check_class_count(groups, "'tune'", "Leave 'groups' out (of a dataset: group_column=none).")
    seen, repeated = set[bytes](), list[Split]()
    for number in range(_TRIES):
        split = _split_groups(groups, np.random.default_rng([seed, number]), fewest=FEWEST_CLASSES)
        if split[1].tobytes() in seen:
            repeated.append(split)
            continue
        seen.add(split[1].tobytes())
        yield split
        if len(seen) == SPLITS:
            return
    yield from repeated[: SPLITS - len(seen)]


def _split_groups(groups: Int64, generator: np.random.Generator, fewest: int = 0) -> Split:
    """Hold out whole groups in random order, each that brings the held-out items nearer to a fifth of all.

    So a group of half of the items stays among those that are trained on, as long as others are there to hold out.
    With ``fewest``, so many groups are on either side of the split in any case.
    """
    names, numbers = np.unique(groups, return_inverse=True)
    sizes, wanted = np.bincount(numbers), HELD_OUT * len(groups)
    held, is_chosen = 0, np.zeros(len(names), bool)
    for place, group in enumerate(generator.permutation(len(names)).tolist()):
        if is_chosen.sum() == len(names) - fewest:
            break
        if place < fewest or abs(held + sizes[group] - wanted) < abs(held - wanted):
            held += sizes[group]
            is_chosen[group] = True
    for group in np.argsort(sizes, kind="stable").tolist():  # where all groups are large
        if held < FEWEST_HELD_OUT and not is_chosen[group]:
            held += sizes[group]
            is_chosen[group] = True
    is_held_out = is_chosen[numbers]
    trained, held_out = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
    if len(trained) < FEWEST_TRAINED or len(held_out) < FEWEST_HELD_OUT:
        raise UserError(
            f"'groups' leaves a split with {len(trained)} items to train on and {len(held_out)} to choose by, of "
            f"{len(groups)}; at least {FEWEST_TRAINED} and {FEWEST_HELD_OUT} are needed. Make the groups smaller, or "
            "leave 'groups' out (of a dataset: group_column=none)."
        )
    return trained, held_out


def _without(held_out: Int64, count: int) -> Split:
    return np.setdiff1d(np.arange(count), held_out), held_out


def share_held_out(splits: Sequence[Split], kind: SplitKind) -> float:
    """The share of the items that splits hold out: a fifth, or more of few classes."""
    if kind != "classes":
        return HELD_OUT
    return float(np.mean([len(held_out) / (len(held_out) + len(trained)) for trained, held_out in splits]))


LEAST_GAIN = 1.5  # in standard errors


class Gain(NamedTuple):
    """A mean gain over splits of the same items, and its standard error."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain exceeds 1.5 times its standard error."""
        return self.mean > LEAST_GAIN * self.error


def measure_gain(
    scores: Sequence[Float64],
    others: Sequence[Float64],
    *,
    counted: int | None = None,  # the error is that of so many splits at most; None counts all
    held_out: float = HELD_OUT,  # share of the items that a split holds out
) -> Gain:
    """Measure by how much an embedding scores better than another one.

    The variance of a split's mean gain is estimated twice: by the means of all splits, which may be alike by luck, and
    by the items within splits, which know nothing of how training varies. The mean of both is used, as a moderated
    t-test does (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004). Splits share most training
    items, so that their mean varies more than that of m independent ones: by a factor of 1/m + n_held/n_trained (Nadeau
    and Bengio, Machine Learning 52, 2003).
    """
    gains = [ours - theirs for ours, theirs in zip(scores, others, strict=True)]
    means = np.array([gain.mean() for gain in gains])
    of_items = np.mean([gain.var(ddof=1) / len(gain) for gain in gains])
    variance = (means.var(ddof=1) + of_items) / 2
    count = len(gains) if counted is None else min(counted, len(gains))
    error = np.sqrt(variance * (1 / count + held_out / (1 - held_out)))
    return Gain(float(means.mean()), float(error))
