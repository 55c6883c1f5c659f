"""Batch normalisation whose statistics are those of all processes' images, as if one process had them all.

On GPUs that is torch's ``SyncBatchNorm``, which does not run on a CPU; there it is this file. Not for: parameters'
gradients, which are each process's part and are added up with those of the rest of the network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from cml.processes.ranks import Ranks


def share_batch_norm(network: nn.Module, ranks: Ranks) -> None:
    """Let every batch normalisation of a network see the images of all processes while it trains.

    Parameters, buffers and the names in a ``state_dict`` stay; in evaluation mode nothing changes.
    """
    if ranks.size == 1:
        return
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
                setattr(parent, name, _SharedBatchNorm(child, ranks))


class _SharedBatchNorm(nn.SyncBatchNorm):
    def __init__(self, like: _BatchNorm, ranks: Ranks) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats)
        self._parameters, self._buffers = like._parameters, like._buffers  # the same tensors, not copies
        self.training = like.training
        self._ranks = ranks

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not torch.distributed.is_initialized():
            return super().forward(input)
        normalized, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps, self._ranks)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean), share)
            self.running_var.lerp_((variance * (count / (count - 1))).to(self.running_var), share)
        output: Tensor = normalized
        return output


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it no public type
        values: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        ranks: Ranks,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values (b, C, ..) of this process, normalised; mean (C,), variance (C,) and number of everybody's values."""
        channels = values.shape[1]
        full = values if values.dtype == torch.float64 else values.float()
        others = [axis for axis in range(values.ndim) if axis != 1]
        number = values.numel() // channels
        table = full.new_zeros(ranks.size, 2 * channels + 1)  # a row a process: mean, variance, number of values
        if number:
            variance, mean = torch.var_mean(full, others, correction=0)
            table[ranks.rank] = torch.cat([mean, variance, mean.new_tensor([number])])
        ranks.add_up(table)
        means, variances, numbers = torch.split(table, [channels, channels, 1], dim=1)
        count = numbers.sum()
        if count <= 1:
            raise ValueError("Batch normalisation needs more than one value a channel to train.")
        mean = (numbers * means).sum(0) / count
        variance = (numbers * (variances + (means - mean).square())).sum(0) / count
        output = functional.batch_norm(values, mean, variance, weight, bias, False, 0.0, eps)
        ctx.save_for_backward(values, weight, mean, (variance + eps).rsqrt(), count)
        ctx.ranks, ctx.others = ranks, others
        ctx.mark_non_differentiable(mean, variance, count)
        return output, mean, variance, count

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        values, weight, mean, inverse, count = ctx.saved_tensors
        shape = [1, -1, *[1] * (values.ndim - 2)]
        slopes = gradient.to(mean.dtype)
        unit = (values.to(mean.dtype) - mean.view(shape)) * inverse.view(shape)  # (b, C, ..)
        own = torch.stack([slopes.sum(ctx.others), (slopes * unit).sum(ctx.others)])  # (2, C)
        mean_slope, mean_product = ctx.ranks.add_up(own.clone()) / count
        factor = inverse if weight is None else inverse * weight
        slopes = factor.view(shape) * (slopes - mean_slope.view(shape) - unit * mean_product.view(shape))
        of_weight, of_bias = (None, None) if weight is None else (own[1], own[0])
        return slopes.to(values.dtype), of_weight, of_bias, None, None
