"""What learns an embedding from labelled items: gradient descent, tuning, or anything that is registered here.

A run chooses its learner once, by its options. Neither the door nor the run folder knows which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from torch import nn

from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.stored_distances import DistanceDemand
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.registry import Registry
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig
from cml.training.own_functions import NO_FUNCTIONS, OwnFunctions

if TYPE_CHECKING:
    from cml.training.run_config import RunConfig


class Selection(Protocol):
    """How a learner chose a model among candidates, as ``cml.tuning.Tuning`` says it."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the candidates that the model is made of."""
        ...

    @property
    def gain(self) -> float:
        """By how much it scores better than what needs no training."""
        ...

    def own_rows(self) -> tuple[str, ...]:
        """Names of the references of an evaluation that the model is itself."""
        ...

    def describe_reference(self) -> str:
        """A sentence of an evaluation's verdict, where the model is one of its references; or ""."""
        ...

    def save(self, folder: Path) -> None:
        """Write the selection into a run folder."""
        ...


@dataclass(frozen=True)
class Learned:
    """What a learner has learned.

    Attributes:
        model: In evaluation mode, with the weights that the learner keeps.
        loss: The loss, with its fitted constants.
        metrics: The records of metrics.jsonl; none of a model that was not trained in steps.
        config: The options that the model was trained with in the end.
        selection: How the model was chosen among others; None if it was trained in steps.
    """

    model: EmbeddingModel
    loss: Loss
    metrics: list[dict[str, Any]]
    config: TrainConfig
    selection: Selection | None = None


@dataclass(frozen=True)
class Place:
    """Where a learner works: its folder, processes and audience.

    Attributes:
        out: Run folder, made by ``run_folder.open_run_folder``; None writes nothing.
        resume: Continue what is in the folder.
        callbacks: Called after steps, validations, checkpoints and at the end, by the first process.
        quiet: No progress bar and no remarks.
        ranks: The processes that work together; None for this one alone.
        run: The content of config.json; None without a folder.
    """

    out: Path | None = None
    resume: bool = False
    callbacks: Sequence[Callback] = ()
    quiet: bool = False
    ranks: Ranks | None = None
    run: RunConfig | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that this process writes, which is the first one's."""
        return None if self.ranks is not None and not self.ranks.first else self.out

    @property
    def is_shown(self) -> bool:
        """Whether this process shows progress and remarks."""
        return not self.quiet and (self.ranks is None or self.ranks.first)

    def find_ranks(self, config: TrainConfig) -> Ranks:
        """The processes, or this one alone on the device of the options."""
        return Ranks(device=pick_device(config.device)) if self.ranks is None else self.ranks


NO_PLACE = Place()


@dataclass(frozen=True)
class Learner(ABC):
    """Learns an embedding from labelled items.

    Attributes:
        config: All options.
        loss: The loss; None for the one that ``config.loss`` names.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``; it is trained in place.
        own: Functions of the user's own.
        decides: Names of the options that the learner decides itself.
        chooses: What it chooses by them, for an error.
        decides_model: Whether the learner chooses the shape of the model, so that a resumed run is not compared by it.
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    loss: Loss | None = None
    backbone: nn.Module | Backbone | None = None
    own: OwnFunctions = NO_FUNCTIONS

    decides_model: ClassVar[bool] = False
    decides: ClassVar[tuple[str, ...]] = ()
    chooses: ClassVar[str] = ""

    def check_options(self, recipe: TrainConfig) -> None:
        """Refuse options that the learner decides itself, before anything is read.

        Args:
            recipe: The options where none are given.

        Raises:
            UserError: An option has another value than in the recipe.
        """
        for name in self.decides:
            if (value := getattr(self.config, name)) != getattr(recipe, name):
                what = f"{self.config.learner!r} chooses {self.chooses} itself"
                raise UserError(f"{what}: leave out {name!r}. Got {value} instead.")

    def shrink_batch(self, items: LabelledItems, validation: LabelledItems | None = None, *, warn: bool = True) -> Self:
        """The same learner with a smaller batch where that is larger than the data, with a warning."""
        return self

    @abstractmethod
    def check(self, items: LabelledItems, validation: LabelledItems | None = None) -> Self:
        """Check, before there is a run folder, that items can be learned from.

        Args:
            items: N items.
            validation: Items of the user's own to validate on; None for none.

        Returns:
            The learner, with the options that follow from the number of items.

        Raises:
            UserError: Options that do not fit the items.
        """

    @abstractmethod
    def demand(self) -> DistanceDemand | None:
        """How many label distances ``learn`` will ask for; None if they cannot be computed before."""

    @abstractmethod
    def learn(self, items: LabelledItems, validation: LabelledItems | None = None, place: Place = NO_PLACE) -> Learned:
        """Learn an embedding.

        Args:
            items: N items.
            validation: Items of the user's own to validate on; None to hold some of ``items`` out, if any.
            place: Where to work.

        Returns:
            The model, and what a run folder keeps beside it.

        Raises:
            UserError: Options that do not fit the items.
            StoppedRun: A signal, after the first step.
        """

    def reopen(self, place: Place) -> Learned | None:
        """Open what a finished run in the folder has learned; None if the learner continues it in ``learn``."""
        return None

    @classmethod
    def read_selection(cls, folder: Path) -> Selection | None:
        """Read from a run folder how the model was chosen; None if it was trained in steps."""
        return None


class StoppedRun(KeyboardInterrupt):
    """An interrupt after a step of a run and before its end, with the model so far.

    Args:
        text: What was done, in words; "" if the interrupt came in the middle of a step.
        learned: The result so far.

    Attributes:
        learned: The result so far.
        run: The content of config.json, from ``run_learner``; None before.
    """

    def __init__(self, text: str, learned: Learned) -> None:
        super().__init__(*([text] if text else []))
        self.learned = learned
        self.run: RunConfig | None = None


registry: Registry[Learner] = Registry(
    "learner", {"gradient-descent": "cml.training.gradient_descent:GradientDescent"}, "cml.learners"
)


def learner_class(config: TrainConfig) -> type[Learner]:
    """Choose the class of the learner that the options of a run name."""
    chosen = registry.entry(config.learner)
    assert isinstance(chosen, type)
    assert issubclass(chosen, Learner)
    return chosen
