"""How the publishers of a dataset measure Recall@K, as dataset.json states it."""

import math
from collections.abc import Sequence

from cml.data.dataset_info import DatasetInfo
from cml.errors import DataError


def published_recall_ks(info: DatasetInfo) -> Sequence[int]:
    """The K of Recall@K that the dataset was published with; none if dataset.json lists none.

    Raises:
        DataError: dataset.json lists something else than whole numbers of at least 1.
    """
    ks = info.details.get("recall_ks")
    if ks is None:
        return ()
    if not isinstance(ks, list | tuple) or not ks or not all(isinstance(k, int) and k >= 1 for k in ks):
        where = f"dataset.json of {info.name!r}: details.recall_ks"
        raise DataError(f"{where} should list whole numbers of at least 1. Got {ks!r} instead.")
    return ks


def published_recall_within(info: DatasetInfo) -> float:
    """The label distance up to which the dataset's publishers count an item as relevant to Recall@K; 0 for none.

    Raises:
        DataError: dataset.json has something else than a label distance of at least 0.
    """
    within = info.details.get("recall_within", 0)
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within < math.inf:
        where = f"dataset.json of {info.name!r}: details.recall_within"
        raise DataError(f"{where} should be a label distance of at least 0. Got {within!r} instead.")
    return within
