"""``cml compare grades --data DIR --out DIR``: losses on grades, beside grades cut to relevant or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from cml.command_line.parse_options import parse, parse_known
from cml.command_line.shared_options import AsJson, show
from cml.errors import UserError
from cml.graded.grades import Grades
from cml.graded.measures import MEASURES, parse_measure
from cml.graded.ranking import RankingEvaluation
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.evaluate import EMBEDDING, as_json, differences, rank_split, short_table
from cml.graded_runs.run_data import open_search_model
from cml.graded_runs.train import Deciding, Gains, suit_recipe, train_grades
from cml.storage.json_file import with_format, write_json
from cml.training.config import TrainConfig
from cml.training.saved_model import MODEL

LOSSES = ("lambda-ndcg(temperature=0.2)", "generalised-contrastive")


@dataclass(frozen=True)
class CompareGrades:
    """Train several losses on the grades, and on grades cut to relevant or not, and compare what they find."""

    data: Path
    """Folder that cml prepare grades made."""
    out: Path
    """Folder for the runs and the table. Rerun the command to resume: finished runs are kept."""
    training: TrainConfig
    losses: tuple[str, ...] = LOSSES
    """Losses to compare, in the syntax of --loss."""
    cuts: tuple[float, ...] = ()
    """Least grades of a relevant document, for rows that know no grades; by default each grade above the smallest."""
    seeds: int = 3
    """Number of runs per row, with seeds 0, 1, ...; a query counts with its mean over them."""
    measures: tuple[str, ...] = MEASURES
    """Measures as for cml evaluate; the first one decides."""
    condensed: bool = False
    """Rank documents with a grade alone, as for cml evaluate."""
    query_backbone: str = ""
    """Network of the queries, as for cml train grades."""
    split: str = "test"
    """Split whose queries are searched."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Graded search: losses on grades, beside grades cut to relevant or not."""
    prog = "cml compare grades"
    deciding, _ = parse_known(Deciding, arguments, prog=prog)
    recipe = TrainConfig()
    if deciding.data is not None:
        recipe = suit_recipe(SearchFolder(deciding.data), deciding, recipe)
    options = parse(CompareGrades, arguments, prog=prog, default=CompareGrades(tyro.MISSING, tyro.MISSING, recipe))
    if options.training.loss != recipe.loss:
        raise UserError("In a comparison the rows set the loss: leave --loss out and choose with --losses.")
    if options.seeds < 1:
        raise UserError(f"--seeds should be at least 1. Got {options.seeds} instead.")
    for name in options.measures:
        parse_measure(name)
    rows = compare_grades(options)
    result = as_json(rows)
    write_json(options.out / "comparison_grades.json", with_format(result))
    remarks = [*_compare_cuts(rows, options.losses), *differences(_order(rows))]
    table = short_table(_order(rows))
    (options.out / "table.md").write_text("\n".join(["```text", table, "```", "", *remarks, ""]), encoding="utf-8")
    show(result, table, "", *remarks, f"all figures: {options.out / 'comparison_grades.json'}", as_json=options.json)


def compare_grades(options: CompareGrades) -> dict[str, RankingEvaluation]:
    """Train and evaluate each row; a query counts with its mean over the seeds."""
    folder = SearchFolder(options.data)
    cuts = options.cuts or _cuts(folder.grades("train"))
    rows: dict[str, RankingEvaluation] = {}
    for loss in options.losses:
        variants: list[tuple[str, Gains, float | None]] = [
            (loss, "linear", None),
            (f"{loss}, exponential", "exponential", None),
            *((f"{loss}, cut at {cut:g}", "linear", cut) for cut in cuts),
        ]
        for name, gains, cut in variants:
            of_seeds = []
            for seed in range(options.seeds):
                out = options.out / _slug(name) / f"seed-{seed}"
                if not (out / MODEL).is_file():
                    config = replace(options.training, loss=loss, seed=seed)
                    train_grades(
                        folder,
                        out,
                        config,
                        query_backbone=options.query_backbone,
                        gains=gains,
                        resume=out.exists(),
                        binary_from=cut,
                    )
                model = open_search_model(out, options.training.device)
                rankings, grades = rank_split(model, folder, options.split, 1000)
                if options.condensed:
                    rankings = {each: ranking.condense(grades) for each, ranking in rankings.items()}
                of_seeds.append(rankings.pop(EMBEDDING).evaluate(grades, options.measures))
                for other, ranking in rankings.items():
                    rows.setdefault(other, ranking.evaluate(grades, options.measures))
            first = of_seeds[0]
            rows[name] = replace(first, values=np.mean([each.values for each in of_seeds], axis=0))
    return rows


def _cuts(grades: Grades) -> list[float]:
    """The grades that can be the least of a relevant document; at most 5 of them."""
    levels = np.unique(grades.gains)[1:]
    if len(levels) > 5:
        levels = np.unique(np.quantile(grades.gains, np.linspace(0, 1, 7)[1:-1]))
        levels = levels[levels > grades.gains.min()]
    return [float(level) for level in levels]


def _order(rows: Mapping[str, RankingEvaluation]) -> dict[str, RankingEvaluation]:
    """The rows from the best to the worst."""
    return dict(sorted(rows.items(), key=lambda row: -next(iter(row[1].means.values()))))


def _compare_cuts(rows: Mapping[str, RankingEvaluation], losses: Sequence[str]) -> list[str]:
    """Each loss on grades less its best row that knows none, which is chosen in hindsight."""
    lines = []
    for loss in losses:
        cut = {name: each for name, each in rows.items() if name.startswith(f"{loss}, cut at ")}
        if cut:
            best = next(iter(_order(cut)))
            graded = {name: rows[name] for name in (loss, f"{loss}, exponential")}
            lines += [line for name, each in graded.items() for line in differences({name: each, best: cut[best]})]
    return lines


def _slug(name: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name).split())
