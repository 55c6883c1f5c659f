"""The rows of a comparison measured by a protocol of the field, such as the errors of predicted labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cml.protocols import Figure, ProtocolResult
from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, over_seeds


@dataclass(frozen=True, repr=False)
class MeasuredComparison(Comparison):
    """A comparison whose trained rows were also measured by a protocol."""

    measured: ProtocolResult  # a row for each of the comparison, of its first dimension

    @classmethod
    def of(cls, comparison: Comparison, measured: ProtocolResult) -> MeasuredComparison:
        """A comparison with what a protocol measured."""
        shared = {field.name: getattr(comparison, field.name) for field in fields(comparison)}
        return cls(**shared, measured=measured)

    def markdown(self) -> str:
        """The table, and that of the protocol, as Markdown."""
        names = list(dict.fromkeys(name for row in self.measured.figures.values() for name in row))
        lines = [[row, *(str(of[name]) for name in names)] for row, of in self.measured.figures.items()]
        protocol = text_table.markdown([[self.measured.protocol, *names], *lines])
        return f"{super().markdown()}\n\n{protocol}\n\n{self.measured.note}"

    def __repr__(self) -> str:
        return f"{super().__repr__()}\n\n{self.measured}"

    def to_json(self) -> dict[str, Any]:
        """All figures, those of the protocol under its name."""
        return {**super().to_json(), "protocol": self.measured.to_json()}


def join_seeds(results: Mapping[str, Sequence[ProtocolResult]]) -> ProtocolResult:
    """Join what a protocol measured of each row and seed: means with 95 % intervals over seeds (Student's t).

    Rows and figures of the protocol become columns, such as "probe mae". With one seed, intervals are the protocol's.
    """
    first = next(iter(results.values()))[0]
    if len(next(iter(results.values()))) == 1:
        figures = {row: _flatten(of[0]) for row, of in results.items()}
        return ProtocolResult(first.protocol, figures, first.note)
    joined = {}
    for row, of_seeds in results.items():
        seeds = [_flatten(one) for one in of_seeds]
        joined[row] = {name: Figure(*over_seeds([one[name].value for one in seeds])) for name in seeds[0]}
    note = f"{first.note.partition(';')[0]}; 95 % intervals over {len(of_seeds)} seeds (Student's t)."
    return ProtocolResult(first.protocol, joined, note)


def _flatten(result: ProtocolResult) -> dict[str, Figure]:
    return {f"{row} {name}": figure for row, of in result.figures.items() for name, figure in of.items()}
