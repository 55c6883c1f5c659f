"""Gradient descent on a stream: what it refuses, what it says, and the batches that it takes in place of others."""

from dataclasses import dataclass

from cml.console.messages import say
from cml.errors import UserError
from cml.items import LabelledItems
from cml.registry import Choice
from cml.streams.first_items import FirstItems
from cml.streams.stream_batches import StreamBatches
from cml.training.batches import Batches
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.training import Training

_PART = "take a part of the stream as a list, list(itertools.islice(stream, 10_000))"
_REFUSED = {  # options that need all items, and what to do instead
    "tune": f"'tune' compares heads on all items: {_PART}.",
    "freeze_backbone": (
        "'freeze_backbone' embeds every item once, and keeps the features: train by train_only=('head.*',), or "
        f"{_PART}."
    ),
    "memory": "'memory' compares with items of earlier batches, which a stream does not keep: make the batches larger.",
    "epochs": "A stream does not tell how many items it has: set 'steps' in place of 'epochs'.",
}


@dataclass(frozen=True)
class StreamDescent(GradientDescent):
    """Trains a network step by step on the items of a stream, of which it keeps a buffer."""

    first: FirstItems | None = None  # the first items, and how the stream goes on

    def check_options(self, recipe: TrainConfig) -> None:
        """Refuse options that need more than a part of the items at a time."""
        for name, why in _REFUSED.items():
            if getattr(self.config, name):
                raise UserError(why)
        if (name := Choice.parse(self.config.sampler).name) != "random":
            raise UserError(
                f"A stream is trained on in random batches, sampler='random(batch_size=150)', but {name!r} chooses "
                f"among all items: leave it out, or {_PART}."
            )
        assert self.first is not None
        buffer = self.first.stream.buffer
        if buffer < self.sampler.batch_size:
            raise UserError(
                f"A batch of {self.sampler.batch_size} items is drawn from the buffer of the stream, which holds "
                f"{buffer}: make the 'buffer' of the LabelledStream larger, or the batches smaller, as in "
                f"sampler='random(batch_size={max(2, buffer // 4)})'."
            )

    def check(self, items: LabelledItems, validation: LabelledItems | None = None) -> "StreamDescent":
        """Check that the first items can be trained on; see ``Learner.check``."""
        if validation is None and self.config.evaluate_every:
            raise UserError(
                "'evaluate_every' needs validation items, and none are held out of a stream: give them by "
                "validation=(inputs, labels), or leave out 'evaluate_every'."
            )
        checked = super().check(items, validation)
        assert isinstance(checked, StreamDescent)
        return checked

    def demand(self) -> None:
        """None: label distances of items that are not known cannot be computed before."""

    def make_batches(self, training: Training) -> Batches:
        """Take the batches from the stream."""
        assert self.first is not None
        if training.place.is_shown:
            self._say(training)
        return StreamBatches(training, self.first)

    def _count(self, items: LabelledItems, validation: LabelledItems | None) -> int:
        return len(items)  # none is held out

    def _reads_anew(self, items: LabelledItems) -> bool:
        return False  # what the stream gave is kept

    def _say(self, training: Training) -> None:
        """Say what the first items decide, and how many processes read."""
        assert self.first is not None
        stream, workers = self.first.stream, self.config.workers
        say(
            "the constants of the loss, the names of classes and the standardisation of vectors are computed from the "
            f"first {len(training.items):,} items of the stream."
        )
        if stream.shares == 1 < workers:
            say("one worker reads the stream: it is not divided into shares, see cml.LabelledStream.")
        elif stream.shares < workers:
            say(f"{stream.shares} workers read the stream, one for each of its shares.")
