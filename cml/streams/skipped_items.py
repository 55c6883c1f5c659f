"""Items of a stream that were left out because they cannot be read: how many there are, and why."""

from collections.abc import Iterable

from cml.console.messages import say_warning

_SHOWN = 3  # reasons that are said when they occur


class SkippedItems:
    """Counts the items that were left out, and says so."""

    def __init__(self, *, is_shown: bool = True) -> None:
        self.count = 0
        self._is_shown = is_shown
        self._said = 0

    def note(
        self,
        faults: Iterable[str],  # of each item what is wrong with it
    ) -> None:
        """Count items; the first ones are said with their reasons."""
        for fault in faults:
            self.count += 1
            if self._is_shown and self.count <= _SHOWN:
                say_warning(f"skipped: {fault}")

    def end_pass(self, number: int) -> None:
        """Say how many items were left out so far, where there are more than those that were said."""
        if self._is_shown and self.count > max(self._said, _SHOWN):
            say_warning(f"{self.count:,} items of the stream were skipped up to the end of pass {number}.")
            self._said = self.count
