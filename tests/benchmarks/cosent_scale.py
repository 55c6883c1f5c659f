"""Scales of CoSENT: numbers, and multiples of 1 / standard deviation of a batch's cosines.

    python tests/benchmarks/cosent_scale.py [--sets heads elpv ..] [--seeds 2] [--steps 150] [--json FILE]

A figure is the mean score@10 of linear heads of 64 dimensions, by the set-up of ``defaults.py``, whose sets these are.
"2 / spread" follows the spread of the cosines of each batch, at most 299.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from defaults import open_any  # beside this file
from equal_labels import head_config, score, score_loss
from figures_file import add_json_option, write_figures
from torch import Tensor

from cml.losses.cosent import MOST, CoSENTLoss, cosent_mean
from cml.losses.embedding_checks import unit_rows
from cml.losses.own_column import comparable_pairs
from cml.losses.row_mean import RowMean


class SpreadCoSENT(CoSENTLoss):
    """CoSENT with a scale that follows the spread of the cosines of a batch.

    Args:
        multiple: Of 1 / standard deviation of the cosines, above 0.
    """

    takes_heads = False

    def __init__(self, multiple: float) -> None:
        super().__init__()
        self.multiple = multiple

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of embeddings (B, D) and label distances (A, B)."""
        with torch.no_grad():
            points = unit_rows(embeddings)
            cosines = (points[: len(label_distances)] @ points.mT)[comparable_pairs(label_distances)]
        scale = min(self.multiple / float(cosines.std()), MOST - 1)
        return cosent_mean(embeddings, label_distances, scale=scale)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["curve", "clusters-20", "heads", "digits", "elpv"])
    parser.add_argument("--scales", type=float, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--multiples", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--items", type=int, default=1600, help="training items of a set, at most")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    losses = {f"{scale:g}": CoSENTLoss(scale) for scale in given.scales}
    losses |= {f"{multiple:g} / spread": SpreadCoSENT(multiple) for multiple in given.multiples}
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        vectors = open_any(name, given.items)
        config = head_config(name, given.steps)
        figures[name] = {"frozen": [score(vectors, vectors.queries, vectors.gallery)]}
        for title, loss in losses.items():
            seeds = range(1, given.seeds + 1)
            figures[name][title] = [score_loss(vectors, loss, replace(config, seed=seed)) for seed in seeds]
        texts = (f"{title} {np.mean(values):.3f}" for title, values in figures[name].items())
        print(f"{name:12} {', '.join(texts)}", flush=True)
    write_figures(given.json, figures)


if __name__ == "__main__":
    main()
