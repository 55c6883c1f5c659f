"""Groups of inputs, such as subjects or sessions, that are held out as a whole."""

from typing import Any

import numpy as np

from cml.array_types import Int64
from cml.data.image_sources import label_list
from cml.errors import UserError


def number_groups(
    groups: Any,  # noqa: ANN401 - a sequence of any names
    count: int,
) -> Int64:  # (N,) the number of each input's group
    """Number the groups of inputs."""
    names = label_list(groups)
    if len(names) != count:
        raise UserError(
            f"'groups' must name a group for each input. Got {len(names)} names and {count} inputs instead."
        )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)
