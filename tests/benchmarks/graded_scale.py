"""Graded search at size: the fit of a head and the evaluation, with the most memory of the process.

    python tests/benchmarks/graded_scale.py [--queries 1000] [--documents 100000] [--dimension 384]

Vectors are random, and a grade follows from a few of their directions. The defaults of ``cml.fit`` train,
after a small fit that imports all libraries. The evaluation embeds both sides, ranks 1,000 documents for each query,
and computes nDCG@10 and MAP.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Sequence

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--judged", type=int, default=20, help="graded documents of a query")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--unjudged", choices=["incomparable", "zero"], default="incomparable")
    add_json_option(parser)
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    sides = [
        rng.normal(size=(count, options.dimension)).astype(np.float32) for count in (options.queries, options.documents)
    ]
    rows = np.repeat(np.arange(options.queries), options.judged)
    columns = np.concatenate(
        [rng.choice(options.documents, options.judged, replace=False) for _ in range(options.queries)]
    )
    scores = (sides[0][rows, :8] * sides[1][columns, :8]).sum(axis=1)
    gains = np.digitize(scores, np.quantile(scores, [0.5, 0.75, 0.9, 0.97])).astype(float)

    figures: dict[str, float] = {}

    def take_time(name: str, begin: float) -> None:
        figures[f"{name}, seconds"] = time.perf_counter() - begin
        figures[f"{name}, processor seconds"] = time.process_time() - used

    begin, used = time.perf_counter(), time.process_time()
    grades = cml.Grades(
        rows, columns, gains, queries=options.queries, documents=options.documents, unjudged=options.unjudged
    )
    take_time("grades", begin)
    few = cml.Grades.from_matrix(np.eye(8))
    first = cml.fit((sides[0][:8], sides[1][:8]), few, steps=2, quiet=True)
    assert isinstance(first, cml.SearchModel)
    first.rank(sides[0][:8], sides[1][:8]).evaluate(few)
    begin, used = time.perf_counter(), time.process_time()
    model = cml.fit((sides[0], sides[1]), grades, steps=options.steps, quiet=True)
    assert isinstance(model, cml.SearchModel)
    take_time("fit", begin)
    begin, used = time.perf_counter(), time.process_time()
    figures["ndcg@10"] = model.rank(sides[0], sides[1]).evaluate(grades, ["ndcg@10", "map"]).means["ndcg@10"]
    take_time("evaluation", begin)
    figures["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}, indent=1))
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
