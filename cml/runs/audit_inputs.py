"""The audit of labels that are given in Python."""

from collections.abc import Sequence
from typing import Any

from cml.array_types import Float32, Int64
from cml.distances.label_distance import LabelDistance
from cml.errors import UserError
from cml.runs.audit_list import AuditList
from cml.runs.explore_inputs import describe_label
from cml.training.audit import audit_labels


def audit_inputs(
    features: Float32,
    labels: Sequence[Any],
    distance: LabelDistance,
    *,
    names: Sequence[str] | None = None,
    groups: Int64 | None = None,
    seed: int = 0,
) -> AuditList:
    """Audit labels that are given in Python; see ``cml.Model.audit``.

    Args:
        features: (N, F) features that do not depend on the labels.
        labels: N labels.
        distance: The label distance.
        names: Names of the items; their numbers when not given.
        groups: (N,) numbers of groups; None for none.
        seed: Random seed.

    Returns:
        The list.

    Raises:
        UserError: There is another number of names, fewer than 30 items, or labels that do not differ.
    """
    count = len(labels)
    if names is not None and len(names) != count:
        raise UserError(f"'names' must be as many as the {count} inputs. Got {len(names)} instead.")
    audit = audit_labels(features, distance.encode(labels), distance, groups=groups, seed=seed)
    shown = list(map(str, range(count) if names is None else names))
    return AuditList(audit, shown, [describe_label(label) for label in labels], [""] * count)
