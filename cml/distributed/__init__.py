"""Batches in parts, for training loops of your own: over several processes, and over passes of a large batch.

- ``gather`` puts the embeddings, labels or item numbers of all processes together. Gradients flow back, so that each
  process computes the loss of the whole batch.
- ``cached_backward`` computes the gradient of a batch that is larger than the memory.

Both work in one process as well. The batches of a sampler, ``sampler.batches(...)``, give each process its part of a
batch. ``cml.fit`` and ``cml train`` under torchrun need none of this.
"""

from cml.distributed.cached_backward import cached_backward
from cml.distributed.gather import gather

__all__ = ["cached_backward", "gather"]
