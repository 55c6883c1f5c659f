"""The result of a published experiment: figures beside the published ones, and what was not run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cml.retrieval import text_table
from cml.retrieval.comparison import Interval, interval_text
from cml.retrieval.metrics import describe

QUOTED = "quoted"
LEFT_OUT = "left out"


@dataclass(frozen=True)
class Figure:
    """A figure of a method."""

    method: str  # name of the method
    measure: str  # name of the metric
    published: float | None  # the published figure; None if there is none
    ours: Interval | None  # ours, with its interval; None if the method was not run
    difference: float | None  # ours less the published one; None where only a part of the experiment was run


@dataclass(frozen=True)
class Reproduction:
    """The result of an experiment."""

    methods: Sequence[str]  # names of all methods, those of the paper's tables that cml does not train included
    figures: Sequence[Figure]  # their figures beside the published ones
    # method that was not run to what it needs, or why it cannot be run: ``data``, ``card`` (a graphics card),
    # ``weights``, ``extra``, ``backbone``, ``quoted`` or ``left out``, each with a sentence
    not_run: Mapping[str, Mapping[str, str]]
    piece: Sequence[str]  # in what this is not the whole published experiment, a clause each
    # method to the hours of its whole training on this device, estimated from a few images
    hours: Mapping[str, float] = field(default_factory=dict)
    # the same of a graphics card that trains the first method on 1,000 images a second
    card_hours: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()  # sentences that say what the figures are

    def grid(self) -> list[list[str]]:
        """Header and rows as text: up to three rows a method, of published figures, of ours and of their difference."""
        measures = list(dict.fromkeys(figure.measure for figure in self.figures))
        lines = [["method", "figures", *measures, "state", "hours on a card", "hours here"]]
        for method in self.methods:
            cells = {figure.measure: _cells(figure) for figure in self.figures if figure.method == method}
            rows = [
                [kind, *(cells[measure][kind] if measure in cells else "" for measure in measures)]
                for kind in ("published", "ours", "difference")
            ]
            filled = [row for row in rows if any(row[1:])] or rows[:1]
            state = _state(self.not_run[method]) if method in self.not_run else "run"
            times = [f"{hours[method]:.3g}" if method in hours else "" for hours in (self.card_hours, self.hours)]
            lines.append([method, *filled[0], state, *times])
            lines += [["", *row, "", "", ""] for row in filled[1:]]
        return lines

    def reasons(self) -> list[str]:
        """A line for each need or reason, with the word that the table has for it."""
        lines = [f"{word}: {text}" for needs in self.not_run.values() for word, text in needs.items()]
        return list(dict.fromkeys(lines))

    def markdown(self) -> str:
        """Table and notes as Markdown."""
        lines = [*self.reasons(), *self.notes]
        return "\n".join([text_table.markdown(self.grid()), "", *(f"- {line}" for line in lines), ""])

    def __str__(self) -> str:
        return "\n".join([text_table.align_columns(self.grid()), *self.reasons(), *self.notes])


def _state(needs: Mapping[str, str]) -> str:
    """The words of needs; of a method that cannot be run, the reason alone."""
    for word in (QUOTED, LEFT_OUT):
        if word in needs:
            return word
    return f"needs {', '.join(needs)}"


def _cells(figure: Figure) -> Mapping[str, str]:
    """The three texts of a figure."""
    return {
        "published": "" if figure.published is None else f"{figure.published:.3f}",
        "ours": "" if figure.ours is None else interval_text(figure.ours, describe(figure.measure)),
        "difference": "" if figure.difference is None else f"{figure.difference:+.3f}",
    }
