"""Verdicts in a few sentences: whether a method is better than its references, and whether the data can show it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cml.retrieval.feature_forms import VECTOR_ROWS, find_best_form
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.mean_interval import item_intervals
from cml.retrieval.metric_result import GIVEN_GALLERY, MetricResult
from cml.retrieval.metrics.metric import MetricInfo
from cml.retrieval.reference_rows import RANDOM
from cml.retrieval.results import Evaluation

FEW_QUERIES = 100  # the interval of a mean over them is +- 0.2 standard deviations; fewer show only large differences
FEW_GROUPS = 20  # the interval of a mean over them is +- 0.5 standard deviations of groups
NEAR_ORACLE = 0.99  # of the way from chance to the oracle: more items or another head can add 1 % of it at most
NO_DIFFERENCE = "no clear difference from"
_FALLEN = 0.1  # a training loss below this share of its first values: the training set was memorised or fitted well


@dataclass(frozen=True)
class Standing:
    """How a trained embedding stands beside its references."""

    # whether it is better than each of them, by the names of their rows: the 95 % interval of the paired gain is above
    # 0
    is_better: Mapping[str, bool]
    is_overfitted: bool  # whether it is not better than all of them although its training loss fell to a tenth
    # whether it goes 99 % of the way from chance to the oracle, so that nothing would help much
    is_near_oracle: bool = False

    @property
    def is_good(self) -> bool:
        """Whether it is better than all of them, or near the oracle, so that it needs no advice."""
        return self.is_near_oracle or all(self.is_better.values())


def with_verdict(
    evaluation: Evaluation,
    row: str,
    losses: Sequence[float] = (),
    *,
    own_rows: Collection[str] = (),
    advise: Callable[[Standing], Sequence[str]] | None = None,
) -> Evaluation:
    """Return an evaluation with a verdict on one of its rows."""
    name = main_metric(list(evaluation.rows[row]))
    ours = evaluation.rows[row][name]
    is_better: dict[str, bool] = {}
    sentences: dict[str, list[str]] = {"worse than": [], NO_DIFFERENCE: [], "better than": []}
    named: dict[str, list[str]] = {relation: [] for relation in sentences}  # the headline's
    gains: dict[str, MetricResult] = {}
    best_form = find_best_form(evaluation.rows, name)
    other_forms = {form for form in VECTOR_ROWS if form in evaluation.rows and form != best_form}
    left_out = {row, "oracle", *own_rows, *other_forms}
    for other, metrics in evaluation.rows.items():
        if other in left_out or other.startswith(f"{row}, "):  # cut to its first numbers
            continue
        gain, given = paired_gain(ours, metrics[name])
        low, high = _gain_interval(gain, ours, metrics[name])
        over = "queries" if given else ours.over
        gains[other] = MetricResult(name, np.empty(0), float(gain.mean), low, high, 0, ours.info, over)
        against = f"{ours.mean:.3g} against {metrics[name].mean:.3g} in {name}"
        relation = "better than" if low > 0 else "worse than" if high < 0 else NO_DIFFERENCE
        is_better[other] = low > 0
        named[relation].append(f"{other} ({metrics[name].mean:.3g})")
        best_of = f", the best of {1 + len(other_forms)} forms" if other_forms and other == best_form else ""
        sentences[relation].append(
            f"{relation} {other}{best_of} ({against}; 95 % interval of the paired gain {low:.3g} to {high:.3g}{given})"
        )
    if not is_better:
        return evaluation
    first, last = (np.mean(losses[:10]), np.mean(losses[-10:])) if losses else (1.0, 1.0)
    is_near_oracle = _is_near_oracle(evaluation, row, name)
    is_overfitted = bool(last < _FALLEN * first) and not all(is_better.values()) and not is_near_oracle
    parts = [sentence for relation in sentences for sentence in sentences[relation]]
    cautions = []
    if is_overfitted:
        cautions.append(f"overfitted: the training loss fell from {first:.3g} to {last:.3g}")
        parts.insert(0, cautions[0])
    if is_near_oracle and not all(is_better.values()):
        oracle = evaluation.rows["oracle"][name].mean
        cautions.append(
            f"nearly as good as the oracle ({ours.mean:.3g} against {oracle:.3g}), so little is left to gain"
        )
        parts.append(cautions[-1])
    counted = _count_few(evaluation.queries, ours)
    if counted:
        is_shown = not sentences[NO_DIFFERENCE]
        cautions.append(f"{counted} are {'a small sample' if is_shown else 'too few to show small differences'}")
        parts.append(cautions[-1])
        if is_shown:
            parts.append("the size of the difference is uncertain")
    if evaluation.ceiling is not None:
        parts.append(describe_ceiling(evaluation, row))
    advice = [] if advise is None else advise(Standing(is_better, is_overfitted, is_near_oracle))
    standing = "; ".join(f"{relation} {' and '.join(names)}" for relation, names in named.items() if names)
    return replace(
        evaluation,
        gains=gains,
        verdict=" ".join([f"Verdict: {'. '.join([parts[0], *map(_capitalize, parts[1:])])}.", *advice]),
        headline="\n".join(
            [
                f"Verdict: {standing}; {name} is {ours.mean:.3g}.",
                *(f"{_capitalize(caution)}." for caution in cautions[:1]),
                *(sentence for sentence in advice[-1:] if sentence.startswith("Next: ")),
            ]
        ),
    )


def _count_few(queries: int, result: MetricResult) -> str:
    """Count the queries, or their groups where these count, if they are few; "" if they are many."""
    groups = int(result.influences.known) if result.over == "groups" and result.influences is not None else None
    if groups is not None and groups < FEW_GROUPS:
        return f"{groups} groups of queries"
    return f"{queries} queries" if queries < FEW_QUERIES else ""


def _capitalize(sentence: str) -> str:
    return f"{sentence[0].upper()}{sentence[1:]}"


def paired_gain(ours: MetricResult, theirs: MetricResult) -> tuple[ItemInfluences, str]:
    """How much better one row is than another, and ", given this gallery" where its items are not counted.

    Influences of items are there unless a metric has none, or a file did not keep them; then queries are paired.
    """
    sign = 1 if ours.higher_is_better else -1
    gain = ours.minus(theirs)
    if gain is not None:
        return gain * sign, ""
    return ItemInfluences.of_queries((ours.per_query - theirs.per_query) * sign), GIVEN_GALLERY


def _gain_interval(gain: ItemInfluences, ours: MetricResult, theirs: MetricResult) -> tuple[float, float]:
    """The 95 % interval of a gain, without gains that no two values of the metric differ by.

    A label distance has no largest value: the upper ends of the rows' own intervals stand for it.
    """
    info = ours.info
    highest = info.highest if math.isfinite(info.highest) else max(ours.high, theirs.high)
    reach = highest - info.lowest
    bounds = MetricInfo(lowest=-reach, highest=reach) if math.isfinite(reach) else MetricInfo()
    low, high = bounds.clip_intervals(gain.mean, item_intervals(gain)).tolist()
    return low, high


def describe_ceiling(evaluation: Evaluation, row: str) -> str:  # a sentence without its full stop
    """Say how one row agrees with judgements that were repeated, beside how well it can agree with these at most."""
    name = next(name for name in ("repeated_agreement", "repeated_spearman") if name in evaluation.rows[row])
    ours, questions = evaluation.rows[row][name].mean, evaluation.repeated_questions
    kind = "triplets" if name == "repeated_agreement" else "pairs"
    return (
        f"on the {questions} {kind} that were judged several times, {name} is {ours:.2f}; "
        f"{evaluation.ceiling:.2f} is the highest value that the disagreement among these judgements allows"
    )


def _is_near_oracle(evaluation: Evaluation, row: str, name: str) -> bool:
    """Whether a row is almost as far above chance as the oracle; False where one of these was not measured."""
    rows = evaluation.rows
    if not all(name in rows.get(other, {}) for other in (RANDOM, "oracle")):
        return False
    chance, best = (rows[other][name].mean for other in (RANDOM, "oracle"))
    reach = abs(chance - best)  # 0 where every ranking is as good
    return bool(reach > 0 and abs(rows[row][name].mean - best) <= (1 - NEAR_ORACLE) * reach)


def main_metric(names: Sequence[str]) -> str:
    """The metric that verdicts look at: MAP@R of classes, the agreement with triplets, else label_distance at K."""
    distances = [name for name in names if name.startswith("label_distance@")]
    first = ("map@r", "triplet_agreement", "label_distance@10")
    return next((name for name in first if name in names), (distances or list(names))[-1])


def size_verdict(
    queries: int,
    others: int,
    groups: int | None = None,  # that the queries come from; None where the items are drawn one by one
    mend: str = "",  # a sentence that says how to get more of them
) -> str:  # the verdict; "" if they are enough
    """Say that there are too few queries, or groups of them, to show small differences."""
    if others < 1:
        searched = "1 query has" if queries == 1 else f"{queries} queries have"
        return f"Verdict: {searched} no items to search, so nothing can be measured. {mend}".rstrip()
    if groups is not None and groups < FEW_GROUPS:
        counted, rule, drawn = (
            f"{queries} queries of {groups} group{'s' * (groups != 1)}",
            f"{FEW_GROUPS} groups",
            groups,
        )
    elif queries < FEW_QUERIES:
        counted, rule, drawn = f"{queries} queries, each among {others} items,", f"{FEW_QUERIES}", queries
    else:
        return ""
    return (
        f"Verdict: {counted} are fewer than {rule} and can only show large differences: the 95 % interval of a mean "
        f"over them is ± {1.96 / math.sqrt(drawn):.1f} standard deviations. {mend}".rstrip()
    )
