"""What a sweep found: every trial on held-out items, and what was chosen on the test set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, Interval, interval_text, over_seeds
from cml.runs.trials import Trial


@dataclass(frozen=True)
class Swept(Comparison):
    """What a sweep found: a comparison of what was chosen, or of everything in a study.

    Attributes:
        trials: Every run that was validated.
        study: Whether nothing was chosen.
    """

    trials: Sequence[Trial]
    study: bool

    def held_out(self) -> dict[str, Interval]:
        """What each trial reached: mean rank correlation on the held-out items, with a 95 % interval over its seeds."""
        scores: dict[str, list[float]] = {}
        for one in self.trials:
            scores.setdefault(one.title, []).append(1 - one.loss)
        return {name: over_seeds(found) for name, found in scores.items()}

    def trial_table(self) -> list[list[str]]:
        """Header and rows as text: what was tried, in that order."""
        lines = [["tried", "rank correlation, held out", "seconds", ""]]
        for name, value in self.held_out().items():
            runs = [one for one in self.trials if one.title == name]
            known = [one.seconds for one in runs if one.seconds is not None]
            failed = next((one.failed for one in runs if one.failed), "")
            note = failed or ("chosen" if name in self.trained and not self.study else "")
            seconds = f"{sum(known) / len(known):.3g}" if known else ""
            lines.append([name, "" if failed else interval_text(value), seconds, note])
        return lines

    def notes(self) -> str:
        """What the figures are, and what they say."""
        how = (
            "A study: its figures of the test set are to look at, not to choose by."
            if self.study
            else "Chosen on items held out of the training set; of what was chosen alone the test set was evaluated."
        )
        return f"{how}\n{super().notes()}"

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return f"{text_table.markdown(self.trial_table())}\n\n{super().markdown()}"

    def __str__(self) -> str:
        return f"{text_table.aligned(self.trial_table())}\n\n{super().__str__()}"

    def to_json(self) -> dict[str, Any]:
        """All figures, and every trial."""
        return {**super().to_json(), "study": self.study, "trials": [asdict(one) for one in self.trials]}
