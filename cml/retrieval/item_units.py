"""What is drawn independently in an evaluation: single items, or groups of them, such as patients or classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import UserError

FEWEST_CLASSES = 2  # on either side of a split: items of one class are all equally far from each other


@dataclass(frozen=True, eq=False)
class ItemUnits:
    """Numbers of the units that queries and gallery items belong to."""

    of_queries: Int64  # (Q,) numbers from 0
    of_gallery: Int64  # (G,) numbers from 0: the same ones where ``are_joint``, else numbers of their own
    queries: int  # number of units that hold queries; of all units where ``are_joint``
    gallery: int  # number of units that hold gallery items; of all units where ``are_joint``
    are_joint: bool  # whether one unit may hold queries and gallery items, so that both are drawn together
    are_groups: bool = False  # whether units are groups

    @classmethod
    def of(
        cls,
        queries: int,
        gallery: int,
        same_items: bool,
        groups: Sequence[Any] | None = None,
        gallery_groups: Sequence[Any] | None = None,
    ) -> ItemUnits:
        """Number the units of Q queries and G gallery items, by the names of their groups if there are groups.

        Groups that are on both sides of a gallery of its own make the sides joint. The names of one side alone group
        that side.
        """
        if groups is None and (gallery_groups is None or same_items):
            sizes = (queries, queries if same_items else gallery)
            return cls(np.arange(queries), np.arange(gallery), *sizes, same_items)
        ours = list(range(queries)) if groups is None else _names("groups", groups, queries)
        if same_items:
            theirs = ours
        else:
            given = gallery_groups is not None
            theirs = _names("gallery_groups", gallery_groups, gallery) if given else list(range(gallery))
        are_joint = same_items or (
            groups is not None and gallery_groups is not None and not set(ours).isdisjoint(theirs)
        )
        if are_joint:
            numbers = {name: number for number, name in enumerate(dict.fromkeys([*ours, *theirs]))}
            of_queries, of_gallery = (np.array([numbers[name] for name in side], np.int64) for side in (ours, theirs))
            return cls(of_queries, of_gallery, len(numbers), len(numbers), True, True)
        of_queries, of_gallery = (_number(side) for side in (ours, theirs))
        return cls(of_queries, of_gallery, int(of_queries.max()) + 1, int(of_gallery.max()) + 1, False, True)

    def count_others(self, gallery: int) -> int:
        """The number of G gallery items that each query ranks at least if these are of other groups."""
        if not self.are_groups:
            raise UserError("Queries rank the items of other groups where groups are named: give 'groups' too.")
        if not self.are_joint:
            return gallery
        sizes = np.bincount(self.of_gallery, minlength=int(self.of_queries.max()) + 1)
        left = gallery - int(sizes[self.of_queries].max())
        if left < 1:
            raise UserError("All gallery items are of one group with a query, so that none is left to rank.")
        return left

    def sum_queries(self, values: Float64) -> Float64:
        """Sums (..., units) of values (..., Q) over the queries of each unit."""
        if not self.are_groups:
            return values
        sums = np.zeros((self.queries, *values.shape[:-1]))
        np.add.at(sums, self.of_queries, np.moveaxis(values, -1, 0))
        return np.moveaxis(sums, 0, -1)


def groups_of_new_classes(
    trained: Sequence[str] | None, queries: NDArray[np.str_] | None, gallery: NDArray[np.str_] | None
) -> dict[str, Sequence[Any]]:
    """The classes as groups, as arguments of ``evaluate``, where none of the queries' classes was trained on.

    Such classes are a draw of classes that a model may meet; classes that were trained on are those it is for.
    """
    if trained is None or queries is None or gallery is None or not set(trained).isdisjoint(queries.tolist()):
        return {}
    return {"groups": queries.tolist(), "gallery_groups": gallery.tolist()}


def groups_hold_classes(
    groups: Int64,  # (N,) numbers of groups
    names: NDArray[np.str_] | None,  # (N,) classes; None if labels are not classes
) -> bool:
    """Whether all items of a class are in one group, as where the class is the group.

    Such groups say that classes are new to a model. An item finds its own class in its own group alone.
    """
    if names is None:
        return False
    group_of: dict[str, int] = {}
    return all(group_of.setdefault(name, group) == group for name, group in zip(names, groups.tolist(), strict=True))


def check_class_count(
    groups: Int64,  # (N,) numbers of groups that are classes
    who: str,  # holds some of them out
    mend: str,
) -> None:
    """Check that there are classes enough for both sides of a split."""
    count = len(np.unique(groups))
    if count < 2 * FEWEST_CLASSES:
        raise UserError(
            f"'groups' are the classes here: {who} holds out at least {FEWEST_CLASSES} of them and trains on "
            f"{FEWEST_CLASSES} others. Got {count}. {mend}"
        )


def _number(names: Sequence[Any]) -> Int64:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def _names(argument: str, names: Any, items: int) -> list[Any]:  # noqa: ANN401 - names of any kind
    names = np.asarray(names).tolist()
    if len(names) != items:
        raise UserError(f"{argument!r} must name the group of each item. Got {len(names)} names for {items} items.")
    return list(names)
