"""The training loop, to be read top to bottom.

Set-up: model, loss constants, optimiser, and what a checkpoint restores. Then for each step: batch, embeddings, loss,
update. A checkpoint (checkpoint.py) holds everything that the next step depends on: on the CPU, an interrupted and
resumed run is bit for bit one that was never interrupted. A signal ends a run after the current step, with a checkpoint
(signals.py). The same seed, machine and number of torch threads give the same bits, for any number of data workers;
with other threads or devices the order of sums may differ.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cml import losses, sampling
from cml.console.messages import say
from cml.data.input_form import InputForm
from cml.data.vectors import Vectors
from cml.distributed import gradient_cache
from cml.errors import UserError
from cml.losses.cross_batch_memory import CrossBatchMemory
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.models.backbone_checks import check_rows, describe_batch
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.batch_norm import share_batch_norm
from cml.processes.device import pick_device, to_device
from cml.processes.ranks import Ranks
from cml.training import run_folder
from cml.training.averaged_weights import AveragedWeights
from cml.training.batch_norm_statistics import fixed_statistics, warn_of_statistics
from cml.training.batches import BatchSource
from cml.training.callback_list import CallbackList
from cml.training.callbacks import Callback
from cml.training.checkpoint import Checkpoint
from cml.training.config import TrainConfig
from cml.training.data_workers import shutdown_workers
from cml.training.frozen_backbone import freeze_backbone
from cml.training.head_start import choose_head_start, start_at_components
from cml.training.learning_rate import LearningRates
from cml.training.lora import LoraAdapters
from cml.training.optimizer import check_optimizer, make_optimizer
from cml.training.own_functions import NO_FUNCTIONS, OwnFunctions
from cml.training.progress import Progress
from cml.training.projector import ProjectedNetwork, Projector
from cml.training.run_config import RunConfig
from cml.training.run_randomness import RunRandomness, may_draw
from cml.training.saved_model import KEPT, save_model
from cml.training.signals import catch_signals
from cml.training.standardised_start import StandardisedStart
from cml.training.trained_parameters import select_parameters
from cml.training.training_data import TrainingData
from cml.training.training_targets import TrainingTargets
from cml.training.tune import Tuning
from cml.training.validation import Score, Validation
from cml.training.views import check_views


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes:
        model: In evaluation mode, with the best weights if the run was validated, else the last; averaged ones with
            ``ema_decay``.
        loss: The loss with its fitted constants.
        metrics: The records of metrics.jsonl.
        tuning: How the head was chosen; None if it was trained in steps.
    """

    model: EmbeddingModel
    loss: Loss
    metrics: list[dict[str, Any]]
    tuning: Tuning | None = None


class StoppedRun(KeyboardInterrupt):
    """An interrupt after a step of a run and before its end, with the model so far.

    Args:
        text: What was done, in words; "" if the interrupt came in the middle of a step.
        trained: The result so far.

    Attributes:
        trained: The result so far.
        config: The content of config.json, from ``train_run``; None before.
    """

    def __init__(self, text: str, trained: Trained) -> None:
        super().__init__(*([text] if text else []))
        self.trained = trained
        self.config: RunConfig | None = None


@shutdown_workers()
def train(
    data: TrainingData,
    config: TrainConfig,
    *,
    loss: Loss | None = None,
    backbone: torch.nn.Module | Backbone | None = None,
    own: OwnFunctions = NO_FUNCTIONS,
    out: Path | None = None,
    resume: bool = False,
    score: Score | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train an embedding.

    Args:
        data: Inputs and labels to train on.
        config: All options.
        loss: The loss; None for the one that ``config.loss`` names.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``; it is trained in place.
        own: Functions of the user's own.
        out: Run folder for metrics, checkpoints and the model, made by ``run_folder.open_run_folder``; None writes
            nothing.
        resume: Continue from the folder's last checkpoint if there is one.
        score: Score of a network on the held-out data, lower is better; None for ``held_out_score``.
        callbacks: Called after steps, validations, checkpoints and at the end, by the first process.
        quiet: No progress bar.
        ranks: The processes that train together, from ``cml.processes.init_processes``; None for this one alone.

    Returns:
        The trained model, its loss and the records of the run.

    Raises:
        UserError: Options that do not fit the data.
        FloatingPointError: The loss is not finite.
        MachineError: A data worker died, hung or ran out of memory.
        StoppedRun: A signal; with ``out``, after a checkpoint.
    """
    if ranks is None:
        ranks = Ranks(device=pick_device(config.device))
    device = ranks.device
    # of several processes only the first writes the folder and shows progress
    folder = out if ranks.first else None
    is_shown = ranks.first and not quiet
    given = f"{config} {data.labels.fingerprint()}" if ranks.size > 1 else ""
    ranks.check_same("options or training data", given, "Start all processes with one command line on one data set.")

    # model and loss
    randomness = RunRandomness(config.seed, device)
    sampler = sampling.registry.make(config.sampler)
    with randomness.initializing():
        if loss is None:
            loss = losses.registry.make(config.loss)
        is_items = data.inputs.form.kind == "items"
        example = data.inputs.read(np.arange(min(2, len(data)))) if is_items else None
        shape = make_model_config(config, loss, data.inputs.form)
        model = EmbeddingModel(shape, backbone=backbone, example=example).to(device)
        adapters = LoraAdapters(model, config.lora)
        projector = Projector(config.dimension, config.projector, loss).to(device) if config.projector else None
    select_parameters(model, config.train_only)
    if loss.starts_at_zero and projector is None:
        torch.nn.init.zeros_(model.head.weight)
    training_inputs = data.split_validation(config)[0].inputs
    if isinstance(training_inputs, Vectors) and training_inputs.form.kind == "vectors":
        remark = model.fit_standardization(training_inputs)
        if remark and is_shown:
            say(remark)
    network: Any = model
    if config.freeze_backbone:
        freeze = functools.partial(freeze_backbone, model, ranks=ranks, store=config.features)
        network, features = freeze(data.inputs, bar="features" if is_shown else "")
        data = replace(data, inputs=features)
        if data.validation is not None:
            _, features = freeze(data.validation.inputs)
            data = replace(data, validation=replace(data.validation, inputs=features))
    if projector is not None:
        network = ProjectedNetwork(network, projector)
    data, held_out = data.split_validation(config)
    draws = may_draw(model.head if config.freeze_backbone else model, loss)  # a projector draws nothing
    check_views(config, data.inputs, augments=own.augment is not None, draws=draws)
    data.inputs.load()
    training = TrainingTargets(data.distance, data.labels, seed=config.seed, ranks=ranks)
    head_start, remark = choose_head_start(config, loss, training)
    if remark and is_shown:
        say(remark)
    if head_start == "pca":
        assert isinstance(data.inputs, Vectors)  # see check_head_start
        start_at_components(model, data.inputs, ranks)
    standardised_start = StandardisedStart(model, data.inputs, loss, config)
    loss.prepare(
        loss.target(training),
        dimension=(config.dimension, *config.projector)[-1],
        names=training.class_names(),
        generator=torch.Generator().manual_seed(config.seed),
    )
    loss.to(device)
    share_batch_norm(model, ranks)
    ranks.broadcast_parameters(network, loss)
    run_folder.save_loss_constants(folder, loss.constants())

    # what changes from step to step, and is restored from a checkpoint
    optimizer = make_optimizer(model, loss, config, projector, own.optimizer)
    rates = LearningRates(optimizer, config, own.schedule)
    memory = CrossBatchMemory(config.memory)
    average = AveragedWeights(model.head if config.freeze_backbone else model, config.ema_decay)
    validation = Validation(model, network, held_out, config, ranks, score)
    checkpoint = Checkpoint(
        model,
        loss,
        optimizer,
        memory,
        average,
        validation,
        randomness,
        config.steps,
        len(data),
        projector=projector,
        rates=rates,
        is_own_optimizer=own.optimizer is not None,
        is_own_schedule=own.schedule is not None,
    )
    first = checkpoint.load(out) if out is not None and resume else 0
    ranks.check_same("a checkpoint", str(first), "The run folder must lie where every machine sees it.")
    last = first if validation.stopping.is_due else config.steps

    # batches, records, callbacks
    state = sampler.sampler_state(training)
    source = BatchSource(data, sampler, state, config, target=loss.target, ranks=ranks, augment=own.augment)
    in_parts = config.micro_batch is not None and config.micro_batch < sampler.batch_size * config.views
    if first < last:
        batch, _ = source[first]  # one that cannot be made fails here, not in a data worker
        if in_parts and not isinstance(batch, Tensor):
            raise UserError(
                f"'micro_batch' splits batches that are tensors, but 'collate' gives {describe_batch(batch)}: leave "
                "micro_batch out, or make the sampler's batch_size smaller."
            )
    progress = Progress(config, first, folder, shown=is_shown)
    callback_list = CallbackList(callbacks if ranks.first else (), config, folder, network)

    def _compute_loss(embeddings: Tensor, targets: Tensor, items: int, step: int) -> Tensor:
        check_rows(len(embeddings), len(range(items)[ranks.share(items)]))
        value: Tensor = loss(memory.augment(ranks.gather(embeddings, items)), targets)
        if step == first:
            check_optimizer(optimizer, value, loss, embeddings)
        return value

    done = first
    network.train()
    is_fixed = config.batch_norm == "fixed"
    if ranks.first and in_parts and not is_fixed and not config.freeze_backbone:
        warn_of_statistics(network)

    def _take_model(*, is_finished: bool) -> Trained:
        progress.bar.close()
        average.take()
        kept = validation.take_best(done)
        if kept and is_shown and is_finished:
            say(kept)
        adapters.merge()
        standardised_start.merge()
        model.eval()
        return Trained(model, loss, progress.log.records)

    with (
        _offer_model(lambda: None if done == first else _take_model(is_finished=False)),
        catch_signals(out is not None) as request,
        fixed_statistics(network, is_fixed),
        callback_list,
    ):
        for step, (inputs, targets) in enumerate(source.steps(first, last), first):
            # forward and backward
            rates.begin(step)
            optimizer.zero_grad(set_to_none=True)
            items = source.items(step)  # (B,), of which each process has its share
            targets = ranks.broadcast_tensor(targets.to(device, non_blocking=True), ranks.owner(step))
            with randomness.lent(draws):
                if draws:
                    ranks.reseed(config.seed, step)
                value, embeddings = gradient_cache.backward(
                    network,
                    functools.partial(_compute_loss, targets=targets, items=len(items), step=step),
                    to_device(inputs, device),
                    micro_batch=config.micro_batch,
                    largest=ranks.largest_share(len(items)),
                    cast=lambda: torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"),
                    draws=draws,
                )

            # update
            ranks.average_gradients(network, loss)
            embeddings = ranks.gather(embeddings, len(items))
            if config.clip_gradient_value is not None:
                every_parameter = [*network.parameters(), *loss.parameters()]
                torch.nn.utils.clip_grad_value_(every_parameter, config.clip_gradient_value)
            norm = None  # unless it is clipped
            if config.clip_gradient is not None:
                norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_gradient)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.step()
            rates.end()
            memory.store(embeddings, torch.from_numpy(items))
            done = step + 1
            average.update(done)

            # records, validation, callbacks
            is_stopped = ranks.any(request.is_set)
            progress.step(done, value, embeddings)
            callback_list.step(done, rate, value, norm, len(items))
            if validation.is_due(done):
                with average.swapped_in():
                    record = validation.record(done)
                progress.log.add([record])
                callback_list.validate(record["validation"])

            # checkpoint, and the end
            is_asked = ranks.any(callback_list.stop) if callbacks else False
            is_finished = done == config.steps or validation.stopping.is_due or is_asked
            if is_finished or is_stopped or done % config.checkpoint_every == 0:
                progress.catch_up()
                checkpoint.save(folder, done)
                if config.keep_models and folder is not None:
                    save_model(folder / KEPT.format(done), model)
                callback_list.call("on_checkpoint")
            if is_finished:
                break
            if is_stopped:
                ranks.barrier()  # if the others ended first, the watch would end rank 0 while it writes
                if out is None:
                    progress.catch_up()
                    raise KeyboardInterrupt(f"training ended after step {done} of {config.steps}")
                raise KeyboardInterrupt(f"the checkpoint of step {done} of {config.steps} is written")

        # the finished model
        trained = _take_model(is_finished=True)
        run_folder.finish(folder, model, loss, trained.metrics)
    callback_list.call("on_end")  # where Ctrl-C ends the wait for a tracker: the model is stored
    return trained


@contextlib.contextmanager
def _offer_model(take_model: Callable[[], Trained | None]) -> Iterator[None]:
    """Let an interrupt in the block carry the model so far, if there is one."""
    try:
        yield
    except KeyboardInterrupt as stop:
        trained = take_model()
        if trained is None:
            raise
        raise StoppedRun(str(stop), trained) from None


def make_model_config(config: TrainConfig, loss: Loss, form: InputForm | None = None) -> ModelConfig:
    """Make the shape of the model; the loss determines whether embeddings are normalised.

    Args:
        config: The options of the run.
        loss: The loss.
        form: The form of the inputs; None for images.

    Returns:
        The shape.
    """
    return ModelConfig(
        backbone=config.backbone,
        weights=config.weights,
        dimension=config.dimension,
        normalize=loss.normalize,
        image_size=config.image_size,
        crop=config.crop,
        inputs=InputForm() if form is None else form,
    )
