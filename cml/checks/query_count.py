"""Whether the test part of a prepared dataset is large enough for a verdict, and how to make it larger."""

from collections.abc import Mapping, Sequence
from typing import Any

from cml import data_prep
from cml.checks.dataset_findings import find_label_distance, has_classes
from cml.data.prepared import PreparedDataset
from cml.retrieval.item_units import groups_of_new_classes
from cml.retrieval.verdict import FEW_GROUPS, FEW_QUERIES, size_verdict

_LARGEST_QUERY_FRACTION = 0.5  # that is advised where queries have a gallery of their own
_AGAIN = "Prepare it again, into another folder, with"

Groups = Mapping[str, Sequence[str]]  # role to the group of each of its items


def judge_test_size(
    dataset: PreparedDataset,
    *,
    is_measurable: bool = True,  # False if it was said already that nothing can be measured
) -> str:  # one line; "" if it is large enough
    """Say that the queries, or the groups that they come from, are too few for a verdict, and what to do about it."""
    groups = _read_groups(dataset)
    advice = _advise_more(dataset, groups)
    if not is_measurable:
        return f"Verdict: {advice}" if advice else ""
    others = len(dataset.split("gallery")) - dataset.info.queries_are_gallery
    return size_verdict(len(dataset.split("query")), others, len(set(groups["query"])) if groups else None, advice)


def _read_groups(dataset: PreparedDataset) -> Groups:
    """The groups that the evaluation counts: those of the split, or new classes; nothing where it counts items."""
    info = dataset.info
    if info.group_column:
        return {role: dataset.read_groups(role, info.group_column) for role in info.roles}
    distance = find_label_distance(dataset)
    train, queries = (dataset.split(role).labels for role in ("train", "query"))
    if distance is None or not len(train) or not has_classes(distance, queries):
        return {}
    distance = distance.fit(train)
    trained, names = (distance.class_names(distance.encode(labels)) for labels in (train, queries))
    assert trained is not None
    assert names is not None
    if not groups_of_new_classes(trained.tolist(), names, names):
        return {}
    return {"train": trained.tolist(), "query": names.tolist()}


def _advise_more(dataset: PreparedDataset, groups: Groups) -> str:  # a sentence; "" where nothing gives more
    """Say how a dataset would get more queries."""
    info = dataset.info
    settings, source = info.made_with.get("settings", {}), info.made_with.get("source")
    if not info.queries_are_gallery and source in data_prep.names():
        entry: Any = data_prep.registry.entry(source)
        if "query_fraction" in entry.whole_fractions:
            others = "all items of other groups" if info.group_column else "all others"
            return f"{_AGAIN} --query-fraction 1: each test item is then a query, searched among {others}."
    recorded = {"query_fraction": "--query-fraction", "test_fraction": "--test-fraction", "count": "--count"}
    options = [option for name, option in recorded.items() if name in settings]
    has_most_queries = info.queries_are_gallery or settings.get("query_fraction", 0.0) >= _LARGEST_QUERY_FRACTION
    if has_most_queries and "--query-fraction" in options:
        options.remove("--query-fraction")
    if options[:1] == ["--test-fraction"]:
        in_all = {name for names in groups.values() for name in names}
        if groups and len(in_all) < 2 * FEW_GROUPS:
            return f"Collect items of more groups: half of these {len(in_all)} groups would be too few as well."
        if sum(info.counts.values()) < 2 * FEW_QUERIES:
            return "Collect more items: half of these would be too few queries, too."
    if options[:1] == ["--query-fraction"]:
        return f"{_AGAIN} --query-fraction {_LARGEST_QUERY_FRACTION}."
    return f"{_AGAIN} a larger {options[0]}." if options else ""
