"""Tuning: an embedding of features that is chosen on held-out items, and no worse than the features themselves.

Heads are trained on each of four splits of the items, or of more where there are few items. They are compared there
with the features as they are, their principal components and a ridge regression. The best is averaged with all that are
not clearly worse, unless it alone is clearly better than the average. The features are kept unless that is better by
more than 1.5 times the error of the gain. Where few label distances are known, as of judged pairs, heads learn from
known pairs and are scored by them, and there is no ridge regression.
"""

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from cml.array_types import Float32, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.feature_forms import VECTOR_ROWS
from cml.retrieval.label_regression import RIDGE_ROWS
from cml.storage.json_file import read_json, write_json
from cml.storage.saved_options import record
from cml.training.linear_map import JoinedMaps, LinearMap, average_maps
from cml.tuning.candidates import FROZEN, RIDGE, fit_candidates, frozen_maps
from cml.tuning.heads import LOSSES, RATES, check_tuned_losses
from cml.tuning.scores import FirstItemsScore, SplitScore, fit_once, make_split_score, mean_score
from cml.tuning.splits import LEAST_GAIN, SPLITS, Gain, Split, SplitKind, make_splits, measure_gain, share_held_out

TUNING = "tuning.json"  # of a run folder
FEWEST_ITEMS = 30
_PROBED = 500  # items among which label distances have to differ


@dataclass(frozen=True)
class Tuning:
    """What tuning has chosen, and how sure that is."""

    # names of the candidates that are averaged, or of the one that is taken alone; of the frozen features where these
    # are kept
    chosen: tuple[str, ...]
    frozen: str  # name of the form of the frozen features that does best
    tried: tuple[str, ...]  # names of the candidates that did best, and that the frozen features were compared with
    scores: Mapping[str, float]  # the mean score of each candidate over the splits; of a head at its best step
    score: float  # that of what was tried
    gain: float  # by how much it is better than the frozen features
    error: float  # the standard error of the gain, which takes into account that splits share items
    splits: str  # how the splits were made: "groups", "classes", "blocks" or "random"
    # the mean score on four splits of each whole network that was tried
    networks: Mapping[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # names of whole networks for which the time was too short
    split_count: int = SPLITS  # how many splits there were

    @property
    def keeps_features(self) -> bool:
        """Whether the frozen features are the embedding."""
        return self.chosen == (self.frozen,)

    @property
    def is_ridge(self) -> bool:
        """Whether a ridge regression of the labels, alone, is the embedding."""
        return self.chosen == (RIDGE,)

    def own_rows(self) -> tuple[str, ...]:
        """Name the references of an evaluation that the model is itself: a comparison with them says nothing."""
        if self.keeps_features:
            return tuple(row for frozen, row in zip(FROZEN, VECTOR_ROWS, strict=True) if frozen == self.frozen)
        return RIDGE_ROWS if self.is_ridge else ()

    def describe_reference(self) -> str:
        """Say which reference of an evaluation the model is; "" if it is none."""
        if self.keeps_features:
            return f"The model is the {self.frozen}: tune kept them, and nothing was trained."
        return "The model is a ridge regression: of what tune compared, nothing scored higher." if self.is_ridge else ""

    def describe_new_classes(self) -> str:
        """Say that held-out items were of classes that were trained on; "" if whole groups were held out."""
        if self.keeps_features or self.splits in ("groups", "classes"):
            return ""
        return (
            "No class of the queries was trained on, but tune held out items of classes that were: tune with the "
            "class as the group, so that whole classes are held out (groups=labels, or --group-column with the column "
            "of the class)."
        )

    def save(self, folder: Path) -> None:
        """Write what was chosen and by which scores to tuning.json of a run folder, also in words."""
        write_json(folder / TUNING, {**asdict(self), "lines": self.lines()})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what was chosen from a run folder."""
        path, subject = folder / TUNING, "what 'tune' chose"
        content = read_json(path, subject)
        if isinstance(content, dict):
            content.pop("lines", None)  # the same in words
        return record(content, cls, str(path), subject, "Tune again, in another folder.")

    def lines(self) -> list[str]:  # a few lines
        """Say what was chosen, by how much and how sure."""
        held_out = {
            "groups": "whole groups",
            "classes": "whole classes",
            "blocks": "blocks of consecutive items, because neighbours in the file are alike",
            "random": "items at random",
        }[self.splits]
        scores = [f"tune: score {self.scores[self.frozen]:.3f}: {self.frozen}."]
        if self.tried == (self.frozen,):
            verdict = "nothing scores higher than these features, which are kept as they are."
        else:
            best = self.tried[0] if len(self.tried) == 1 else f"the average of {'; '.join(self.tried)}"
            scores.insert(0, f"tune: score {self.score:.3f}: {best}.")
            enough = f"{LEAST_GAIN} times its standard error of {self.error:.3f}"
            verdict = f"the gain is {self.gain:+.3f}. It exceeds {enough}, so the model is not the features alone."
            if self.keeps_features:
                verdict = f"the gain is {self.gain:+.3f}. It does not exceed {enough}, so the features are kept."
        return [
            f"tune: {self.split_count} splits held out {held_out}. A score of 1 is the best that the "
            "labels allow; 0 is chance.",
            *scores,
            f"tune: {verdict}",
            *(f"tune: score {score:.3f}: {network}." for network, score in self.networks.items()),
            *(f"tune: left out for lack of time: {network}." for network in self.left_out),
        ]


def tune(
    features: Float32,  # (N, F)
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    dimension: int,
    *,
    losses: Sequence[str] = LOSSES,
    rates: Sequence[float] = RATES,
    groups: Int64 | None = None,  # (N,) numbers of groups that are held out together; None for none
    seed: int = 0,
    folder: Path | None = None,  # run folder that keeps each fit, so that the same call continues after an interrupt
    bar: str = "",  # title of a progress bar; "" for none
) -> tuple[LinearMap | JoinedMaps, Tuning]:
    """Choose an embedding of features by held-out items."""
    check_tuned_losses(losses)
    _check_features(features)
    check_tuned_labels(labels, distance, seed)
    if len(labels) < FEWEST_ITEMS:
        raise UserError(_explain_few(features, labels, distance))
    splits, kind = make_splits(features, groups, distance.class_names(labels), seed=seed)
    total = len(splits) + 1
    with ProgressBar(total=total, desc=bar, unit="fit", delay=BAR_DELAY, leave=False, disable=not bar) as shown:

        def fit(name: str, items: Int64, targets: Labels, seed: int) -> dict[str, LinearMap]:
            some = features[items]
            fitted = fit_once(
                folder,
                name,
                lambda: fit_candidates(
                    some, targets[items], distance, dimension, losses=losses, rates=rates, seed=seed
                ),
            )
            shown.update(1)
            return {**frozen_maps(some), **fitted}

        def choose(targets: Labels, title: str) -> _Choice:
            scores = _make_scores(splits, targets, distance, kind, groups)
            fitted = [fit(f"{title}{number}", splits[number][0], targets, seed + number) for number in scores]
            some, share = [splits[number] for number in scores], share_held_out(splits, kind)
            return _choose(fitted, features, some, list(scores.values()), dimension, share)

        choice = choose(labels, "split-")
        kept = choice.tried if choice.gain.is_clear else (choice.frozen,)
        tuning = Tuning(
            chosen=kept,
            frozen=choice.frozen,
            tried=choice.tried,
            scores=choice.scores,
            score=choice.score,
            gain=choice.gain.mean,
            error=choice.gain.error,
            splits=kind,
            split_count=choice.split_count,
        )
        if tuning.keeps_features:
            return frozen_maps(features)[choice.frozen], tuning
        whole = fit("all", np.arange(len(features)), labels, seed + len(splits))
    if len(choice.tried) == 1:
        return whole[choice.tried[0]], tuning
    return average_maps([whole[name] for name in choice.tried], features, dimension), tuning


class _Choice(NamedTuple):
    """What does best on the splits: see the attributes of ``Tuning``."""

    frozen: str
    tried: tuple[str, ...]
    scores: dict[str, float]
    score: float
    gain: Gain
    split_count: int


def _make_scores(
    splits: Sequence[Split], labels: Labels, distance: LabelDistance, kind: SplitKind, groups: Int64 | None
) -> dict[int, SplitScore]:
    """The scores of splits by their numbers, without those beyond four whose held-out labels tell nothing."""
    scores = {number: make_split_score(splits[number][1], labels, distance, kind, groups) for number in range(SPLITS)}
    for number in range(SPLITS, len(splits)):
        with contextlib.suppress(UserError):
            scores[number] = make_split_score(splits[number][1], labels, distance, kind, groups)
    return scores


def _choose(
    fitted: Sequence[Mapping[str, LinearMap]],
    features: Float32,
    splits: Sequence[Split],
    split_scores: Sequence[SplitScore],
    dimension: int,
    held_out: float,  # share of the items that a split holds out
) -> _Choice:
    """Compare the candidates that were fitted on each split."""
    names = [name for name in fitted[0] if all(name in candidates for candidates in fitted)]
    item_scores = {  # of each held-out item, split by split
        name: [score.score_map(maps[name], features) for maps, score in zip(fitted, split_scores, strict=True)]
        for name in names
    }
    scores = keep_best_steps({name: mean_score(of_items) for name, of_items in item_scores.items()})
    frozen = max(FROZEN, key=scores.__getitem__)
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    best_alone = item_scores[ranked[0]]
    measure = functools.partial(measure_gain, held_out=held_out)
    # Few items hardly tell candidates apart, and the average of many is safer than the luckiest. More splits would
    # leave fewer to average, although heads vary as much as before with what they are trained on: so four count.
    tried = tuple(name for name in ranked if not measure(best_alone, item_scores[name], counted=SPLITS).is_clear)
    tried_scores = [
        score.score_map(average_maps([maps[name] for name in tried], features[trained], dimension), features)
        for maps, (trained, _), score in zip(fitted, splits, split_scores, strict=True)
    ]
    if measure(best_alone, tried_scores, counted=SPLITS).is_clear:
        tried, tried_scores = tried[:1], best_alone
    gain = measure(tried_scores, item_scores[frozen])
    return _Choice(frozen, tried, scores, mean_score(tried_scores), gain, len(splits))


def keep_best_steps(
    scores: Mapping[str, float],  # the scores of all candidates, by name
) -> dict[str, float]:
    """Keep only the best step of each head."""
    heads: dict[str, str] = {}
    for name, score in scores.items():
        head = name.rpartition(", ")[0] if name.endswith(" steps") else name
        if head not in heads or score > scores[heads[head]]:
            heads[head] = name
    return {name: scores[name] for name in heads.values()}


def _check_features(features: Float32) -> None:
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise UserError(f"'tune' needs finite features. Those of item {row} are not finite.")
    if len(features) and (features == features[0]).all():
        raise UserError("'tune' finds nothing to choose by: the features of all items are equal.")


def check_tuned_labels(
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    seed: int = 0,
) -> None:
    """Check, by a sample of labels, that held-out items can be ranked by them."""
    needs = "'tune' ranks held-out items by their label distances"
    if distance.known_triplets(labels[:1]) is not None:
        raise UserError(f"{needs}, and judged triplets have none: leave 'tune' out.")
    names = distance.class_names(labels)
    if names is not None and len(set(names)) == 1:
        raise UserError(f"'tune' needs at least 2 classes. All {len(labels)} items are of the class {str(names[0])!r}.")
    some = labels[np.sort(np.random.default_rng(seed).permutation(len(labels))[:_PROBED])]
    apart = distance.pairwise(some, some)[~np.eye(len(some), dtype=bool)]  # it may have a direction
    apart = apart[np.isfinite(apart)]
    if len(apart) == 0:
        raise UserError(
            f"{needs}, but none is known among the {len(some)} items checked. Give the distances of more pairs, or "
            "leave 'tune' out."
        )
    if (apart == 0).all():
        raise UserError(f"'tune' needs labels that differ. The labels of all {len(some)} items checked are equal.")
    if apart.max() - apart.min() <= 1e-6 * apart.max():
        raise UserError(
            f"'tune' needs label distances that differ. All distances among the {len(some)} items checked are "
            f"{apart.max():g}, so no item is nearer than others."
        )


def _explain_few(features: Float32, labels: Labels, distance: LabelDistance) -> str:
    """Say what so few items can tell: how well the features do as they are."""
    known = f"'tune' needs at least {FEWEST_ITEMS} items to choose by. Got {len(labels)} instead."
    score = FirstItemsScore(distance.pairwise(labels, labels))
    if not score.tells:
        return f"{known} Give more items."
    found: Iterable[tuple[float, str]] = (
        (score(part.embed(features)), name) for name, part in frozen_maps(features).items()
    )
    value, name = max(found)
    return (
        f"{known} These show only that the {name} score {value:.2f}, where 1 is best and 0 is chance. Give more items."
    )
