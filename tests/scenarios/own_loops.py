"""Training loops as users write them, in plain PyTorch, Lightning and Accelerate, for test_own_loops.py.

Run by torchrun, each rank writes its gradients and what it was given; called with one process, they are the answers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import cml
from cml.distributed import cached_backward, gather
from cml.errors import UserError
from cml.launch import launch
from cml.losses import CrossBatchMemory, mask_duplicates
from cml.losses.loss import Loss
from cml.sampling.epoch_batches import Batch, EpochBatches

ITEMS, STEPS, MICRO_BATCH = 52, 4, 3
RATE = 0.0  # every gradient is compared at the same weights
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(ITEMS, 6, generator=GENERATOR)
LABELS = torch.rand(ITEMS, 2, generator=GENERATOR)
CLASSES = torch.arange(ITEMS) % 4
DISTANCE = cml.distances.get("euclidean")
ENCODED = DISTANCE.encode(LABELS)


class Case(NamedTuple):
    """A sampler, a loss, and how many embeddings are remembered."""

    sampler: str
    loss: str
    memory: int = 0


CASES = {  # batches of 13 items, of which the first process has 7
    "random": Case("random(batch_size=13)", "log-ratio"),
    "one-anchor": Case("dense(batch_size=13)", "dense-triplet"),
    "memory": Case("grouped(batch_size=13, groups=3)", "log-ratio", 20),
    "proxies": Case("per-class(batch_size=13, per_class=4)", "proxy-anchor"),
}


class Numbered(Dataset[tuple[Tensor, int]]):
    """Inputs with the numbers of their items."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        return INPUTS[item], item


class Embedding(nn.Module):
    """A network, the loss and what it needs: the same at each start."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.network: nn.Module = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        self.loss: Loss = cml.losses.get(case.loss)
        if self.loss.labels == "classes":
            self.loss.prepare(CLASSES, dimension=4)
        else:
            self.loss.fit(DISTANCE, ENCODED)
        self.memory = CrossBatchMemory(case.memory)

    def value(self, own: Tensor, items: Tensor, anchors: int) -> Tensor:
        """The loss of the whole batch, of this process's embeddings."""
        embeddings = gather(own)
        if self.loss.labels == "classes":
            found: Tensor = self.loss(embeddings, CLASSES[items])
            return found
        columns = torch.cat([items, self.memory.items])
        block = mask_duplicates(DISTANCE.pairwise(ENCODED[items[:anchors]], ENCODED[columns]), items, self.memory.items)
        found = self.loss(self.memory.augment(embeddings), block)
        return found


def batches_of(case: Case) -> EpochBatches:
    labels = ("classes", CLASSES) if "per-class" in case.sampler else (DISTANCE, ENCODED)
    return cml.sampling.get(case.sampler).batches(*labels, seed=3)


class Record:
    """What a process saw: its gradients of each step, and its items."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.items: list[list[int]] = []

    def step(self, name: str, model: Embedding, items: Tensor) -> None:
        number = len(self.items)
        self.items.append(items.tolist())
        network = getattr(model.network, "module", model.network)
        for kind, module in (("network", network), ("loss", model.loss)):
            for key, parameter in module.named_parameters():
                assert parameter.grad is not None, key
                self.tensors[f"{name}.{number}.{kind}.{key}"] = parameter.grad.clone()
        if model.memory.size:
            self.tensors[f"{name}.{number}.memory"] = model.memory.embeddings.clone()


Found = dict[str, Record]


def plain() -> Found:
    """A loop in plain PyTorch, whole and cached, with ``DistributedDataParallel`` in several processes."""
    found = {}
    for name, case in CASES.items():
        for cached in (False, True):
            model, record, batches = Embedding(case), Record(), batches_of(case)
            if torch.distributed.is_initialized():
                model.network = DistributedDataParallel(model.network)
            optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
            for own_inputs, own_items in DataLoader(Numbered(), batch_sampler=batches):
                optimizer.zero_grad()
                items = gather(own_items)
                loss_of = functools.partial(model.value, items=items, anchors=batches.anchors)
                if cached:
                    _, embeddings = cached_backward(model.network, loss_of, own_inputs, micro_batch=MICRO_BATCH)
                else:
                    embeddings = model.network(own_inputs)
                    loss_of(embeddings).backward()
                model.memory.store(gather(embeddings.detach()), items)
                record.step(name, model, own_items)
                optimizer.step()
                if len(record.items) == STEPS:
                    break
            found[f"{name}.{'cached' if cached else 'whole'}"] = record
    return found


def in_lightning(folder: Path) -> Found:
    """The same in Lightning: the loss is a part of the module, so Lightning averages its gradients too."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, name: str, cached: bool) -> None:
            super().__init__()
            self.name, self.record = name, Record()
            self.model = Embedding(CASES[name])
            self.batches = batches_of(CASES[name])
            self.automatic_optimization = not cached

        def train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(Numbered(), batch_sampler=self.batches)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor | None:
            own_inputs, self.own_items = batch
            items = gather(self.own_items)
            loss_of = functools.partial(self.model.value, items=items, anchors=self.batches.anchors)
            if self.automatic_optimization:
                embeddings = self.model.network(own_inputs)
                value = loss_of(embeddings)
                self.model.memory.store(gather(embeddings.detach()), items)
                return value
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            _, embeddings = cached_backward(self.model.network, loss_of, own_inputs, micro_batch=MICRO_BATCH)
            self.model.memory.store(gather(embeddings), items)
            optimizer.step()
            return None

        def on_before_optimizer_step(self, _: object) -> None:
            self.record.step(self.name, self.model, self.own_items)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    found = {}
    for name in CASES:
        for cached in (False, True):
            module = Module(name, cached)
            trainer(folder).fit(module)
            found[f"{name}.{'cached' if cached else 'whole'}"] = module.record
    return found


def trainer(folder: Path, *, splits: bool = False) -> Any:  # noqa: ANN401 - of a package imported here
    """A trainer of Lightning that writes and prints nothing, on as many processes as torchrun has started."""
    import lightning

    size = launch().size
    return lightning.Trainer(
        accelerator="cpu", devices=size, strategy="ddp" if size > 1 else "auto", logger=False, default_root_dir=folder,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, max_steps=STEPS,
        use_distributed_sampler=splits,
    )  # fmt: skip


def in_accelerate() -> Found:
    """The same in Accelerate, whose ``prepare`` deals out the batches of the loader."""
    import accelerate

    found = {}
    for name, case in CASES.items():
        for cached in (False, True):
            accelerator = accelerate.Accelerator(cpu=True)
            model, record, batches = Embedding(case), Record(), batches_of(case)
            optimizer: Any = torch.optim.SGD(model.parameters(), lr=RATE)
            loader: Any = DataLoader(Numbered(), batch_sampler=batches)
            model.network, optimizer, loader = accelerator.prepare(model.network, optimizer, loader)
            assert len(loader) == len(batches)
            for own_inputs, own_items in loader:
                optimizer.zero_grad()
                items = gather(own_items)
                loss_of = functools.partial(model.value, items=items, anchors=batches.anchors)
                if cached:
                    _, embeddings = cached_backward(
                        model.network, loss_of, own_inputs, micro_batch=MICRO_BATCH, backward=accelerator.backward
                    )
                else:
                    embeddings = model.network(own_inputs)
                    accelerator.backward(loss_of(embeddings))
                model.memory.store(gather(embeddings.detach()), items)
                record.step(name, model, own_items)
                optimizer.step()
                if len(record.items) == STEPS:
                    break
            found[f"{name}.{'cached' if cached else 'whole'}"] = record
    return found


def error_of(call: Callable[[], object]) -> str:
    """The message of the ``UserError`` of a call."""
    try:
        call()
    except UserError as error:
        return str(error)
    return ""


def gathered(rank: int) -> dict[str, Any]:
    """What ``gather`` makes of rows of all kinds, of which the first process has three and the second one."""
    own = slice(0, 3) if rank == 0 else slice(3, 4)
    numbers = torch.arange(8.0).reshape(4, 2)[own]
    captions = [{"text": text} for text in "abcd"]
    labels = gather(ENCODED[own])
    facts: dict[str, Any] = {
        "types": {
            str(dtype): [str(found.dtype), found.tolist()]
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
            for found in [gather(numbers.to(dtype))]
        },
        "array": gather(np.arange(4, dtype=np.uint16)[own]).tolist(),
        "texts": gather(np.array(["a", "bc", "d", "e"])[own]).tolist(),
        "list": gather(captions[own]),
        "tuple": gather(tuple("abcd")[own]),
        "labels": bool(np.array_equal(DISTANCE.pairwise(labels, labels), DISTANCE.pairwise(ENCODED[:4], ENCODED[:4]))),
        "none of one": gather(torch.ones(0 if rank else 2, 3)).shape,
        "not a number": bool(gather(torch.full((1, 2), torch.nan if rank else torch.inf)).isnan().any()),
        "other shape": error_of(lambda: gather(torch.ones(2, 2 + rank))),
        "other type": error_of(lambda: gather([1.0] if rank else np.ones(1))),
        "no gradient": error_of(lambda: gather(torch.ones(2, 2, requires_grad=rank == 0))),
    }
    point = numbers.clone().requires_grad_()  # the second derivative of the sum of cubes, from gradients of all ranks
    (slope,) = torch.autograd.grad(gather(point).pow(3).sum(), point, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), point)
    facts["slope"], facts["curvature"] = slope.tolist(), curvature.tolist()
    with torch.no_grad():
        facts["quiet"] = gather(torch.ones(1, 1, requires_grad=rank == 0)).requires_grad
    return facts


def batch_facts() -> dict[str, Any]:
    """What the batches of a sampler say of themselves in a process, and what becomes of ones that are too small."""
    batches = batches_of(CASES["random"])
    next(iter(batches))
    small = EpochBatches(lambda step: Batch(np.arange(1), 1), 5, batch_size=1)
    return {
        "sizes": [batches.batch_size, len(batches)],
        "state": batches.state_dict(),
        "too small": error_of(lambda: iter(small)),
    }


def refused_by_lightning(folder: Path) -> str:
    """What is said where Lightning would split the batches a second time."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Linear(6, 4)

        def training_step(self, batch: object, _: int) -> None:
            raise AssertionError

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    loader = DataLoader(Numbered(), batch_sampler=batches_of(CASES["random"]))
    return error_of(lambda: trainer(folder, splits=True).fit(Module(), loader))


def refused_by_accelerate() -> str:
    """What is said where Accelerate would split the batches a second time."""
    import accelerate
    from accelerate.utils import DataLoaderConfiguration

    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    batches = cml.sampling.get("random(batch_size=12)").batches(DISTANCE, ENCODED)
    return error_of(lambda: list(accelerator.prepare(DataLoader(Numbered(), batch_sampler=batches))))


def main(kind: str, folder: Path) -> None:
    facts: dict[str, Any] = {}
    if kind == "plain":
        torch.distributed.init_process_group("gloo")
        found = plain()
        facts = gathered(torch.distributed.get_rank()) | {"batches": batch_facts()}
    elif kind == "lightning":
        found = in_lightning(folder)
        facts = {"refused": refused_by_lightning(folder)}
    else:
        found = in_accelerate()
        facts = {"refused": refused_by_accelerate()}
    rank = torch.distributed.get_rank()
    tensors = {f"{way}/{key}": value for way, record in found.items() for key, value in record.tensors.items()}
    save_file(tensors, str(folder / f"{kind}.rank{rank}"))
    items = {way: record.items for way, record in found.items()}
    (folder / f"{kind}.rank{rank}.json").write_text(json.dumps({"items": items, **facts}))
    with contextlib.suppress(RuntimeError, AssertionError):
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lightning")
    main(sys.argv[1], Path(sys.argv[2]))
