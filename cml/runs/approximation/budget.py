"""What a slow label distance may cost: a number of calls, a share of all pairs, or a time."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from cml.errors import UserError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(%|s|min|h)?")
_RULE = (
    "should be a number of calls such as 200000, a share of all pairs such as 1%, or a time such as 90s, 30min or 2h"
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
            budget: A number of calls, or a text: ``"200000"`` calls, ``"1%"`` of all pairs, ``"90s"``, ``"30min"`` or
                ``"2h"``.

        Returns:
            The budget.

        Raises:
            UserError: It is none of these, or 0.
        """
        if isinstance(budget, cls):
            return budget
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

    def calls_of(self, items: int) -> int:
        """Count the calls that the budget allows.

        Args:
            items: N, the number of items.

        Returns:
            Calls; at most one for each pair, which is also what a budget in time allows.
        """
        pairs = items * (items - 1) // 2
        if self.seconds is not None:
            return pairs
        return min(pairs, self.calls if self.calls is not None else max(1, int((self.share or 0) * pairs)))

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        return f"{self.calls:,} calls" if self.calls is not None else f"{(self.share or 0):.4g} of all pairs"
