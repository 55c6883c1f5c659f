"""Low-rank adapters (LoRA) on the linear layers of a backbone, through peft: a few per cent of its weights are trained.

They are merged into the weights at the end, so that a run's model is like any other.
"""

from typing import Any

from torch import nn

from cml.errors import UserError, require_extra
from cml.models.embedding import EmbeddingModel

_SCALE = 2  # factor of an adapter's output, for every rank


class LoraAdapters:
    """Adapters of a model that is on its device; the backbone's own weights are no longer trained.

    Reference: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.
    """

    def __init__(self, model: EmbeddingModel, rank: int) -> None:
        self._tuner: Any = None
        if not rank:
            return
        # exact type: torch's own attention uses the weights of its output layer, of a subclass, without calling it
        linear = {name: module for name, module in model.backbone.named_modules() if type(module) is nn.Linear}
        adaptable = sum(layer.weight.numel() for layer in linear.values())
        if 2 * adaptable <= sum(parameter.numel() for parameter in model.backbone.parameters()):
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
        """Merge the adapters into the weights of the backbone."""
        if self._tuner is not None:
            self._tuner.merge_and_unload()
            self._tuner = None
