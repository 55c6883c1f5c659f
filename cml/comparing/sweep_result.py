"""The result of a sweep: a comparison of what was chosen, and every trial on held-out items."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cml.comparing.trials import Trial
from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, Interval, interval_text, over_seeds

HELD_OUT = "rank correlation, held out"


@dataclass(frozen=True)
class SweepResult(Comparison):
    """A comparison of what a sweep chose, or of every setting in a study, with the trials.

    Attributes:
        trials: Every run that was validated.
        study: Whether every setting was evaluated, and none chosen.
    """

    trials: Sequence[Trial]
    study: bool

    def held_out(self) -> dict[str, Interval]:
        """Mean rank correlation on the held-out items of every setting, with a 95 % interval over its seeds."""
        scores: dict[str, list[float]] = {}
        for trial in self.trials:
            scores.setdefault(trial.title, []).append(1 - trial.loss)
        return {title: over_seeds(values) for title, values in scores.items()}

    def trial_table(self) -> list[list[str]]:
        """Header and rows of a table of all settings, in the order in which they were trained."""
        lines = [["tried", HELD_OUT, "seconds", ""]]
        for title, value in self.held_out().items():
            runs = [trial for trial in self.trials if trial.title == title]
            times = [trial.seconds for trial in runs if trial.seconds is not None]
            failed = next((trial.failed for trial in runs if trial.failed), "")
            note = failed or ("chosen" if title in self.trained and not self.study else "")
            seconds = f"{sum(times) / len(times):.3g}" if times else ""
            lines.append([title, "" if failed else interval_text(value), seconds, note])
        return lines

    def notes(self) -> str:
        """An explanation of both tables, and the verdict."""
        choice = (
            "A study: its figures on the test set describe the settings; do not choose by them."
            if self.study
            else "Chosen on items held out of the training set; of what was chosen alone the test set was evaluated."
        )
        return f"{choice}\n{super().notes()}"

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return f"{text_table.markdown(self.trial_table())}\n\n{super().markdown()}"

    def __str__(self) -> str:
        return f"{text_table.align_columns(self.trial_table())}\n\n{super().__str__()}"

    def to_json(self) -> dict[str, Any]:
        """All figures, and every trial."""
        return {**super().to_json(), "study": self.study, "trials": [asdict(trial) for trial in self.trials]}
