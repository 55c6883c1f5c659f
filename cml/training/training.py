"""A training under way: what stages change before the loop, and what parts act on in it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cml.items import LabelledItems
from cml.items.labelled_items import Rows
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.sampling.sampler import Sampler
from cml.training.callbacks import CallbackList
from cml.training.config import TrainConfig
from cml.training.learner import Learned, Place
from cml.training.metrics_log import METRICS, MetricsLog
from cml.training.own_functions import OwnFunctions
from cml.training.projector import Projector
from cml.training.randomness import RunRandomness
from cml.training.training_targets import TrainingTargets


@dataclass
class Training:
    """The state of a training."""

    config: TrainConfig  # all options
    items: LabelledItems  # the items that are trained on; with a frozen backbone their features
    # the items to validate on, none if the run is not validated; None until some are held out
    held_out: LabelledItems | None
    model: EmbeddingModel
    network: Any  # what is trained, a torch module with a method ``embed``: the model, or a stage's network around it
    loss: Loss
    sampler: Sampler  # draws the batches
    own: OwnFunctions  # functions of the user's own
    place: Place  # where the run is written and shown
    ranks: Ranks  # the processes that train together
    randomness: RunRandomness  # torch's random numbers of the run
    # from embeddings (B, D) and the target of a batch to the loss, which parts may wrap
    criterion: Callable[[Tensor, Tensor], Tensor] = field(init=False)
    held_out_rows: Rows = field(init=False)  # which of the items are held out, where the user gave none
    continues: bool = False  # whether the model was trained before, so that its head and standardisation stay
    projector: Projector | None = None  # the network between embeddings and loss, if there is one
    targets: TrainingTargets = field(init=False)  # the labels that are trained on, as losses and samplers ask for them
    optimizer: torch.optim.Optimizer = field(init=False)
    log: MetricsLog = field(init=False)  # the records of metrics.jsonl
    callbacks: CallbackList = field(init=False)  # all callbacks
    # what undoes a stage at the end, such as to merge adapters
    endings: list[Callable[[], None]] = field(default_factory=list)
    # makes the context in which the network has the weights that are kept, as averaged ones
    swap_in: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    is_over: bool = False  # whether a part has asked for the end
    is_interrupted: bool = False  # whether the training ends early by an interrupt

    def __post_init__(self) -> None:
        self.criterion = self.loss

    @property
    def width(self) -> int:
        """The size of the vectors that the loss compares."""
        return (self.config.dimension, *self.config.projector)[-1]

    def open_log(self, step: int) -> None:
        """Open the records, without those of later steps than ``step``."""
        folder = self.place.folder
        self.log = MetricsLog(None if folder is None else folder / METRICS, step)

    def take_learned(self) -> Learned:
        """Take the result, after the parts have set the weights that are kept."""
        for end in self.endings:
            end()
        self.model.eval()
        return Learned(self.model, self.loss, self.log.records, self.config)
