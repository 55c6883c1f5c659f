"""``cml evaluate RUN`` of graded search, and ``cml evaluate grades --ranking FILE --qrels FILE`` of any search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, show
from cml.doors.search_model import SearchModel
from cml.errors import UserError
from cml.graded.grades import Grades
from cml.graded.measures import MEASURES, parse_measure
from cml.graded.named_side import split_names
from cml.graded.ranking import Ranking, RankingEvaluation
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.run_data import open_data, open_search_model, read_note
from cml.retrieval.text_table import align_columns
from cml.storage.downloads import check_run_folder
from cml.storage.json_file import with_format, write_json
from cml.training.run_folder import EVALUATION

EMBEDDING, FROZEN, RANDOM = "embedding", "frozen", "random"
_MAIN = 4  # measures of the short table
_FEW = 0.5  # share of judged documents below which a caution is printed


@dataclass(frozen=True)
class EvaluateGrades:
    """Measure what a search finds by the grades of its documents."""

    run: Annotated[Path | None, Positional, arg(metavar="RUN")] = None
    """Run folder of cml train grades; none with --ranking."""
    data: Data = None
    split: str = ""
    """Split whose queries are searched; test by default."""
    ranking: tuple[Path, ...] = ()
    """Run files as TREC has them (query, Q0, document, rank, score, name a line) to evaluate in place of a run."""
    qrels: Path | None = None
    """Judged pairs by which --ranking is evaluated."""
    measures: tuple[str, ...] = MEASURES
    """Measures such as ndcg@10, "ndcg(gains=exponential)@10", "precision(grade=2)@5", recall@100, map, mrr, bpref."""
    k: int = 1000
    """Documents that are ranked for each query."""
    condensed: bool = False
    """Rank the documents that have a grade for the query alone, where few of those that are found have one."""
    out_ranking: Path | None = None
    """Also write what the run found as a run file of TREC."""
    device: Device = "auto"
    allow_download: AllowDownload = False
    details: bool = False
    """Print all measures with their intervals."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Evaluate a model of graded search, or a ranking, by the grades of documents."""
    options = parse(EvaluateGrades, arguments, prog="cml evaluate grades")
    for name in options.measures:
        parse_measure(name)
    if options.ranking:
        if options.run is not None or options.qrels is None:
            raise UserError("--ranking is evaluated by the judged pairs of --qrels, and takes no run.")
        rankings, grades, where = read_rankings(options.ranking), Grades.read(options.qrels), ""
    elif options.run is None:
        raise UserError("Give a run, cml evaluate RUN, or --ranking and --qrels.")
    else:
        check_run_folder(options.run)
        model = open_search_model(options.run, options.device, allow_download=options.allow_download)
        folder = open_data(options.run, options.data)
        rankings, grades = rank_split(model, folder, _choose_split(options, folder), options.k)
        if options.out_ranking is not None:
            rankings[EMBEDDING].write(options.out_ranking)
        where = f"all figures: {options.run / EVALUATION}"
    rows = {
        name: (ranking.condense(grades) if options.condensed else ranking).evaluate(grades, options.measures)
        for name, ranking in rankings.items()
    }
    if options.run is not None:
        write_json(options.run / EVALUATION, with_format(as_json(rows)))
    table = "\n\n".join(f"{name}\n{each}" for name, each in rows.items()) if options.details else short_table(rows)
    remarks = [*differences(rows), *([] if options.condensed else name_few_judged(rows)), *([where] if where else [])]
    show(as_json(rows), table, *(["", *remarks] if remarks else []), as_json=options.json)


def _choose_split(options: EvaluateGrades, folder: SearchFolder) -> str:
    """The split to search: that of the options, or test, or what there is."""
    assert options.run is not None
    if options.split:
        return options.split
    if "test" in folder.splits:
        return "test"
    learned = read_note(options.run).get("split", "")
    other = next((split for split in folder.splits if split != learned), "")
    if not other:
        raise UserError(
            f"{folder.folder} has only the split {folder.splits[0]}, which the run learned from: hold queries out by "
            f"'cml prepare grades', or say '--split {folder.splits[0]}'."
        )
    return other


def rank_split(model: SearchModel, folder: SearchFolder, split: str, k: int) -> tuple[dict[str, Ranking], Grades]:
    """Rank all documents for the queries of a split: by the model, by frozen features, and at random."""
    queries, documents, grades = folder.split(split)
    names: Any = {"query_names": list(queries), "document_names": list(documents)}
    sides = split_names(queries)[1], split_names(documents)[1]
    embedded = model.embed(sides[0], side="queries"), model.embed(sides[1], side="documents", bar="embed")
    rankings = {EMBEDDING: Ranking.of_embeddings(*embedded, k, **names)}
    if (features := _frozen_features(model, *sides)) is not None:
        rankings[FROZEN] = Ranking.of_embeddings(features[0], features[1], k, **names)
    rng, most = np.random.default_rng(0), min(k, len(documents))
    found = np.stack([rng.choice(len(documents), most, replace=False) for _ in queries])
    rankings[RANDOM] = Ranking(found, np.broadcast_to(-np.arange(most), found.shape), **names)
    return rankings, grades


def _frozen_features(model: SearchModel, queries: Sequence[Any], documents: Sequence[Any]) -> Any:  # noqa: ANN401
    """L2-normalised features of both sides that no grade has touched; None where they cannot be compared."""
    if model.query_model is not model:
        return None
    if model.form.kind == "vectors":
        sides = [np.asarray(rows, np.float32) for rows in (queries, documents)]
    else:
        try:
            published = model.load_published()
            sides = [published.extract(rows) for rows in (queries, documents)]
        except UserError:  # its weights are not here
            return None
    with np.errstate(invalid="ignore"):
        sides = [np.nan_to_num(side / np.linalg.norm(side, axis=1, keepdims=True)) for side in sides]
    return sides[0], sides[1]


def read_rankings(files: Sequence[Path]) -> dict[str, Ranking]:
    """Read run files, by their names."""
    if len({file.name for file in files}) < len(files):
        raise UserError("Two of the rankings have one file name: rename one of them.")
    return {file.name: Ranking.read(file) for file in files}


def short_table(rows: Mapping[str, RankingEvaluation]) -> str:
    """The means of the main measures, and the interval of the first."""
    first = next(iter(rows.values()))
    main = first.measures[0]
    header = ["", main, "95 % interval", *first.measures[1:_MAIN]]
    lines = [
        [
            name,
            f"{each.means[main]:.4f}",
            describe_interval(each.intervals[main]),
            *(f"{each.means[measure]:.4f}" for measure in first.measures[1:_MAIN]),
        ]
        for name, each in rows.items()
    ]
    return align_columns([header, *lines])


def describe_interval(ends: tuple[float, float]) -> str:
    """The ends of an interval; nothing where there is none, as of one query."""
    return "" if np.isnan(ends[0]) else f"{ends[0]:.4f} to {ends[1]:.4f}"


def differences(rows: Mapping[str, RankingEvaluation]) -> list[str]:
    """How much better the first row is than each other one, in a sentence."""
    (name, first), *others = rows.items()
    lines = []
    for other, each in others:
        difference = first.compare(each)
        main = first.measures[0]
        low, high = difference.intervals[main]
        sure = "which may be chance" if not (low > 0 or high < 0) else "better" if low > 0 else "worse"
        interval = f" ({low:+.4f} to {high:+.4f}, 95 %)" if not np.isnan(low) else ""
        lines.append(
            f"{name} less {other}: {main} {difference.means[main]:+.4f}{interval} over {len(first.queries):,} queries, "
            f"{sure}."
        )
    return lines


def name_few_judged(rows: Mapping[str, RankingEvaluation]) -> list[str]:
    """A caution where most of the first documents have no grade, which count as 0."""
    first = next(iter(rows.values()))
    share = first.means.get("judged@10", 1.0)
    if share >= _FEW:
        return []
    return [
        f"Only {share:.0%} of the first 10 documents have a grade, and others count as 0: --condensed ranks graded "
        "ones alone."
    ]


def as_json(rows: Mapping[str, RankingEvaluation]) -> dict[str, Any]:
    """All figures: means, intervals, and the values of each query."""

    def describe(each: RankingEvaluation) -> dict[str, Any]:
        return {
            measure: {"mean": mean, "interval": [None if np.isnan(end) else end for end in each.intervals[measure]]}
            for measure, mean in each.means.items()
        }

    (name, first), *others = rows.items()
    return {
        "queries": [*first.queries],
        "rows": {row: describe(each) for row, each in rows.items()},
        "differences": {f"{name} less {other}": describe(first.compare(each)) for other, each in others},
        "per_query": {
            row: {measure: each.values[:, at].tolist() for at, measure in enumerate(each.measures)}
            for row, each in rows.items()
        },
    }
