"""Training little of a model: its head on a frozen backbone, or low-rank adapters on a transformer."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.data.images import Images
from cml.distances.label_distance import Float32
from cml.errors import UserError, require_extra
from cml.models.embedding import EmbeddingModel, frozen_features
from cml.processes.ranks import Ranks

_SCALE = 2  # factor of an adapter's output, for every rank


class Features:
    """Backbone features (N, F) instead of N images."""

    def __init__(self, rows: Float32) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, items: slice) -> "Features":
        """A part of them."""
        return Features(self.rows[items])

    def load(self) -> None:
        """Nothing to do: they are in memory."""

    def read(self, items: NDArray[np.integer]) -> Float32:
        """The features (B, F) of ``items`` (B,)."""
        rows: Float32 = self.rows[items]
        return rows


class FrozenNetwork(nn.Module):
    """A model whose inputs are features: only its head is trained."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model
        model.backbone.requires_grad_(False).eval()

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of features (B, F)."""
        return self.model.embed_features(features)

    def embed(self, features: Features) -> Float32:
        """Embeddings (N, D), in evaluation mode."""
        return self.model.embed_extracted(features.rows)

    def train(self, mode: bool = True) -> Self:
        """Set only the head to training mode, so that the backbone's running statistics stay."""
        super().train(mode)
        self.model.backbone.eval()
        return self


def frozen(
    model: EmbeddingModel, images: Images | Features, ranks: Ranks, *, bar: str = ""
) -> tuple[FrozenNetwork, Features]:
    """The network and the inputs for training a model's head; ``bar`` is the title of a progress bar, if not empty."""
    network = FrozenNetwork(model)
    if isinstance(images, Features):
        return network, images
    if (paths := images.paths) is not None:
        return network, Features(
            ranks.compute_rows(len(images), lambda rows: frozen_features(model, paths[rows], bar=bar))
        )
    return network, Features(ranks.compute_rows(len(images), lambda rows: model.extract(images.subset(rows), bar=bar)))


class Adapters:
    """Low-rank adapters (LoRA), through peft, on the linear layers of a backbone; a ``rank`` of 0 makes none."""

    # The model is on its device; its backbone's own weights no longer learn. Merged at the end, they leave a model like
    # any other. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.

    def __init__(self, model: EmbeddingModel, rank: int) -> None:
        self._tuner: Any = None
        if not rank:
            return
        # exact type: torch's own attention uses the weights of its output layer, of a subclass, without calling it
        linear = {name: one for name, one in model.backbone.named_modules() if type(one) is nn.Linear}
        held = sum(one.weight.numel() for one in linear.values())
        if 2 * held <= sum(one.numel() for one in model.backbone.parameters()):
            raise UserError(
                f"Little of the backbone {model.config.backbone!r} is linear layers, which 'lora' adapts: use a "
                "transformer, such as timm/vit_small_patch14_dinov2.lvd142m, or leave out 'lora'."
            )
        with require_extra("lora", "'lora'"):
            from peft import LoraConfig
            from peft.tuners.lora import LoraModel
        options = LoraConfig(r=rank, lora_alpha=_SCALE * rank, target_modules=list(linear))
        self._tuner = LoraModel(model.backbone, options, "default")

    def merge(self) -> None:
        """Merge them into the weights."""
        if self._tuner is not None:
            self._tuner.merge_and_unload()
            self._tuner = None
