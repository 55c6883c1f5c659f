"""Batches of queries with documents that were judged for them: for label distances that have a direction."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.distances.sparse_distances import expand_runs
from cml.errors import UserError
from cml.sampling.draws import batch_generator, epoch_generator, refuse_weights
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, check_setting, draw_others
from cml.sampling.training_labels import TrainingLabels


@dataclass(frozen=True)
class QueriesSampler(Sampler):
    """A batch is some queries, the anchors, with documents that were judged for each of them, and others.

    For label distances from queries to documents (``cml.Grades``). Of a query with more judged documents than it gets
    places, each grade gets as many as another one, so that few good documents are not lost among many bad ones. Places
    that are left get random other documents where those have a label distance too. An epoch takes every query once; its
    last batch is filled up with others.

    Attributes:
        batch_size: B, items per batch at most: queries and documents together.
        documents: Judged documents of a query, at most. With B = 160 and 15 documents there are 10 queries.
    """

    batch_size: int = 160
    documents: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_setting("documents", self.documents, self.batch_size - 1)

    @property
    def counted_anchors(self) -> int:
        """Queries of a batch."""
        return max(1, self.batch_size // (1 + self.documents))

    def sampler_state(self, labels: TrainingLabels) -> NDArray[Any]:  # (P + O, 3) int64
        """List query, document and grade of the judged pairs, by the query; then -1, item, 0 for each further item.

        Grades are numbered from the best. Further items are those that are no query, where all may be compared.
        """
        known = labels.known_pairs()
        grades = np.unique(known.distances, return_inverse=True)[1]
        pairs = np.stack([known.first, known.second, grades], axis=1).astype(np.int64)
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        if labels.distance.is_partial:
            return pairs
        others = np.setdiff1d(np.arange(len(labels)), pairs[:, 0])
        further = np.stack([np.full(len(others), -1), others, np.zeros(len(others), np.int64)], axis=1)
        return np.concatenate([pairs, further])

    def check_count(
        self,
        items: int,  # N, the number of queries and documents
    ) -> None:
        """Check that there are enough items for a query and a document."""
        if items < 2:
            raise UserError(f"Graded search takes a query and a document. Got {items} training items instead.")

    def batch(
        self,
        state: NDArray[Any],
        *,
        seed: int,
        step: int,
        weights: Float64 | None = None,  # None: every query comes as often
    ) -> Batch:
        """Compose the batch of a step."""
        refuse_weights(weights, "queries")
        self.check_state(state, 2, rows_are_items=False)
        first = int((state[:, 0] >= 0).sum())
        pairs, further = state[:first], state[first:, 1]
        starts = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1))
        queries, counts = pairs[starts, 0], np.diff(np.append(starts, len(pairs)))
        size = min(self.counted_anchors, len(queries))
        epoch, index = divmod(step, -(-len(queries) // size))
        rng = batch_generator(seed, epoch, index)
        order = epoch_generator(seed, epoch).permutation(len(queries))
        chosen = order[index * size : (index + 1) * size]
        chosen = np.concatenate([chosen, draw_others(chosen, size - len(chosen), len(queries), rng)])
        owners, entries = expand_runs(starts[chosen], counts[chosen])
        kept = _keep_some_of_each_grade(owners, pairs[entries, 2], self.documents, rng)
        documents = np.setdiff1d(pairs[entries[kept], 1], queries[chosen])
        places = np.flatnonzero(np.isin(further, documents)) if len(further) else documents
        room = min(self.batch_size - size - len(documents), len(further) - len(places))
        if room > 0:
            documents = np.concatenate([documents, further[draw_others(places, room, len(further), rng)]])
        return Batch(np.concatenate([queries[chosen], documents]), size)


def _keep_some_of_each_grade(owners: Int64, grades: Int64, most: int, rng: np.random.Generator) -> Int64:
    """Choose at most some of the (E,) documents of each query: as many of each grade, at random within it."""
    chance = rng.random(len(owners))
    by_grade = np.lexsort((chance, grades, owners))
    begins = np.flatnonzero(
        np.diff(owners[by_grade], prepend=-1).astype(bool) | np.diff(grades[by_grade], prepend=-1).astype(bool)
    )
    turns = np.empty(len(owners), np.int64)  # which one of its query and grade each is
    turns[by_grade] = np.arange(len(owners)) - np.repeat(begins, np.diff(np.append(begins, len(owners))))
    by_turn = np.lexsort((chance, turns, owners))
    first = np.searchsorted(owners[by_turn], owners[by_turn])
    return by_turn[np.arange(len(owners)) - first < most]
