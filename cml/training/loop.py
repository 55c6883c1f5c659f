"""The training loop, to be read top to bottom.

Set-up: loss constants, neighbour lists, model, optimiser. Then step after step: a batch by its number, embeddings,
loss, update. A checkpoint holds all that the next step depends on, so a run cut off anywhere and resumed gives, on the
CPU, bit for bit the run that was never cut off; a signal ends it after the step under way, with a checkpoint
(stopping.py). The same seed, machine and number of torch's threads give the same bits, whatever the number of data
workers; other threads or devices may add in another order (tests/benchmarks/threads.py measures it). Not for:
evaluation and pictures, which later stages do.
"""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from cml import losses, sampling
from cml.data.augmentation import Jitter
from cml.distances.label_distance import Float32
from cml.losses.loss import Loss
from cml.losses.memory import CrossBatchMemory
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.batch_norm import share_batch_norm
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.training import gradient_cache, metrics_log, run_folder, stopping, workers
from cml.training.batches import BatchSource, TrainingData
from cml.training.config import TrainConfig
from cml.training.optimizer import check_held, learning_rate_factor, make_optimizer
from cml.training.targets import TrainingLabels

LOG_EVERY = 10  # steps whose losses are fetched from the device together

Validate = Callable[[EmbeddingModel, TrainingData], float]


@dataclass(frozen=True)
class Trained:
    """What training leaves behind.

    Attributes:
        model: In evaluation mode, with the best weights where the run was validated, else the last.
        loss: The loss with its fitted constants.
        metrics: The records of metrics.jsonl.
    """

    model: EmbeddingModel
    loss: Loss
    metrics: list[dict[str, Any]]


@stopping.heard_no_more()
@workers.ended()
def train(
    data: TrainingData,
    config: TrainConfig,
    *,
    out: Path | None = None,
    resume: bool = False,
    validate: Validate | None = None,
    features: Float32 | None = None,
    quiet: bool = False,
    ranks: Ranks | None = None,
    backbone: torch.nn.Module | Backbone | None = None,
) -> Trained:
    """Train an embedding.

    Args:
        data: Images and labels to train on.
        config: All options.
        out: Run folder for metrics, checkpoints and the model, made by ``run_folder.begun``; None writes nothing.
        resume: Continue from the folder's last checkpoint if there is one.
        validate: Score of a model on held-out training data, lower is better; used every ``evaluate_every`` steps.
        features: (N, F) backbone features of the images, for ``freeze_backbone``; computed when not given.
        quiet: No progress bar.
        ranks: The processes that train together, from ``distributed.joined``; None for this one alone.
        backbone: A module of the user's own, which ``config.backbone`` then calls ``custom``; it is trained in place.

    Raises:
        UserError: options that do not fit the data.
        FloatingPointError: the loss is no longer a number.
        MachineError: a data worker died, hung or ran out of memory.
        KeyboardInterrupt: a signal; with ``out``, after a checkpoint.
    """
    ranks = Ranks(device=pick_device(config.device)) if ranks is None else ranks
    device, folder = ranks.device, out if ranks.first else None
    same = f"{config} {data.labels.fingerprint()}" if ranks.size > 1 else ""
    ranks.check_same("options or training data", same, "Start all processes with one command line on one data set.")
    torch.manual_seed(config.seed)
    sampler = sampling.registry.make(config.sampler)
    loss = losses.registry.make(config.loss)
    model = EmbeddingModel(model_config(config, loss), backbone=backbone).to(device)
    if loss.starts_at_zero:
        torch.nn.init.zeros_(model.head.weight)

    held_out = None
    if config.evaluate_every and validate is not None:
        data, held_out = data.held_out(config.validation_share)
        features = None if features is None else features[: len(data)]
    data.images.load()
    if config.freeze_backbone:
        if features is None:
            features = ranks.rows(len(data), lambda rows: model.extract(data.images.subset(rows)))
        model.backbone.requires_grad_(False).eval()
    training = TrainingLabels(data.distance, data.labels, seed=config.seed, ranks=ranks)
    loss.prepare(
        loss.target(training),
        dimension=config.dimension,
        names=training.class_names(),
        generator=torch.Generator().manual_seed(config.seed),
    )
    loss.to(device)
    share_batch_norm(model, ranks)
    ranks.start_alike(model, loss)
    if folder is not None:
        run_folder.save_loss_constants(folder, loss.fitted())
    optimizer = make_optimizer(model, loss, config)
    memory = CrossBatchMemory(config.memory)

    # what the next step depends on, and nothing else, is the checkpoint
    first, best, best_weights = 0, math.inf, None
    state = run_folder.load_checkpoint(out) if out is not None and resume else None
    if state is not None:
        with run_folder.fitting_checkpoint(out):
            first, best, best_weights = int(state["step"]), float(state["best"]), state["best_weights"]
            model.load_state_dict(state["model"])
            loss.load_state_dict(state["loss"])
            optimizer.load_state_dict(state["optimizer"])
            if config.memory:
                memory.load_state_dict(state["memory"])
            torch.set_rng_state(state["rng"])
            if state["device_rng"] is not None and device.type == "cuda":
                torch.cuda.set_rng_state(state["device_rng"], device)
    ranks.check_same("a checkpoint", str(first), "The run folder must lie where every machine sees it.")

    def checkpoint(step: int) -> None:
        if folder is not None:
            state = {
                "step": step,
                "model": model.state_dict(),
                "loss": loss.state_dict(),
                "optimizer": optimizer.state_dict(),
                "memory": memory.state_dict(),
                "best": best,
                "best_weights": best_weights,
                "rng": torch.get_rng_state(),
                "device_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            }
            run_folder.save_checkpoint(folder, state)

    source = BatchSource(
        data,
        sampler,
        sampler.given(training),
        seed=config.seed,
        image_size=config.image_size,
        jitter=Jitter(config.crop, config.scale_jitter, config.shift_jitter, config.brightness_jitter),
        flip=config.flip,
        features=features if config.freeze_backbone else None,
        target=loss.target,
        memory=config.memory,
        ranks=ranks,
    )
    source[first] if first < config.steps else None  # a batch that cannot be made fails here, not in a data worker
    log = metrics_log.MetricsLog(None if folder is None else folder / "metrics.jsonl", first)
    embed = model.embed_features if config.freeze_backbone else model.forward

    def cast() -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")

    def loss_of(embeddings: Tensor, targets: Tensor, items: int, step: int) -> Tensor:
        value: Tensor = loss(memory.extended(ranks.gather(embeddings, items)), targets)
        if step == first:
            check_held(optimizer, value, loss, embeddings)
        return value

    model.train()
    if config.freeze_backbone:
        model.backbone.eval()
    waiting: list[tuple[int, Tensor]] = []  # of each step (loss, whether the embeddings are numbers)
    bar = tqdm(
        total=config.steps,
        initial=first,
        unit="step",
        desc=config.loss.partition("(")[0],
        disable=quiet or not ranks.first,
    )
    began, seen = time.perf_counter(), 0
    batches = source.steps(first, config.steps, config.workers, config.worker_timeout)
    request = stopping.StopRequest()
    if out is not None:
        request.listen()
    for step, (inputs, targets) in enumerate(batches, first):
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * learning_rate_factor(config, step)
        optimizer.zero_grad(set_to_none=True)
        ranks.reseed(config.seed, step)
        items = source.items(step)  # (B,), of which each process has its share
        targets = source.shared(targets.to(device, non_blocking=True), step)
        value, embeddings = gradient_cache.backward(
            model,
            embed,
            functools.partial(loss_of, targets=targets, items=len(items), step=step),
            inputs.to(device, non_blocking=True),
            micro_batch=config.micro_batch,
            largest=ranks.largest_share(len(items)),
            cast=cast,
        )
        ranks.sum_gradients(model, loss)
        embeddings = ranks.gather(embeddings, len(items))
        if config.clip_gradient is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_gradient)
        optimizer.step()
        if config.memory:
            memory.store(embeddings, torch.from_numpy(items))

        done, stop = step + 1, ranks.any(request.made)
        seen += len(items)
        waiting.append((done, torch.stack([value, embeddings.isfinite().all().float()])))
        if done % LOG_EVERY == 0 or done == config.steps or done % config.checkpoint_every == 0 or stop:
            pairs = torch.stack([pair for _, pair in waiting]).tolist()
            _check_finite(waiting[0][0], pairs)
            values = [value for value, _ in pairs]
            log.add([{"step": number, "loss": one} for (number, _), one in zip(waiting, values, strict=True)])
            waiting.clear()
            rate = seen / (time.perf_counter() - began)
            bar.set_postfix_str(f"loss {values[-1]:.4f}, {rate:.0f} images/s", refresh=False)
        bar.update()
        if held_out is not None and validate is not None and done % config.evaluate_every == 0:
            score = ranks.agreed(validate(model.eval(), held_out))
            model.train()
            if config.freeze_backbone:
                model.backbone.eval()
            log.add([{"step": done, "validation": score}])
            if score < best:
                best, best_weights = score, copy.deepcopy(model.state_dict())
        if (done % config.checkpoint_every == 0 or stop) and done < config.steps:
            checkpoint(done)
            if stop:
                ranks.wait()  # were the others gone, the watch would end rank 0 while it writes
                request.stop(done, config.steps)
    bar.close()
    checkpoint(config.steps)
    if best_weights is not None:
        model.load_state_dict(best_weights)
    model.eval()
    if folder is not None:
        run_folder.save_loss(folder, loss)
        run_folder.save_model(folder / run_folder.MODEL, model)
    return Trained(model, loss, log.records)


def model_config(config: TrainConfig, loss: Loss) -> ModelConfig:
    """Shape of the model; whether embeddings are normalised is the loss's to say."""
    return ModelConfig(
        backbone=config.backbone,
        weights=config.weights,
        dimension=config.dimension,
        normalize=loss.normalize,
        image_size=config.image_size,
        crop=config.crop,
    )


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    """Stop the run at a loss or an embedding that is no number; some losses would not show the latter."""
    for step, (value, finite) in enumerate(pairs, first):
        if not finite or not math.isfinite(value):
            what = f"The loss is {value}" if finite else "The embeddings hold NaN or infinity"
            raise FloatingPointError(
                f"{what} at step {step}: lower the learning_rate or set clip_gradient, then start anew."
            )
