"""Hard mining for continuous labels: log-ratio over the pairs or anchors that violate it most, beside all of them.

    python tests/benchmarks/hard_mining.py [--sets people elpv ..] [--seeds 3] [--share 0.5] [--json FILE]

In the closed form, a triplet of an anchor has the loss (r_i - r_j)^2, where r are the residuals of its pairs. So the
hardest triplets are those between pairs far from the anchor's mean residual, and they are found in O(A B) without
forming any triplet. Each row trains heads of 64 dimensions on frozen features for 300 steps, and keeps ``--share`` of

- hard pairs: those of each anchor with the largest |r - mean|;
- semi-hard pairs: the same without the hardest tenth, which labels that are wrong would fill;
- easy pairs: those with the smallest;
- random pairs;
- hard anchors: those with the largest variance of r, of all their pairs;
- random anchors.

"all, batch / 2" sees half as many items in a batch: mining costs a forward pass of items that it leaves out. A figure
is the mean score@10 (``equal_labels.py``); sets are those of ``defaults.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from defaults import open_any  # beside this file
from equal_labels import head_config, score, score_loss
from figures_file import add_json_option, write_figures
from torch import Tensor

from cml.losses.log_ratio import LogRatioLoss, raise_to_floor
from cml.losses.own_column import comparable_pairs
from cml.losses.row_mean import RowMean

Kept = Literal["all", "hard pairs", "semi-hard pairs", "easy pairs", "random pairs", "hard anchors", "random anchors"]
_HARDEST = 0.1  # of an anchor's pairs, which semi-hard mining leaves out
_BATCH = 64


class MinedLogRatio(LogRatioLoss):
    """Log-ratio over a share of the pairs or of the anchors of a batch.

    Args:
        kept: What it keeps.
        share: Of the pairs of each anchor, or of the anchors, in (0, 1].
    """

    takes_heads = False

    def __init__(self, kept: Kept, share: float) -> None:
        super().__init__()
        self.kept, self.share = kept, share

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of embeddings (B, D) and label distances (A, B), of which those left out become infinite."""
        if self.kept == "all":
            return super().mean(embeddings, label_distances)
        used = comparable_pairs(label_distances)
        with torch.no_grad():
            residuals = self._residuals(embeddings, label_distances).masked_fill(~used, torch.nan)
            deviations = (residuals - residuals.nanmean(dim=1, keepdim=True)).abs()  # (A, B)
            left_out = ~self._choose(deviations)
        return super().mean(embeddings, label_distances.masked_fill(left_out, torch.inf))

    def _residuals(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """Log squared distances less p times log label distances, (A, B)."""
        points = torch.nn.functional.normalize(embeddings, dim=1)
        squared = torch.cdist(points[: len(label_distances)], points).square()
        labels = raise_to_floor(label_distances.clone(), self.constant("floor"), self.zero_factor)
        return (squared + self.eps).log() - self.constant("label_exponent") * labels.log()

    def _choose(self, deviations: Tensor) -> Tensor:
        """Which pairs are kept (A, B), by their deviations from the mean residual; NaN where there is no pair."""
        if self.kept.endswith("anchors"):
            hardness = deviations.square().nanmean(dim=1)
            chosen = torch.rand_like(hardness) if self.kept == "random anchors" else hardness
            return (chosen >= chosen.quantile(1 - self.share))[:, None].expand(deviations.shape)
        if self.kept == "random pairs":
            deviations = torch.rand_like(deviations) + 0 * deviations
        first, last = {
            "easy pairs": (0.0, self.share),
            "semi-hard pairs": (1 - self.share - _HARDEST, 1 - _HARDEST),
        }.get(self.kept, (1 - self.share, 1.0))
        low, high = (deviations.nanquantile(end, dim=1, keepdim=True) for end in (first, last))
        return (deviations >= low) & (deviations <= high)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["people", "heads", "elpv", "curve"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--items", type=int, default=1600, help="training items of a set, at most")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        vectors = open_any(name, given.items)
        rows: list[tuple[str, Kept, int]] = [(kept, kept, _BATCH) for kept in get_args(Kept)]
        rows.append(("all, batch / 2", "all", _BATCH // 2))
        figures[name] = {"frozen": [score(vectors, vectors.queries, vectors.gallery)]}
        for row, kept, batch in rows:
            config = replace(head_config(name, given.steps), sampler=f"random(batch_size={batch})")
            seeds = range(1, given.seeds + 1)
            loss = MinedLogRatio(kept, given.share)
            figures[name][row] = [score_loss(vectors, loss, replace(config, seed=seed)) for seed in seeds]
        texts = (f"{row} {np.mean(values):.3f} +- {np.std(values):.3f}" for row, values in figures[name].items())
        print(f"{name}: {', '.join(texts)}", flush=True)
    write_figures(given.json, figures)


if __name__ == "__main__":
    main()
