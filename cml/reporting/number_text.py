"""Numbers of one column as text, all with the same number of decimals."""

import math
import statistics
from collections.abc import Sequence


class NumberText:
    """One number of decimals for a whole column of figures: about three digits for the middle one.

    Args:
        values: The column.
    """

    def __init__(self, values: Sequence[float]) -> None:
        sizes = [abs(value) for value in values if value]
        middle = statistics.median(sizes) if sizes else 1.0
        self.decimals = min(4, max(0, 2 - math.floor(math.log10(middle))))

    def __call__(self, value: float) -> str:
        """``value`` as text, with a true minus sign."""
        if math.isinf(value):
            return "∞" if value > 0 else "\u2212∞"
        if abs(value) >= 1e6 or 0 < abs(value) < 0.5 * 10**-self.decimals:
            text = f"{value:.2g}"
        else:
            text = f"{value:,.{self.decimals}f}"
        return text.replace("-", "\u2212")
