"""The training loop, to be read top to bottom: for each step batch, embeddings, loss, update, and what parts add to it.

A checkpoint (``checkpoint.py``) holds everything that the next step depends on: on the CPU, an interrupted and resumed
run is bit for bit one that was never interrupted. A signal ends a run after the current step, with a checkpoint
(``signals.py``). The same seed, machine and number of torch threads give the same bits, for any number of data workers;
with other threads or devices the order of sums may differ.
"""

from collections.abc import Sequence

from torch import Tensor

from cml.errors import UserError
from cml.models.backbone_checks import describe_batch
from cml.training import run_folder
from cml.training.backward import Backward
from cml.training.batch_norm_statistics import fixed_statistics, warn_of_statistics
from cml.training.batches import BatchSource
from cml.training.callback_list import CallbackList
from cml.training.checkpoint import Checkpoint
from cml.training.learner import Learned, StoppedRun
from cml.training.part import Part, Update
from cml.training.parts import PARTS
from cml.training.saved_model import KEPT, save_model
from cml.training.signals import catch_signals
from cml.training.training import Training


def run_loop(training: Training) -> Learned:
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
    source, backward = BatchSource.of(training), Backward(training)
    last = first if training.is_over else config.steps
    if first < last:
        _check_first_batch(training, source[first][0])  # here, not in a data worker
    done = first
    network.train()
    try:
        with (
            catch_signals(place.out is not None) as request,
            fixed_statistics(network, config.batch_norm == "fixed"),
            training.callbacks,
        ):
            for step, (inputs, targets) in enumerate(source.steps(first, last), first):
                # forward and backward
                optimizer.zero_grad(set_to_none=True)
                items = source.items(step)  # (B,), of which each process has its share
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


def _check_first_batch(training: Training, batch: object) -> None:
    """Check that a batch can be split where it is to be, and warn where batch normalisation sees one part at a time."""
    config, limit = training.config, training.config.micro_batch
    if limit is None or limit >= training.sampler.batch_size * config.views:
        return
    if not isinstance(batch, Tensor):
        raise UserError(
            f"'micro_batch' splits batches that are tensors, but 'collate' gives {describe_batch(batch)}: leave "
            "micro_batch out, or make the sampler's batch_size smaller."
        )
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
