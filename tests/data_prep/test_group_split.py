"""Splits by group: whole groups, about the share asked for, the same whatever the order, independent of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cml.data_prep.group_split import split_by_group

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(SIZES, st.floats(0, 1), st.integers(0, 9))
def test_groups_stay_whole_and_the_share_is_met_within_a_group(sizes: list[int], share: float, seed: int) -> None:
    groups = {f"{group}-{item}": str(group) for group, size in enumerate(sizes) for item in range(size)}
    chosen = split_by_group(groups, share, seed=seed, salt="test")
    names = {groups[item] for item in chosen}
    assert chosen == {item for item, group in groups.items() if group in names}
    assert 1 <= len(names) <= max(1, len(sizes) - 1)
    wanted = round(share * len(groups))
    assert abs(len(chosen) - wanted) <= max(sizes) or len(names) in (1, len(sizes) - 1)
    backwards = dict(reversed(groups.items()))
    assert split_by_group(backwards, share, seed=seed, salt="test") == chosen


def test_salts_and_seeds_give_independent_splits() -> None:
    groups = {str(item): str(item) for item in range(1000)}
    whole = split_by_group(groups, 0.5, seed=0, salt="test")
    assert len(whole) == 500
    for seed, salt in ((0, "query"), (1, "test"), (0, "")):
        assert 200 < len(whole & split_by_group(groups, 0.5, seed=seed, salt=salt)) < 300


def test_of_two_sizes_that_miss_the_share_equally_the_smaller_is_taken() -> None:
    groups = {f"{pair}-{item}": str(pair) for pair in range(6) for item in range(2)}
    for seed in range(5):
        assert len(split_by_group(groups, 0.25, seed=seed, salt="test")) == 2  # of 3, as near as 4
