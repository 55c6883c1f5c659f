"""``cml evaluate RUN`` of graded search, and ``cml evaluate grades --ranking FILE --qrels FILE`` of any search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from cml.array_types import Float32
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, show
from cml.doors.search_model import SearchModel
from cml.errors import UserError
from cml.feature_store.frozen_features import frozen_rows
from cml.graded.grades import Grades
from cml.graded.measures import MEASURES, parse_measure
from cml.graded.named_side import split_names
from cml.graded.ranking import Ranking
from cml.graded.ranking_evaluation import RankingEvaluation, describe_interval
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.run_data import open_data, open_search_model, read_note
from cml.retrieval.feature_forms import normalize_rows
from cml.retrieval.text_table import align_columns
from cml.storage.downloads import check_run_folder
from cml.storage.json_file import with_format, write_json
from cml.training.run_folder import EVALUATION

EMBEDDING, UNTRAINED, RANDOM = "embedding", "untrained", "random"
CONDENSED = "evaluation_condensed.json"  # beside that of all documents
_Sides = tuple[Float32, Float32]  # of queries (Q, D) and documents (N, D)
_MAIN = 4  # measures of the short table


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
    """Leave documents without a grade for the query out of its ranking, which compares systems more fairly where few
    have one; by default they count as not relevant, as in trec_eval. The figures are kept beside those of the default.
    """
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
        where = f"all figures: {_file(options)}"
    rows = {
        name: (ranking.condense(grades) if options.condensed else ranking).evaluate(grades, options.measures)
        for name, ranking in rankings.items()
    }
    if options.run is not None:
        write_json(_file(options), with_format(as_json(rows)))
    long = "\n\n".join(f"{name}\n{each.table()}" for name, each in rows.items())
    table = long if options.details else short_table(rows)
    counting = describe_counting(rows, condensed=options.condensed)
    remarks = [*differences(rows), *counting, *([where] if where else [])]
    show(as_json(rows), table, *(["", *remarks] if remarks else []), as_json=options.json)


def _file(options: EvaluateGrades) -> Path:
    """The file of the figures."""
    assert options.run is not None
    return options.run / (CONDENSED if options.condensed else EVALUATION)


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
    """Rank all documents for the queries of a split: by the model, by untrained features, and at random."""
    queries, documents, grades = folder.split(split)
    names: Any = {"query_names": list(queries), "document_names": list(documents)}
    sides = split_names(queries)[1], split_names(documents)[1]
    embedded, features = _embed(model, *sides)
    rankings = {EMBEDDING: Ranking.of_embeddings(*embedded, k, **names)}
    if features is not None:
        rankings[UNTRAINED] = Ranking.of_embeddings(*features, k, **names)
    rng, most = np.random.default_rng(0), min(k, len(documents))
    found = np.stack([rng.choice(len(documents), most, replace=False) for _ in queries])
    rankings[RANDOM] = Ranking(found, np.broadcast_to(-np.arange(most), found.shape), **names)
    return rankings, grades


def _embed(model: SearchModel, queries: Any, documents: Any) -> tuple[_Sides, _Sides | None]:  # noqa: ANN401
    """The embeddings of both sides, and their L2-normalised untrained features; None where they cannot be compared."""
    run, sides = model.run_config, (queries, documents)
    if run.train.freeze_backbone and run.model.weights != "none":  # whose features are read once, from the cache
        network = model.network
        features = [frozen_rows(network, network.open(rows), bar="embed") for rows in sides]
        embedded = network.embed_feature_rows(features[0]), network.embed_feature_rows(features[1])
        return embedded, (normalize_rows(features[0]), normalize_rows(features[1]))
    embedded = model.embed(queries, side="queries"), model.embed(documents, side="documents", bar="embed")
    if model.query_model is not model:
        return embedded, None
    if model.form.kind == "vectors":
        features = [np.asarray(rows, np.float32) for rows in sides]
    else:
        try:
            published = model.load_published()
            features = [published.extract(rows) for rows in sides]
        except UserError:  # its weights are not here
            return embedded, None
    return embedded, (normalize_rows(features[0]), normalize_rows(features[1]))


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


def differences(rows: Mapping[str, RankingEvaluation]) -> list[str]:
    """How much better the first row is than each other one, in a sentence."""
    (name, first), *others = rows.items()
    main, count = first.measures[0], len(first.queries)
    return [
        f"{name} against {other}: {main} {first.compare(each).describe()}, over {count:,} queries."
        for other, each in others
    ]


def describe_counting(rows: Mapping[str, RankingEvaluation], *, condensed: bool) -> list[str]:
    """How documents without a grade count, where most of those that were found have none."""
    if condensed:
        return [
            "Documents without a grade are left out of all rankings (--condensed), which compares systems fairly where "
            "judgements are few; without it they count as not relevant, as in trec_eval (Sakai 2007)."
        ]
    return next(iter(rows.values())).remarks


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
