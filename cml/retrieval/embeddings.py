"""Evaluate embeddings, beside chance and the oracle, by the measures that suit their labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.distances import LabelDistance, Labels, as_label_distance
from cml.distances.classes import Classes
from cml.errors import UserError
from cml.option_types import check_options
from cml.retrieval.embedding_ranker import Ranker, as_array
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.evaluation import evaluate
from cml.retrieval.feature_forms import embedding_rankers
from cml.retrieval.judgement_agreement import with_judgements
from cml.retrieval.metrics.metric import largest_k
from cml.retrieval.near_copies import NearLists
from cml.retrieval.reference_rows import RANDOM, random_ranker
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import Standing, with_verdict

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks

EMBEDDING = "embedding"  # the trained model's row
RECALL_KS = (1, 2, 4, 8)  # where the dataset says none: those of CUB-200-2011 and Cars-196
WITHIN_KS = (1, 5, 10, 20)  # those of place recognition


def cut_row(dimension: int) -> str:
    """The row of the trained model's embedding cut to its first numbers."""
    return f"{EMBEDDING}, first {dimension}"


def evaluate_embeddings(
    embeddings: Any,  # noqa: ANN401 - an array or a tensor
    labels: Any,  # noqa: ANN401 - as the label distance takes them
    gallery: Any = None,  # noqa: ANN401
    gallery_labels: Any = None,  # noqa: ANN401
    *,
    label_distance: Any = "euclidean",  # noqa: ANN401 - as ``cml.distances.as_label_distance`` takes it
    options: EvaluateOptions | None = None,
    others: Mapping[str, Any] | None = None,
    own_rows: Collection[str] = (),
    advise: Callable[[Standing], Sequence[str]] | None = None,
    groups: Sequence[Any] | None = None,
    gallery_groups: Sequence[Any] | None = None,
    other_groups: bool = False,
) -> Evaluation:
    """How well embeddings find embeddings with near labels, beside chance and the best possible ranking.

    Ranking is by L2 distance: normalise embeddings first if their loss does, as ``loss.normalize`` says.

    Args:
        embeddings: (Q, D) of the queries, an array or a tensor, also one with a gradient.
        labels: A label for each of them, as they are or encoded.
        gallery: (G, D) embeddings that are ranked; None lets every query rank all other queries.
        gallery_labels: A label for each of them.
        label_distance: A string, a ``LabelDistance``, a function of two labels or a matrix, as ``cml.fit`` takes it.
        options: What is measured, and how; the defaults when not given.
        others: Further embeddings of the same items, each a row of the table: name to a pair of arrays, those of the
            queries and those of the gallery; without a gallery also to one array.
        own_rows: Those of ``others`` that the embeddings are themselves, with which the verdict does not compare them.
        advise: Gives further sentences of the verdict, see ``cml.retrieval.verdict.with_verdict``.
        groups: The group of each query, such as a patient, a scene or a class, where groups are drawn and not items:
            intervals and verdict then count groups. None where items are drawn one by one.
        gallery_groups: The group of each gallery item. A group on both sides is drawn as a whole.
        other_groups: Whether a query ranks the items of other groups alone, as it should where those of its own are
            near copies: other frames of the same video.

    Returns:
        The rows "embedding", those of ``others``, "random" and "oracle", each metric with its 95 % interval over
        items, which count as queries and in the gallery, and a verdict.

    Raises:
        UserError: the numbers of embeddings and labels differ, a label does not fit the label distance, or ``others``
            lacks the embeddings of the gallery.

    Example:
        >>> import numpy as np
        >>> from cml.retrieval import evaluate_embeddings
        >>> ages = np.arange(60.0)
        >>> found = evaluate_embeddings(np.stack([ages, ages % 7], axis=1), ages)
        >>> list(found.rows), round(found.rows["oracle"]["score@10"].mean, 6)
        (['embedding', 'random', 'oracle'], 1.0)
        >>> found.verdict.startswith("Verdict: better than random")
        True
    """
    same_items, distance = gallery is None, as_label_distance(label_distance)
    if same_items != (gallery_labels is None):
        raise UserError("A gallery needs labels, and its labels need a gallery. Got one without the other instead.")
    query = as_array(embeddings)
    gallery = query if same_items else as_array(gallery)
    query_labels = distance.encode(labels)
    gallery_labels = query_labels if same_items else distance.encode(gallery_labels)
    for name, vectors, item_labels in (("query", query, query_labels), ("gallery", gallery, gallery_labels)):
        if len(vectors) != len(item_labels):
            raise UserError(
                f"Each {name} needs a label. Got {len(vectors)} embeddings and {len(item_labels)} labels instead."
            )
    options = check_options(options or EvaluateOptions())
    pairs = {name: _as_pair(name, given, has_gallery=not same_items) for name, given in (others or {}).items()}
    pairs = {EMBEDDING: (query, gallery), **pairs}
    rankers = embedding_rankers(pairs)
    rankers[RANDOM] = random_ranker(len(query), len(gallery), options.seed)
    evaluation = evaluate_by_label_kind(
        rankers,
        distance,
        query_labels,
        gallery_labels,
        options,
        same_items=same_items,
        groups=groups,
        gallery_groups=gallery_groups,
        other_groups=other_groups,
    )
    if same_items:
        rows = {name: pair[0] for name, pair in pairs.items()}
        evaluation = with_judgements(evaluation, distance, query_labels, rows, seed=options.seed)
    evaluation = with_verdict(evaluation, EMBEDDING, own_rows=own_rows, advise=advise)
    if other_groups or distance.class_names(query_labels) is not None:
        return evaluation
    lists = NearLists.search(query, None if same_items else gallery)
    if lists is None:
        return evaluation
    mend = "groups=... and other_groups=True"
    copies = lists.name_chance_behind_copies(distance, query_labels, gallery_labels, mend)
    return evaluation.extend_verdict(copies, is_caution=True)


def _as_pair(name: str, given: Any, *, has_gallery: bool) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    """The embeddings of the queries and of the gallery, which are the same where there is no gallery."""
    if isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 2:
        return given[0], given[1]
    if has_gallery:
        raise UserError(
            f"'others' maps {name!r} to the embeddings of the queries and of the gallery: give a pair of arrays. Got "
            f"{type(given).__name__} instead."
        )
    return given, given


def evaluate_by_label_kind(
    rankers: Mapping[str, Ranker],  # ranker name -> ranker
    distance: LabelDistance,
    query_labels: Labels,  # Q labels, encoded by ``distance``
    gallery_labels: Labels,  # G labels, encoded by ``distance``
    options: EvaluateOptions,
    *,
    same_items: bool,
    oracle: bool = True,
    ranks: Ranks | None = None,  # the processes that share the work; None for this one alone
    groups: Sequence[Any] | None = None,  # (Q,) the group of each query, where groups are drawn and not items
    gallery_groups: Sequence[Any] | None = None,  # (G,) that of each gallery item
    other_groups: bool = False,  # whether a query ranks the items of other groups alone
) -> Evaluation:  # a row for each ranker, and one for the oracle
    """Evaluate rankers by the metrics that suit the kind of label, with a progress bar.

    Class labels have no order beyond "same class": they are measured by Recall@K, MAP@R and R-precision alone.
    """
    gallery = len(gallery_labels) - same_items
    recall_ks = usable_recall_ks(distance, options.recall_ks, gallery, options.recall_within)
    options = replace(options, recall_ks=recall_ks)
    if isinstance(distance, Classes):
        options = replace(options, ndcg_ks=(), hit_ks=(), whole_ranking=False)
    silent = ranks is not None and not ranks.first
    with ProgressBar(total=len(query_labels), desc="evaluate", unit="query", disable=silent, delay=BAR_DELAY) as bar:
        return evaluate(
            rankers,
            distance,
            query_labels,
            gallery_labels,
            options,
            same_items=same_items,
            oracle=oracle,
            progress=bar.update,
            ranks=ranks,
            groups=groups,
            gallery_groups=gallery_groups,
            other_groups=other_groups,
        )


def usable_recall_ks(distance: LabelDistance, ks: Sequence[int], gallery: int, within: float = 0.0) -> tuple[int, ...]:
    """Choose the K of Recall@K that can distinguish rankings of a gallery."""
    classes = isinstance(distance, Classes)
    if classes and within:
        raise UserError(f"For Recall@K of classes an item must have the query's: leave recall_within={within} out.")
    if not classes and not within:
        return ()
    wanted = ks or (RECALL_KS if classes else WITHIN_KS)
    return tuple(k for k in wanted if k <= largest_k(gallery)) or (1,)
