"""The evaluation of a model on labelled items, beside chance, the oracle and what needs no training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.embedder import Embedder
from cml.processes.ranks import Ranks
from cml.retrieval.embeddings import EMBEDDING, cut_row, evaluate_by_label_kind
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.form_rankers import embedding_rankers
from cml.retrieval.item_units import groups_of_new_classes
from cml.retrieval.judgement_agreement import with_judgements
from cml.retrieval.random_row import RANDOM, random_ranker
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import Standing, with_verdict
from cml.training.learner import Selection

Pair = tuple[Any, Any]  # the rows of the queries (Q, D) and of the gallery (G, D)
Amend = Callable[[Evaluation, Mapping[str, Pair]], Evaluation]


@dataclass(frozen=True)
class Report:
    """What an evaluation reports beside the embedding.

    Attributes:
        rows: Name of a row to embeddings of queries and gallery that need no training of the model.
        references: Whether to add chance and the oracle.
        dimensions: The embedding is measured cut to its first so many numbers too, a row each.
        unit: Unit of label distances; "" for that of the label distance.
        reported: The factor that converts them, and the unit in which they are reported; None for the same.
        own_rows: Those of ``rows`` that the model is itself.
        losses: The losses of the training, which the verdict looks at.
        advise: Gives further sentences of the verdict.
        judge: Adds how well rows agree with what people judged; None for the labels' own judgements.
        ranks: The processes that share the work; None for this one alone.
        trained_classes: The classes of the training items; None if labels are not classes, or it is not known.
    """

    rows: Mapping[str, Pair] = field(default_factory=dict)
    references: bool = True
    dimensions: Sequence[int] = ()
    unit: str = ""
    reported: tuple[float, str] | None = None
    own_rows: Sequence[str] = ()
    losses: Sequence[float] = ()
    advise: Callable[[Standing], Sequence[str]] | None = None
    judge: Amend | None = None
    ranks: Ranks | None = None
    trained_classes: Sequence[str] | None = None


def evaluate_items(
    model: Embedder,
    queries: LabelledItems,
    gallery: LabelledItems | None,
    options: EvaluateOptions | None,
    report: Report,
) -> Evaluation:
    """Measure how well items find others with near labels.

    Args:
        model: Gives the embedding.
        queries: Q items.
        gallery: The items that are ranked; None lets every query rank all other queries.
        options: What is measured, and how; None for the defaults.
        report: What else is reported.

    Returns:
        A row a ranking, each metric with its 95 % interval, and a verdict.

    Raises:
        UserError: Labels that do not fit each other, or a number of dimensions that the embedding does not have.
    """
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
        **_groups(queries, ranked, report.trained_classes),
    )
    if report.reported is not None:
        evaluation = replace(evaluation, unit=report.unit).in_unit(*report.reported)
    if report.judge is not None:
        evaluation = report.judge(evaluation, rows)
    elif same_items:
        first = {name: both[0] for name, both in rows.items()}
        evaluation = with_judgements(evaluation, queries.distance, queries.labels, first, seed=options.seed)
    return with_verdict(evaluation, EMBEDDING, report.losses, own_rows=report.own_rows, advise=report.advise)


def _groups(queries: LabelledItems, ranked: LabelledItems, trained: Sequence[str] | None) -> dict[str, Sequence[Any]]:
    """What intervals take as drawn in place of items: the groups of the queries, or classes that are new."""
    if ranked is queries and queries.groups is not None:
        return {"groups": queries.groups.tolist()}
    names = queries.distance.class_names
    return groups_of_new_classes(trained, names(queries.labels), names(ranked.labels))


def own_rows(selection: Selection | None) -> tuple[str, ...]:
    """The references that a model is itself, where a learner chose one of them."""
    return () if selection is None else selection.own_rows()


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
