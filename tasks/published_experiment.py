"""What a published experiment is: network, lists, optimiser, steps, and the figures of its methods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cml.training.config import TrainConfig


@dataclass(frozen=True)
class PublishedRow:
    """A method of a paper."""

    name: str  # its name
    changes: Mapping[str, Any] = field(default_factory=dict)  # training options that differ from the experiment's
    figures: Mapping[str, float] = field(default_factory=dict)  # measure to published figure
    source: str = ""  # where the figures were published
    quoted: str = ""  # why cml does not train it, as a sentence; "" if it does
    is_frozen: bool = False  # whether it is the features of the pretrained network without any training


@dataclass(frozen=True)
class Experiment:
    """The experiment of a paper on one data set."""

    paper: str  # title, authors, venue and year
    claim: str  # what the paper claims of all its data sets
    task: str  # name of the task
    dataset: str  # name of the prepared dataset
    # number of training images, and of queries and gallery together; 0 where the paper's is not known
    sizes: tuple[int, int]
    config: TrainConfig  # training options
    rows: tuple[PublishedRow, ...]  # the methods
    measures: tuple[str, ...]  # metrics that are shown
    get: str  # where the data can be obtained
    prepare: str  # the command that prepares it
    notes: tuple[str, ...]  # where this differs from the paper, and why
    drawn: str  # the data source that draws a small dataset of the same kind; "" if none does
    protocol: str = ""  # the protocol that measures it; "" for none but retrieval

    def row(self, name: str) -> PublishedRow | None:
        """Find a method by its name; None if there is none of that name."""
        return next((row for row in self.rows if row.name == name), None)
