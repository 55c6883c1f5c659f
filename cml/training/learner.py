"""What learns an embedding from labelled items: gradient descent, tuning, or anything that is registered here.

A run chooses its learner once, by its options. Neither the door nor the run folder knows which one it is.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from torch import nn

from cml import losses
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import DistanceDemand
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
    from cml.training.saved_model import RunConfig


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

    def describe_new_classes(self) -> str:
        """A sentence of an evaluation's verdict on classes that are new, if the choice was made on others; or ""."""
        ...

    def save(self, folder: Path) -> None:
        """Write the selection into a run folder."""
        ...


@dataclass(frozen=True)
class Learned:
    """What a learner has learned."""

    model: EmbeddingModel  # in evaluation mode, with the weights that the learner keeps
    loss: Loss  # the loss, with its fitted constants
    metrics: list[dict[str, Any]]  # the records of metrics.jsonl; none of a model that was not trained in steps
    config: TrainConfig  # the options that the model was trained with in the end
    selection: Selection | None = None  # how the model was chosen among others; None if it was trained in steps


@dataclass(frozen=True)
class Place:
    """Where a learner works: its folder, processes and audience."""

    out: Path | None = None  # run folder, made by ``run_folder.open_run_folder``; None writes nothing
    resume: bool = False  # continue what is in the folder
    # called after steps, validations, checkpoints and at the end, by the first process
    callbacks: Sequence[Callback] = ()
    quiet: bool = False  # no progress bar and no remarks
    ranks: Ranks | None = None  # the processes that work together; None for this one alone
    run: RunConfig | None = None  # the content of config.json; None without a folder

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
    """Learns an embedding from labelled items."""

    config: TrainConfig = field(default_factory=TrainConfig)  # all options
    loss: Loss | None = None  # the loss; None for the one that ``config.loss`` names
    # the user's own module, for which ``config.backbone`` is ``custom``; it is trained in place
    backbone: nn.Module | Backbone | None = None
    own: OwnFunctions = NO_FUNCTIONS  # functions of the user's own
    start: EmbeddingModel | None = None  # a trained model that is continued; None to begin anew

    # whether the learner chooses the shape of the model, so that a resumed run is not compared by it
    decides_model: ClassVar[bool] = False
    decides: ClassVar[tuple[str, ...]] = ()  # names of the options that the learner decides itself
    chooses: ClassVar[str] = ""  # what it chooses by them, for an error

    @functools.cached_property
    def loss_as_named(self) -> Loss:
        """A loss to ask what it is like; the one that is trained with is made by the run's random numbers."""
        return losses.registry.make(self.config.loss) if self.loss is None else self.loss

    def check_options(self, recipe: TrainConfig) -> None:
        """Refuse options that the learner decides itself, before anything is read."""
        for name in self.decides:
            if (value := getattr(self.config, name)) != getattr(recipe, name):
                what = f"{self.config.learner!r} chooses {self.chooses} itself"
                raise UserError(f"{what}: leave out {name!r}. Got {value} instead.")

    def shrink_batch(self, items: LabelledItems, validation: LabelledItems | None = None, *, warn: bool = True) -> Self:
        """The same learner with a smaller batch where that is larger than the data, with a warning."""
        return self

    @abstractmethod
    def check(
        self,
        items: LabelledItems,  # N items
        validation: LabelledItems | None = None,  # items of the user's own to validate on; None for none
    ) -> Self:
        """Check, before there is a run folder, that items can be learned from."""

    @abstractmethod
    def demand(self) -> DistanceDemand | None:
        """How many label distances ``learn`` will ask for; None if they cannot be computed before."""

    @abstractmethod
    def learn(
        self,
        items: LabelledItems,  # N items
        validation: LabelledItems | None = None,  # items of the user's own to validate on
        place: Place = NO_PLACE,
    ) -> Learned:
        """Learn an embedding."""

    def reopen(self, place: Place) -> Learned | None:
        """Open what a finished run in the folder has learned; None if the learner continues it in ``learn``."""
        return None

    @classmethod
    def read_selection(cls, folder: Path) -> Selection | None:
        """Read from a run folder how the model was chosen; None if it was trained in steps."""
        return None


class StoppedRun(KeyboardInterrupt):
    """An interrupt after a step of a run and before its end, with the model so far."""

    def __init__(self, text: str, learned: Learned) -> None:
        super().__init__(*([text] if text else []))
        self.learned = learned  # the result so far
        self.run: RunConfig | None = None  # the content of config.json, from ``run_learner``; None before


registry: Registry[Learner] = Registry(
    "learner", {"gradient-descent": "cml.training.gradient_descent:GradientDescent"}, "cml.learners"
)


def learner_class(config: TrainConfig) -> type[Learner]:
    """Choose the class of the learner that the options of a run name."""
    chosen = registry.entry(config.learner)
    assert isinstance(chosen, type)
    assert issubclass(chosen, Learner)
    return chosen
