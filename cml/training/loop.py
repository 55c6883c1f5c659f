"""The training loop, to be read top to bottom: batch, embeddings, loss, gradient, update, and what parts add.

A checkpoint (``checkpoint.py``) holds everything that the next step depends on: on the CPU, an interrupted and resumed
run is bit for bit one that was never interrupted. A signal ends a run after the current step, with a checkpoint
(``callbacks.py``). The same seed, machine and number of torch threads give the same bits, for any number of data
workers; with other threads or devices the order of sums may differ.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cml.distributed import gradient_cache
from cml.models.backbone_checks import check_rows
from cml.processes.device import to_device
from cml.training import run_folder
from cml.training.batches import Batches, BatchSource
from cml.training.callbacks import CallbackList, catch_signals
from cml.training.checkpoint import Checkpoint
from cml.training.learner import Learned, StoppedRun
from cml.training.optimizer import check_optimizer
from cml.training.parts import PARTS, Part, Update
from cml.training.randomness import may_draw
from cml.training.saved_model import KEPT, save_model
from cml.training.training import Training


def run_loop(training: Training, make_batches: Callable[[Training], Batches] = BatchSource.of) -> Learned:
    """Train step by step, and finish the run folder if there is one."""
    config, place, ranks, network = training.config, training.place, training.ranks, training.network
    optimizer = training.optimizer
    parts = [kind(training) for kind in PARTS if kind.is_on(training)]
    for part in parts:
        part.prepare()
    checkpoint = Checkpoint(training, parts)
    first = checkpoint.load(place.out) if place.out is not None and place.resume else 0
    ranks.check_same("a checkpoint", str(first), "The run folder must lie where every machine sees it.")
    training.callbacks = CallbackList(place.callbacks if ranks.first else (), config, place.folder, network)
    source, backward = make_batches(training), Backward(training)
    last = first if training.is_over else config.steps
    if first < last:
        _check_first_batch(training, source, first)
    done = first
    network.train()
    try:
        with (
            catch_signals(place.out is not None) as request,
            fixed_statistics(network, config.batch_norm == "fixed"),
            training.callbacks,
        ):
            for step, (inputs, targets, items) in enumerate(source.steps(first, last), first):
                # forward and backward
                optimizer.zero_grad(set_to_none=True)  # items (B,), of which each process has its share
                targets = ranks.broadcast_tensor(targets.to(ranks.device, non_blocking=True), ranks.owner(step))
                value, embeddings = backward(inputs, targets, step, len(items))
                ranks.average_gradients(network, training.loss)

                # update
                update = Update(step + 1, items, value, ranks.gather(embeddings, len(items)))
                for part in parts:
                    part.before(update)
                optimizer.step()
                done = step + 1
                is_stopped = ranks.any(request.is_set)
                for part in parts:
                    part.after(update)

                # checkpoint, and the end
                is_asked = bool(place.callbacks) and ranks.any(training.callbacks.stop)
                is_finished = done == config.steps or training.is_over or is_asked
                if is_finished or is_stopped or done % config.checkpoint_every == 0:
                    checkpoint.save(place.folder, done)
                    if config.keep_models and place.folder is not None:
                        save_model(place.folder / KEPT.format(done), training.model)
                    training.callbacks.call("on_checkpoint")
                if is_finished:
                    break
                if is_stopped:
                    ranks.barrier()  # if the others ended first, torchrun would end rank 0 while it writes
                    raise KeyboardInterrupt(_describe_stop(training, done))
            learned = _take(training, parts, done)
            run_folder.finish(place.folder, learned, place.run)
    except KeyboardInterrupt as stop:
        if done == first:
            raise
        training.is_interrupted = True
        raise StoppedRun(str(stop), _take(training, parts, done)) from None
    training.callbacks.call("on_end")  # where Ctrl-C ends the wait for a tracker: the model is stored
    return learned


def _check_first_batch(training: Training, source: Batches, first: int) -> None:
    """Check a batch, and warn where batch normalisation sees one part at a time."""
    source.check(first)
    config, limit = training.config, training.config.micro_batch
    if limit is None or limit >= training.sampler.batch_size * config.views:
        return
    if training.ranks.first and config.batch_norm != "fixed" and not config.freeze_backbone:
        warn_of_statistics(training.network)


def _take(training: Training, parts: Sequence[Part], done: int) -> Learned:
    """Set the weights that are kept, and take the result."""
    for part in parts:
        part.finish(done)
    return training.take_learned()


def _describe_stop(training: Training, done: int) -> str:
    """What a run has done that a signal ends."""
    steps = training.config.steps
    if training.place.out is None:
        return f"training ended after step {done} of {steps}"
    return f"the checkpoint of step {done} of {steps} is written"


class Backward:
    """Computes loss, embeddings and gradient of a batch, of which each process has its share."""

    def __init__(self, training: Training) -> None:
        self._training = training
        model = training.model
        # a projector draws nothing
        self.draws = may_draw(model.head if training.config.freeze_backbone else model, training.loss)
        self._is_checked = False

    def __call__(
        self,
        inputs: Any,  # noqa: ANN401
        targets: Tensor,  # the target of the whole batch, such as label distances (A, B), on the device
        step: int,
        count: int,  # B, the items of the whole batch
    ) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch to the parameters."""
        training, ranks = self._training, self._training.ranks
        precision = training.config.precision
        with training.randomness.lent(self.draws):
            if self.draws:
                ranks.reseed(training.config.seed, step)
            return gradient_cache.backward(
                training.network,
                functools.partial(self._compute_loss, targets=targets, count=count),
                to_device(inputs, ranks.device),
                micro_batch=training.config.micro_batch,
                largest=ranks.largest_share(count),
                cast=lambda: torch.autocast(ranks.device.type, torch.bfloat16, enabled=precision == "bfloat16"),
                draws=self.draws,
            )

    def _compute_loss(self, embeddings: Tensor, targets: Tensor, count: int) -> Tensor:
        """The loss of the embeddings of all processes."""
        training, ranks = self._training, self._training.ranks
        check_rows(len(embeddings), len(range(count)[ranks.share(count)]))
        value = training.criterion(ranks.gather(embeddings, count), targets)
        if not self._is_checked:
            check_optimizer(training.optimizer, value, training.loss, embeddings)
            self._is_checked = True
        return value


@contextmanager
def fixed_statistics(
    network: nn.Module,
    fixed: bool,  # False leaves the network as it is
) -> Iterator[None]:
    """Let batch normalisation use its running statistics, and not change them, in the block."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)] if fixed else []
    hooks = [norm.register_forward_pre_hook(_set_evaluation_mode) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def warn_of_statistics(
    network: nn.Module,  # a network that sees a batch in several passes
) -> None:
    """Warn if the network has batch normalisation, so that images in one pass affect each other."""
    if any(isinstance(module, _BatchNorm) for module in network.modules()):
        warnings.warn(
            "The network has batch normalisation, which sees one micro batch at a time: the gradient is not exactly "
            "that of the whole batch. It is with --batch-norm fixed, or with --backbone 'small-cnn(norm=group)'.",
            stacklevel=2,
        )


def _set_evaluation_mode(module: nn.Module, inputs: object) -> None:
    module.eval()
