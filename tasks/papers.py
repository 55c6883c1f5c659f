"""Published experiments as data, which ``cml reproduce`` runs again and sets beside their figures.

What a paper leaves open is chosen in the module of the paper, and said in ``notes``.
"""

from collections.abc import Mapping

from cml.tasks import beyond_binary, proxy_anchor, rank_n_contrast
from cml.tasks.published_experiment import Experiment

PAPERS: Mapping[str, Mapping[str, Experiment]] = {
    "beyond-binary": beyond_binary.EXPERIMENTS,
    "rank-n-contrast": rank_n_contrast.EXPERIMENTS,
    "proxy-anchor": proxy_anchor.EXPERIMENTS,
}
"""Paper to its experiments by their datasets."""
