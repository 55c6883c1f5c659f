"""How numbers are written in a user's table: the decimal mark and the separator of thousands."""

import re
from dataclasses import dataclass
from typing import Literal

from cml.errors import UserError

Decimal = Literal[".", ","]
Thousands = Literal["", ",", ".", " ", "'"]


@dataclass(frozen=True)
class NumberFormat:
    """The marks that a table's numbers are written with.

    Example:
        >>> NumberFormat(decimal=",", thousands=".").to_plain("1.200,5")
        '1200.5'
    """

    decimal: Decimal = "."  # the decimal mark
    thousands: Thousands = ""  # the separator of groups of three digits; "" for none

    def __post_init__(self) -> None:
        if self.decimal == self.thousands:
            raise UserError(f"'decimal' and 'thousands' should differ. Got {self.decimal!r} for both.")

    def to_plain(self, text: str) -> str | None:
        """Write a number with a decimal point and without separators.

        Returns the number as ``float`` reads it; None if a separator stands anywhere but before groups of three digits.
        """
        if self.decimal == "." and not self.thousands:
            return text
        whole, mark, rest = text.strip().partition(self.decimal)
        if self.thousands and self.thousands in whole:
            if re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(self.thousands)}\d{{3}})+", whole) is None:
                return None
            whole = whole.replace(self.thousands, "")
        if self.decimal == "," and "." in whole + rest:
            return None  # a point that neither option explains
        return f"{whole}.{rest}" if mark else whole


PLAIN = NumberFormat()
