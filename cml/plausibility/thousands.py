"""Thousands: numbers such as 1.500 that may have meant 1500 where a table was read."""

from collections.abc import Mapping
from typing import Any

from cml.plausibility.finding import Finding


def find_thousands(
    # the details of dataset.json, in which ``grouped_numbers`` lists numbers as they were written
    details: Mapping[str, Any],
    total: int,
) -> list[Finding]:
    """Find what was noted of the numbers of the table when it was read."""
    written = details.get("grouped_numbers")
    if not isinstance(written, list) or not written:
        return []
    what = "all numbers are whole or have exactly three decimals, in a table of cells separated by semicolons"
    mend = "If a point separates thousands, prepare the table with --decimal , --thousands ."
    return [Finding("thousands", what, mend, total, total, [str(text) for text in written[:4]])]
