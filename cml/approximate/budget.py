"""What a slow label distance may cost: a number of calls, a share of all pairs, or a time."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from cml.errors import UserError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LARGEST_PERCENT = 100
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(%|s|min|h)?")
_RULE = (
    "should be a number of calls such as 200000, a share of all pairs such as 1% (0.01 in Python), or a time such as "
    "90s, 30min or 2h"
)


@dataclass(frozen=True)
class Budget:
    """What a slow label distance may cost; one of the three is given. Made by ``parse``.

    Attributes:
        calls: Calls of the distance.
        share: Share of all pairs, 1 for all.
        seconds: Time for everything together.

    Example:
        >>> Budget.parse("1%").calls_of(1000)
        4995
        >>> Budget.parse("30min").seconds
        1800.0
    """

    calls: int | None = None
    share: float | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, budget: object) -> Self:
        """Read a budget.

        Args:
            budget: A whole number of calls; a float above 0 and below 1, a share of all pairs, such as 0.01; or a text:
                ``"200000"`` calls, ``"1%"`` of all pairs, ``"90s"``, ``"30min"`` or ``"2h"``.

        Returns:
            The budget.

        Raises:
            UserError: It is none of these, or 0. A float of 1 and more could mean a share or calls.
        """
        if isinstance(budget, cls):
            return budget
        if isinstance(budget, float | np.floating):
            return cls._parse_share(float(budget))
        is_number = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
        match = _FORM.fullmatch(str(budget).strip()) if is_number or isinstance(budget, str) else None
        if match is None:
            raise UserError(f"The budget {_RULE}. Got {budget!r} instead.")
        amount, unit = float(match[1]), match[2]
        if amount == 0:
            raise UserError(f"The budget is 0: no distance can be computed. It {_RULE}.")
        if unit is None and not match[1].isdecimal():
            raise UserError(f"The budget {_RULE}. Got {budget!r} instead, which is no whole number of calls.")
        if unit is None:
            return cls(calls=int(match[1]))
        return cls(share=amount / 100) if unit == "%" else cls(seconds=amount * _UNITS[unit])

    @classmethod
    def _parse_share(cls, share: float) -> Self:
        """A share of all pairs, given as a float."""
        if 0 < share < 1:
            return cls(share=share)
        if share == 0:
            raise UserError(f"The budget is 0: no distance can be computed. It {_RULE}.")
        mends = []
        if share >= 1 and share.is_integer():
            mends.append(f"{share:.0f} for calls")
        if 1 < share < _LARGEST_PERCENT:
            mends.append(f"'{share:g}%' or {share / 100:g} for a share of all pairs")
        if share == 1:
            mends.append("'100%' for all pairs")
        mend = f": write {', '.join(mends)}" if mends else ""
        raise UserError(f"The budget {_RULE}. Got {share!r} instead{mend}.")

    def calls_of(self, items: int) -> int:
        """Count the calls that the budget allows.

        Args:
            items: N, the number of items.

        Returns:
            Calls; at most one for each pair, which is also what a budget in time allows.

        Raises:
            UserError: It is a share of less than one pair.
        """
        pairs = items * (items - 1) // 2
        if self.seconds is not None:
            return pairs
        calls = self.calls if self.calls is not None else int((self.share or 0) * pairs)
        if not calls:
            raise UserError(
                f"A budget of {100 * (self.share or 0):g} % of all {pairs:,} pairs is less than one call of the label "
                "distance. Give a larger share, or a number of calls."
            )
        return min(pairs, calls)

    def describe_shortage(self, items: int, k: int, calls: float) -> str:
        """Say that a budget is too small for lists of k neighbours, each of which takes half a call at least.

        Args:
            items: N, the number of items.
            k: Neighbours in a list.
            calls: The calls that it allows, about as many of a budget in time.

        Returns:
            A sentence or two; "" where it is large enough.
        """
        needed = -(-items * k // 2)
        if calls >= needed:
            return ""
        about = f", about {calls:,.0f} calls," if self.seconds is not None else ""
        lists = "most lists will be empty" if 2 * calls < items else "lists will be short"
        return (
            f"A budget of {self}{about} is too small for {k} neighbours of each of {items:,} items, which take "
            f"{needed:,} calls at least: {lists}. Raise the budget, or ask for fewer neighbours."
        )

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        return f"{self.calls:,} calls" if self.calls is not None else f"{(self.share or 0):.4g} of all pairs"
