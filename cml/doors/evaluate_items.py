"""The evaluation of a model on labelled items, beside chance, the oracle and what needs no training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cml.array_types import Int64
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.retrieval.embedding_ranker import Rows
from cml.retrieval.embeddings import EMBEDDING, cut_row, evaluate_by_label_kind
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.feature_forms import STANDARDISED, VECTOR_ROWS, NormalizedRows, StandardizedRows, embedding_rankers
from cml.retrieval.item_units import groups_hold_classes, groups_of_new_classes
from cml.retrieval.judgement_agreement import with_judgements
from cml.retrieval.near_copies import NearLists, describe_groups, describe_larger_groups
from cml.retrieval.near_in_order import name_copies_by_features, name_copies_in_order
from cml.retrieval.reference_rows import RANDOM, random_ranker
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import Standing, with_verdict
from cml.training.learner import Selection

Pair = tuple[Any, Any]  # the rows of the queries (Q, D) and of the gallery (G, D)
Amend = Callable[[Evaluation, Mapping[str, Pair]], Evaluation]


@dataclass(frozen=True)
class Report:
    """What an evaluation reports beside the embedding."""

    # name of a row to embeddings of queries and gallery that need no training of the model
    rows: Mapping[str, Pair] = field(default_factory=dict)
    references: bool = True  # whether to add chance and the oracle
    dimensions: Sequence[int] = ()  # the embedding is measured cut to its first so many numbers too, a row each
    unit: str = ""  # unit of label distances; "" for that of the label distance
    # the factor that converts them, and the unit in which they are reported; None for the same
    reported: tuple[float, str] | None = None
    own_rows: Sequence[str] = ()  # those of ``rows`` that the model is itself
    losses: Sequence[float] = ()  # the losses of the training, which the verdict looks at
    advise: Callable[[Standing], Sequence[str]] | None = None  # gives further sentences of the verdict
    judge: Amend | None = None  # adds how well rows agree with what people judged; None for the labels' own judgements
    ranks: Ranks | None = None  # the processes that share the work; None for this one alone
    # the classes of the training items; None if labels are not classes, or it is not known
    trained_classes: Sequence[str] | None = None
    # (Q,) and (G,) places of queries and gallery in one file; None where they have no common order
    places: tuple[Int64, Int64] | None = None
    groups_option: str = "groups=..."  # that gives groups


def evaluate_items(
    model: Embedder,
    queries: LabelledItems,  # Q items
    gallery: LabelledItems | None,  # the items that are ranked; None lets every query rank all other queries
    options: EvaluateOptions | None,  # what is measured, and how; None for the defaults
    report: Report,
) -> Evaluation:  # a row a ranking, each metric with its 95 % interval, and a verdict
    """Measure how well items find others with near labels."""
    options, same_items = options or EvaluateOptions(), gallery is None
    ranked = queries if gallery is None else gallery
    embedded = model.embed(queries.inputs, bar="embed")
    pair = embedded, embedded if gallery is None else model.embed(gallery.inputs, bar="embed")
    rows: dict[str, Pair] = {EMBEDDING: pair, **_cut(pair, report.dimensions), **report.rows}
    rankers = embedding_rankers(rows)
    if report.references:
        rankers[RANDOM] = random_ranker(len(queries), len(ranked), options.seed)
    evaluation = evaluate_by_label_kind(
        rankers,
        queries.distance,
        queries.labels,
        ranked.labels,
        options,
        same_items=same_items,
        oracle=report.references,
        ranks=report.ranks,
        other_groups=_have_others(queries, ranked),
        **_groups(queries, ranked, report.trained_classes),
    )
    if report.reported is not None:
        evaluation = replace(evaluation, unit=report.unit).in_unit(*report.reported)
    if report.judge is not None:
        evaluation = report.judge(evaluation, rows)
    elif same_items:
        first = {name: both[0] for name, both in rows.items()}
        evaluation = with_judgements(evaluation, queries.distance, queries.labels, first, seed=options.seed)
    evaluation = with_verdict(evaluation, EMBEDDING, report.losses, own_rows=report.own_rows, advise=report.advise)
    reference = report.rows.get(model.reference_name)
    copies = _name_copies(rows, queries, gallery, report, reference)
    return evaluation.extend_verdict(copies, is_caution=True)


def _name_copies(
    rows: Mapping[str, Pair],
    queries: LabelledItems,
    gallery: LabelledItems | None,
    report: Report,
    reference: Pair | None,  # features that do not depend on labels, if there are any
) -> str:
    """A sentence of the verdict where most queries have near copies in the gallery; "" where they have none.

    Items of one class may be as near to each other as copies.
    """
    if queries.distance.class_names(queries.labels) is not None:
        return ""
    if queries.groups is not None:
        return _name_copies_in_groups(queries, gallery, report, reference)
    has_inputs = STANDARDISED in rows  # vectors, which lie near each other whatever their labels
    both = rows[STANDARDISED if has_inputs else EMBEDDING]
    lists, said = NearLists.search(both[0], None if gallery is None else both[1]), ""
    if lists is not None:
        said = lists.name_copies(report.groups_option, gaps=has_inputs)
    if lists is not None and not (said or has_inputs):
        labels = (queries if gallery is None else gallery).labels
        said = lists.name_chance_behind_copies(queries.distance, queries.labels, labels, report.groups_option)
    if said:
        return said
    found = name_copies_in_order(queries.inputs, None if gallery is None else gallery.inputs, report.places)
    if reference is not None and not found:
        found = name_copies_by_features(reference[0], None if gallery is None else reference[1], report.places)
    return f"But {found}. If these are near copies, give {describe_groups(report.groups_option)}" if found else ""


def _name_copies_in_groups(
    queries: LabelledItems, gallery: LabelledItems | None, report: Report, reference: Pair | None
) -> str:
    """The same of near copies in the next group, which a film has that is cut into groups."""
    groups, others = queries.groups, None
    if gallery is not None:
        if groups is None or gallery.groups is None:
            return ""
        groups, others = np.concatenate([groups, gallery.groups]), gallery.inputs
    found = name_copies_in_order(queries.inputs, others, report.places, groups)
    if reference is not None and not found:
        found = name_copies_by_features(reference[0], None if gallery is None else reference[1], report.places, groups)
    mend = describe_larger_groups(report.groups_option)
    return f"But {found}. If these are near copies, give {mend}" if found else ""


def _groups(queries: LabelledItems, ranked: LabelledItems, trained: Sequence[str] | None) -> dict[str, Sequence[Any]]:
    """What intervals take as drawn in place of items: the groups of the queries, or classes that are new."""
    if queries.groups is not None:
        groups = {"groups": queries.groups.tolist()}
        has_more = ranked is not queries and ranked.groups is not None
        return groups | ({"gallery_groups": ranked.groups.tolist()} if has_more and ranked.groups is not None else {})
    names = queries.distance.class_names
    return groups_of_new_classes(trained, names(queries.labels), names(ranked.labels))


def _have_others(queries: LabelledItems, ranked: LabelledItems) -> bool:
    """Whether queries rank the items of other groups alone: not where groups are classes, which are in one group."""
    if queries.groups is None:
        return False
    sides = (queries,) if ranked.groups is None else (queries, ranked)
    names = [side.distance.class_names(side.labels) for side in sides]
    if any(of_side is None for of_side in names):
        return True
    groups = np.concatenate([side.groups for side in sides if side.groups is not None])
    return not groups_hold_classes(groups, np.concatenate([of_side for of_side in names if of_side is not None]))


def own_rows(selection: Selection | None) -> tuple[str, ...]:
    """The references that a model is itself, where a learner chose one of them."""
    return () if selection is None else selection.own_rows()


def describe_selection(
    selection: Selection | None,
    trained: Sequence[str] | None,  # the classes of the training items; None if labels are not classes, or not known
    queries: LabelledItems,
) -> str:
    """What the verdict says of a learner's choice: which reference the model is, or why the choice may mislead."""
    if selection is None:
        return ""
    names = queries.distance.class_names(queries.labels)
    are_new = trained is not None and names is not None and set(trained).isdisjoint(names.tolist())
    return selection.describe_reference() or (selection.describe_new_classes() if are_new else "")


def _cut(pair: Pair, dimensions: Sequence[int]) -> dict[str, Pair]:
    """The embeddings cut to their first numbers, by the name of the row; all of them are the row "embedding"."""
    query, gallery = pair
    size = query.shape[1]
    for dimension in dimensions:
        if not 1 <= dimension <= size:
            raise UserError(f"'dimensions' must be in 1..{size}, those of the embedding. Got {dimension} instead.")
    return {
        cut_row(dimension): (query[:, :dimension], gallery[:, :dimension])
        for dimension in dimensions
        if dimension < size
    }


def compute_vector_forms(
    model: EmbeddingModel,
    queries: Any,  # noqa: ANN401 - as ``cml.fit`` takes them
    gallery: Any = None,  # noqa: ANN401
) -> dict[str, tuple[Rows, Rows]]:
    """Compute vectors in each form: as they are, L2-normalised, and standardised.

    They are the forms that ``tune`` compares heads with. A missing number becomes the mean of its column.
    """
    mean, std = (values.cpu().numpy() for values in (model.mean, model.std))

    def compute(inputs: Any) -> tuple[Rows, Rows, Rows]:  # noqa: ANN401
        filled = model.fill_missing_in_parts(inputs)
        return filled, NormalizedRows(filled), StandardizedRows(filled, mean, std)

    of_queries = compute(queries)
    of_gallery = of_queries if gallery is None else compute(gallery)
    return dict(zip(VECTOR_ROWS, zip(of_queries, of_gallery, strict=True), strict=True))
