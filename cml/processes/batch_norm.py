"""Batch normalisation over all processes' images, also on CPUs, whose tensors torch's ``SyncBatchNorm`` refuses.

Without it, ``test_gradients_of_every_loss_are_those_of_one_process`` in tests/training/test_distributed.py fails.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cml.processes.ranks import Ranks, SumOverRanks


def share_batch_norm(network: nn.Module, ranks: Ranks) -> None:
    """Let every batch normalisation use all processes' images in training mode."""
    for parent in list(network.modules()) if ranks.size > 1 else ():
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
                setattr(parent, name, _SharedBatchNorm(child, ranks))


class _SharedBatchNorm(nn.SyncBatchNorm):
    def __init__(self, like: _BatchNorm, ranks: Ranks) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats)
        self._parameters, self._buffers = like._parameters, like._buffers  # the same tensors, not copies
        self._modules = like._modules  # modules inside the layer, such as an activation in timm's
        self.training = like.training
        self._ranks = ranks

    def forward(self, input: Tensor) -> Tensor:
        on_processor = input.device.type == "cpu" and torch.distributed.is_initialized()
        output: Tensor = self._normalize(input) if self.training and on_processor else super().forward(input)
        for module in self.children():
            output = module(output)
        return output

    def _normalize(self, input: Tensor) -> Tensor:
        values = input if input.dtype == torch.float64 else input.float()
        others, shape = [0, *range(2, values.ndim)], [1, -1, *[1] * (values.ndim - 2)]
        count = self._ranks.all_reduce(values.new_tensor(values.numel() // values.shape[1]))
        if count <= 1:
            raise ValueError("Batch normalisation needs more than one value per channel in training.")
        mean = SumOverRanks.apply(values.sum(others), self._ranks) / count  # (C,)
        centred = values - mean.view(shape)
        variance = SumOverRanks.apply(centred.square().sum(others), self._ranks) / count  # (C,)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach().to(self.running_mean), share)
            self.running_var.lerp_((variance.detach() * (count / (count - 1))).to(self.running_var), share)
        scale = (variance + self.eps).rsqrt()
        output = centred * (scale if self.weight is None else scale * self.weight).view(shape)
        output = output if self.bias is None else output + self.bias.view(shape)
        return torch.as_tensor(output, dtype=input.dtype)
