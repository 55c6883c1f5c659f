"""What cml adds to a model of timm: images a second of embedding and of training, beside the bare model.

Run: python tests/benchmarks/backbones.py [--backbones resnet18 vit_small_patch16_224] [--size 224] [--items 64]
     [--batch 16] [--rounds 3] [--device cpu]

Weights are random, which changes no time. Bare: the model of timm on float batches that were made beforehand, in the
same memory layout. cml: ``EmbeddingModel`` from uint8 pixels, with the head. The ways are taken in turn, and the best
round of each counts, because the machine may be shared. The last line is the least share of the bare model's pace that
cml keeps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import timm
import torch

from cml.models.embedding import EmbeddingModel, ModelConfig


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backbones", nargs="+", default=["resnet18", "vit_small_patch16_224"])
    for name, default in (("size", 224), ("items", 64), ("batch", 16), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    size, batch, device = (options.size, options.size), options.batch, torch.device(options.device)
    images = np.random.default_rng(0).integers(0, 256, (options.items, *size, 3), np.uint8)
    pixels = torch.randn(batch, 3, *size, device=device).contiguous(memory_format=torch.channels_last)
    passes, shares = -(-options.items // batch), []
    print(f"{'backbone':<28}{'embed':>10}{'bare':>10}{'train':>10}{'bare':>10}   images/s")
    for name in options.backbones:
        model = EmbeddingModel(ModelConfig(f"timm/{name}", "none", 128, True, size)).to(device)
        fixed = {"img_size": size} if model.backbone.pretrained_cfg["fixed_input_size"] else {}
        bare = timm.create_model(name, num_classes=0, **fixed).to(device, memory_format=torch.channels_last)
        raw = torch.from_numpy(images[:batch]).permute(0, 3, 1, 2).to(device)

        def embed_bare(bare: torch.nn.Module = bare) -> None:
            bare.eval()
            with torch.inference_mode():
                for _ in range(passes):
                    bare(pixels).float().cpu()

        def train(network: torch.nn.Module, given: torch.Tensor) -> None:
            network.train()
            for _ in range(passes):
                network(given).square().mean().backward()
                network.zero_grad()
            if device.type == "cuda":
                torch.cuda.synchronize()

        ways: list[Callable[[], object]] = [
            lambda model=model: model.embed(images, batch_size=batch),
            embed_bare,
            lambda model=model, raw=raw: train(model, raw),
            lambda bare=bare: train(bare, pixels),
        ]
        best = [0.0] * len(ways)
        for _ in range(options.rounds + 1):  # the first warms up
            for way, run in enumerate(ways):
                began = time.perf_counter()
                run()
                best[way] = max(best[way], passes * batch / (time.perf_counter() - began))
        print(f"{name:<28}" + "".join(f"{pace:>10.1f}" for pace in best))
        shares += [best[0] / best[1], best[2] / best[3]]
    print(f"{min(shares):.2f}")


if __name__ == "__main__":
    main()
