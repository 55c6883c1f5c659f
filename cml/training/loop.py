"""The training loop, to be read top to bottom.

Set-up: loss constants, neighbour lists, model, optimiser. Then for each step: batch, embeddings, loss, update. A
checkpoint (checkpoint.py) holds everything that the next step depends on: on the CPU, an interrupted and resumed run is
bit for bit one that was never interrupted. A signal ends a run after the current step, with a checkpoint (stopping.py).
The same seed, machine and number of torch threads give the same bits, for any number of data workers; with other
threads or devices the order of sums may differ (tests/benchmarks/threads.py measures it).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cml import losses, sampling
from cml.command_line.options import say
from cml.losses.loss import Loss
from cml.losses.memory import CrossBatchMemory
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.batch_norm import share_batch_norm
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.training import gradient_cache, run_folder, stopping, workers
from cml.training.adapters import Adapters
from cml.training.average import Average
from cml.training.batches import BatchSource, TrainingData
from cml.training.callbacks import Callback, Watched
from cml.training.checkpoint import Checkpoint
from cml.training.config import TrainConfig
from cml.training.frozen import frozen
from cml.training.optimizer import check_held, make_optimizer, set_learning_rates
from cml.training.progress import Progress
from cml.training.targets import TrainingLabels
from cml.training.validation import Score, Validation


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes:
        model: In evaluation mode, with the best weights if the run was validated, else the last; averaged ones with
            ``average``.
        loss: The loss with its fitted constants.
        metrics: The records of metrics.jsonl.
    """

    model: EmbeddingModel
    loss: Loss
    metrics: list[dict[str, Any]]


@workers.ended()
def train(
    data: TrainingData,
    config: TrainConfig,
    *,
    loss: Loss | None = None,
    backbone: torch.nn.Module | Backbone | None = None,
    out: Path | None = None,
    resume: bool = False,
    score: Score | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train an embedding.

    Args:
        data: Images and labels to train on.
        config: All options.
        loss: The loss; None for the one that ``config.loss`` names.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``; it is trained in place.
        out: Run folder for metrics, checkpoints and the model, made by ``run_folder.begun``; None writes nothing.
        resume: Continue from the folder's last checkpoint if there is one.
        score: Of a network on the held-out data, lower is better; None for ``validation.held_out_score``.
        callbacks: Called after steps, validations, checkpoints and at the end, by the first process.
        quiet: No progress bar.
        ranks: The processes that train together, from ``join.joined``; None for this one alone.

    Raises:
        UserError: options that do not fit the data.
        FloatingPointError: the loss is not finite.
        MachineError: a data worker died, hung or ran out of memory.
        KeyboardInterrupt: a signal; with ``out``, after a checkpoint.
    """
    ranks = Ranks(device=pick_device(config.device)) if ranks is None else ranks
    device, folder = ranks.device, out if ranks.first else None
    same = f"{config} {data.labels.fingerprint()}" if ranks.size > 1 else ""
    ranks.check_same("options or training data", same, "Start all processes with one command line on one data set.")
    torch.manual_seed(config.seed)
    sampler = sampling.registry.make(config.sampler)
    loss = losses.registry.make(config.loss) if loss is None else loss
    model = EmbeddingModel(model_config(config, loss), backbone=backbone).to(device)
    adapters = Adapters(model, config.lora)
    if loss.starts_at_zero:
        torch.nn.init.zeros_(model.head.weight)
    bar = "features" if ranks.first and not quiet else ""
    network, images = frozen(model, data.images, ranks, bar=bar) if config.freeze_backbone else (model, data.images)
    data, held_out = replace(data, images=images).held_out(config)
    data.images.load()
    training = TrainingLabels(data.distance, data.labels, seed=config.seed, ranks=ranks)
    generator, names = torch.Generator().manual_seed(config.seed), training.class_names()
    loss.prepare(loss.target(training), dimension=config.dimension, names=names, generator=generator)
    loss.to(device)
    share_batch_norm(model, ranks)
    ranks.start_alike(model, loss)
    run_folder.save_loss_constants(folder, loss.fitted())
    optimizer = make_optimizer(model, loss, config)
    memory = CrossBatchMemory(config.memory)
    average = Average(model.head if config.freeze_backbone else model, config.average)
    validation = Validation(model, network, held_out, config, ranks, score)
    checkpoint = Checkpoint(model, loss, optimizer, memory, average, validation, config.steps, len(data))
    first = checkpoint.load(out) if out is not None and resume else 0
    ranks.check_same("a checkpoint", str(first), "The run folder must lie where every machine sees it.")
    last = first if validation.patience_lost else config.steps
    source = BatchSource(data, sampler, sampler.given(training), config, target=loss.target, ranks=ranks)
    source[first] if first < last else None  # a batch that cannot be made fails here, not in a data worker
    progress = Progress(config, first, folder, shown=ranks.first and not quiet)
    watched = Watched(callbacks if ranks.first else (), config, folder, network)

    def loss_of(embeddings: Tensor, targets: Tensor, items: int, step: int) -> Tensor:
        value: Tensor = loss(memory.extended(ranks.gather(embeddings, items)), targets)
        if step == first:
            check_held(optimizer, value, loss, embeddings)
        return value

    done = first
    network.train()
    fixed = config.batch_norm == "fixed"
    if ranks.first and not (fixed or config.freeze_backbone) and (config.micro_batch or 1e9) < sampler.batch_size:
        gradient_cache.warn_of_statistics(network)
    with stopping.heard(out is not None) as request, gradient_cache.fixed_statistics(network, fixed):
        for step, (inputs, targets) in enumerate(source.steps(first, last), first):
            set_learning_rates(optimizer, config, step)
            optimizer.zero_grad(set_to_none=True)
            ranks.reseed(config.seed, step)
            items = source.items(step)  # (B,), of which each process has its share
            targets = source.shared(targets.to(device, non_blocking=True), step)
            value, embeddings = gradient_cache.backward(
                network,
                functools.partial(loss_of, targets=targets, items=len(items), step=step),
                inputs.to(device, non_blocking=True),
                micro_batch=config.micro_batch,
                largest=ranks.largest_share(len(items)),
                cast=lambda: torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"),
            )
            ranks.sum_gradients(model, loss)
            embeddings = ranks.gather(embeddings, len(items))
            norm = None  # unless it is clipped
            if config.clip_gradient is not None:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_gradient)
            optimizer.step()
            memory.store(embeddings, torch.from_numpy(items))

            done, stop = step + 1, ranks.any(request.made)
            average.update(done)
            progress.step(done, value, embeddings)
            watched.step(done, optimizer.param_groups[0]["lr"], value, norm, len(items))
            if validation.due(done):
                with average.taken():
                    record = validation.record(done)
                progress.hand_out(record)
                watched.validated(record["validation"])
            asked = ranks.any(watched.stop) if callbacks else False
            ended = done == config.steps or validation.patience_lost or asked
            if ended or stop or done % config.checkpoint_every == 0:
                progress.catch_up()
                checkpoint.save(folder, done)
                if config.keep_models:
                    run_folder.keep_model(folder, done, model)
                watched.call("on_checkpoint")
            if ended:
                break
            if stop:
                ranks.wait()  # if the others ended first, the watch would end rank 0 while it writes
                request.stop(done, config.steps)
        progress.close()
        average.take()
        kept = validation.take_best(done)
        if kept and ranks.first and not quiet:
            say(kept)
        adapters.merge()
        model.eval()
        run_folder.finish(folder, model, loss, progress.records)
        watched.call("on_end")
    return Trained(model, loss, progress.records)


def model_config(config: TrainConfig, loss: Loss) -> ModelConfig:
    """Shape of the model; the loss determines whether embeddings are normalised."""
    return ModelConfig(
        backbone=config.backbone,
        weights=config.weights,
        dimension=config.dimension,
        normalize=loss.normalize,
        image_size=config.image_size,
        crop=config.crop,
    )
