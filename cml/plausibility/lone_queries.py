"""Lone queries: queries that are searched among one item or none, so that every order of them is the best one."""

from collections.abc import Iterator

from cml.plausibility.finding import Finding


def find_lone_queries(queries: int, others: int) -> Iterator[Finding]:
    """Find that each query is searched among one item or none."""
    if queries and others < 2:
        searched = "1 query is" if queries == 1 else f"{queries} queries are, each,"
        among = "one item" if others else "no items"
        what = f"{searched} searched among {among}, so that nothing can be measured"
        mend = "Hold out more items for testing, or collect more."
        yield Finding("lone-queries", what, mend, queries, queries)
