"""The questions that judged triplets answer: "which of two items is nearer to the anchor"."""

from typing import NamedTuple

import numpy as np

from cml.array_types import Bools, Float64, Int64


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
