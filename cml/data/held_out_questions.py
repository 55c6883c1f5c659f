"""Which questions of a table of judgements are held out: whole questions, so that no answer to one is on both sides."""

import numpy as np

from cml.array_types import Bools
from cml.errors import UserError

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
