"""The training loop, to be read top to bottom.

On the CPU a resumed run is bit for bit one that was never interrupted. The same seed, machine and number of torch
threads give the same bits, for any number of data workers; with others the order of sums may differ.
"""

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cml import losses, sampling
from cml.console.messages import say
from cml.console.progress_bar import ProgressBar
from cml.losses.cross_batch_memory import CrossBatchMemory
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.batch_norm import share_batch_norm
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.training import gradient_cache, run_folder, stopping, workers
from cml.training.batches import BatchSource, TrainingData
from cml.training.callbacks import Callback, Watched
from cml.training.checkpoint import Checkpoint
from cml.training.config import TrainConfig
from cml.training.frozen import Adapters, frozen
from cml.training.metrics_log import METRICS, MetricsLog
from cml.training.optimizer import Average, check_held, make_optimizer, set_learning_rates
from cml.training.targets import TrainingLabels
from cml.training.validation import Score, Validation

LOG_EVERY = 10  # steps whose losses are fetched from the device together


@dataclass(frozen=True)
class Trained:
    """The result of training."""

    model: EmbeddingModel  # in evaluation mode, with the best weights if the run was validated, else the last
    loss: Loss  # with its fitted constants
    metrics: list[dict[str, Any]]  # the records of metrics.jsonl


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
    """Train an embedding, in a folder by ``run_folder.begun``; a signal is a KeyboardInterrupt, after a checkpoint.

    ``loss`` is None for the one that ``config.loss`` names, ``backbone`` the user's own module, for which
    ``config.backbone`` is ``custom``; it is trained in place. ``score`` is None for ``validation.held_out_score``.
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
    shown = ranks.first and not quiet
    bar = "features" if shown else ""
    network, images = frozen(model, data.images, ranks, bar=bar) if config.freeze_backbone else (model, data.images)
    data, held_out = replace(data, images=images).held_out(config)
    data.images.load()
    training = TrainingLabels(data.distance, data.labels, seed=config.seed, ranks=ranks)
    generator, names = torch.Generator().manual_seed(config.seed), training.class_names()
    loss.prepare(loss.target(training), dimension=config.dimension, names=names, generator=generator)
    loss.to(device)
    share_batch_norm(model, ranks)
    ranks.broadcast_parameters(model, loss)
    run_folder.save_loss_constants(folder, loss.constants())
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
    progress = Progress(config, first, folder, shown=shown)
    watched = Watched(callbacks if ranks.first else (), config, folder, network)

    def loss_of(embeddings: Tensor, targets: Tensor, items: int, step: int) -> Tensor:
        value: Tensor = loss(memory.augment(ranks.gather(embeddings, items)), targets)
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
            targets = ranks.broadcast_tensor(
                targets.to(device, non_blocking=True), ranks.owner(step)
            )  # of whose turn it was
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
            if config.evaluate_every and done % config.evaluate_every == 0:
                with average.taken():
                    record = validation.record(done)
                progress.log.add([record])
                watched.validated(record["validation"])
            asked = ranks.any(watched.stop) if callbacks else False
            ended = done == config.steps or validation.patience_lost or asked
            if ended or stop or done % config.checkpoint_every == 0:
                progress.catch_up()
                checkpoint.save(folder, done)
                if config.keep_models and folder is not None:
                    run_folder.save_model(folder / run_folder.KEPT.format(done), model)
                watched.call("on_checkpoint")
            if ended:
                break
            if stop:
                ranks.barrier()  # if the others ended first, the watch would end rank 0 while it writes
                raise KeyboardInterrupt(f"the checkpoint of step {done} of {config.steps} is written")
        progress.bar.close()
        average.take()
        if (kept := validation.take_best(done)) and shown:
            say(kept)
        adapters.merge()
        model.eval()
        run_folder.finish(folder, model, loss, progress.log.records)
        watched.call("on_end")
    return Trained(model, loss, progress.log.records)


def model_config(config: TrainConfig, loss: Loss) -> ModelConfig:
    """Shape of the model; the loss determines whether embeddings are normalised."""
    return ModelConfig(
        config.backbone, config.weights, config.dimension, loss.normalize, config.image_size, config.crop
    )


class Progress:
    """The records of a run from the step ``first``, in the folder ``run`` or in memory, and a bar if ``shown``."""

    def __init__(self, config: TrainConfig, first: int, run: Path | None, *, shown: bool) -> None:
        self.log = MetricsLog(None if run is None else run / METRICS, first)
        self.bar = ProgressBar(total=config.steps, initial=first, unit="step", desc=config.loss, disable=not shown)
        self._waiting: list[tuple[int, Tensor]] = []  # for each step (loss, whether the embeddings are finite)
        self._began, self._seen = time.perf_counter(), 0

    def step(self, step: int, value: Tensor, embeddings: Tensor) -> None:
        """A step is done, the ``step``-th; its loss and embeddings (B, D) stay on the device for now."""
        self._seen += len(embeddings)
        self._waiting.append((step, torch.stack([value, embeddings.isfinite().all().float()])))
        if step % LOG_EVERY == 0:
            self.catch_up()
        self.bar.update()

    def catch_up(self) -> None:
        """Record the waiting steps; a FloatingPointError tells of a loss or an embedding that is not finite."""
        if not self._waiting:
            return
        pairs = torch.stack([pair for _, pair in self._waiting]).tolist()
        _check_finite(self._waiting[0][0], pairs)
        steps = zip(self._waiting, pairs, strict=True)
        self.log.add([{"step": step, "loss": value} for (step, _), (value, _) in steps])
        self._waiting.clear()
        rate = self._seen / (time.perf_counter() - self._began)
        self.bar.set_postfix_str(f"loss {pairs[-1][0]:.4f}, {rate:.0f} images/s", refresh=False)


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    for step, (value, finite) in enumerate(pairs, first):
        if not finite or not math.isfinite(value):
            what = f"The loss is {value}" if finite else "The embeddings hold NaN or infinity"
            raise FloatingPointError(
                f"{what} at step {step}: lower the learning_rate or set clip_gradient, then start again."
            )
