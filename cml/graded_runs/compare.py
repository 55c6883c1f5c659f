"""``cml compare grades --data DIR --out DIR``: losses on grades, beside grades cut to relevant or not."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from cml import losses as known_losses
from cml.command_line.parse_options import parse, parse_known
from cml.command_line.shared_options import AsJson, show
from cml.errors import UserError
from cml.graded.grades import MOST_DOUBLED, Grades
from cml.graded.measures import MEASURES, parse_measure
from cml.graded.ranking_evaluation import RankingEvaluation
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.evaluate import EMBEDDING, as_json, describe_counting, differences, rank_split, short_table
from cml.graded_runs.run_data import open_search_model
from cml.graded_runs.train import Deciding, Gains, describe_defaults, suit_recipe, train_grades
from cml.storage.atomic import delete
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
    """Least grades of a relevant document, for the rows that learn from grades cut to relevant or not; by default each
    grade above the smallest, at most 5."""
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
    details: bool = False
    """Print the differences of all rows too."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Graded search: losses on grades, beside grades cut to relevant or not."""
    prog = "cml compare grades"
    deciding, _ = parse_known(Deciding, arguments, prog=prog)
    folder = None if deciding.data is None else SearchFolder(deciding.data)
    recipe = suit_recipe(folder, arguments, prog, TrainConfig())
    about = describe_defaults(f"{inspect.cleandoc(CompareGrades.__doc__ or '')} The rows set the loss.", folder)
    default = CompareGrades(tyro.MISSING, tyro.MISSING, recipe)
    options = parse(CompareGrades, arguments, prog=prog, description=about, default=default)
    if options.training.loss != recipe.loss:
        raise UserError("In a comparison the rows set the loss: leave --loss out and choose with --losses.")
    if options.seeds < 1:
        raise UserError(f"--seeds should be at least 1. Got {options.seeds} instead.")
    for name in options.measures:
        parse_measure(name)
    compared = compare_grades(options)
    rows = _order(compared.rows)
    verdict = compared.verdict
    result = {"verdict": verdict, **as_json(rows)}
    write_json(options.out / "comparison_grades.json", with_format(result))
    details = [*compared.describe_losses(), *differences(rows)]
    counting = describe_counting(rows, condensed=options.condensed)
    said = [verdict, *compared.remarks]
    lines = [*said, "", "```text", short_table(rows), "```", "", *counting, *details, ""]
    (options.out / "table.md").write_text("\n".join(lines), encoding="utf-8")
    where = f"all figures: {options.out / 'comparison_grades.json'}"
    more = details if options.details else ["--details lists the differences of all rows."]
    show(result, *said, "", short_table(rows), "", *counting, *more, where, as_json=options.json)


@dataclass(frozen=True)
class Variant:
    """A loss on grades, or on grades cut to relevant or not."""

    loss: str
    gains: Gains = "linear"
    cut: float | None = None  # the least grade of a relevant document; None for grades

    @property
    def name(self) -> str:
        """The name of its row."""
        exponential = ", exponential" if self.gains == "exponential" else ""
        return f"{self.loss}{exponential}" if self.cut is None else f"{self.loss}, cut at {self.cut:g}"


@dataclass(frozen=True)
class ComparedGrades:
    """What a comparison found."""

    rows: Mapping[str, RankingEvaluation]
    variants: Sequence[Variant]

    @property
    def verdict(self) -> str:
        """The best row of grades against the best row of cuts, both chosen by these queries, in one line."""
        best, cut = self._best(is_cut=False), self._best(is_cut=True)
        if cut is None or best is None:
            return "The grades have two levels, as a cut does: there is no cut to compare with."
        return f"Grades against the best cut: {self.rows[best.name].compare(self.rows[cut.name]).describe(self.pairs)}."

    @property
    def pairs(self) -> int:
        """The number of pairs of a row of grades and one of cuts, among which the verdict chooses."""
        cuts = sum(variant.cut is not None for variant in self.variants)
        return cuts * (len(self.variants) - cuts)

    @property
    def remarks(self) -> list[str]:
        """What the verdict allows for."""
        if self.pairs < 2:
            return []
        return [f"Its interval allows for the choice of both rows among {self.pairs} pairs by the same queries."]

    def describe_losses(self) -> list[str]:
        """The same for each loss, with the names of the rows; intervals do not allow for the choice of the rows."""
        lines = []
        for loss in dict.fromkeys(variant.loss for variant in self.variants):
            best, cut = self._best(is_cut=False, loss=loss), self._best(is_cut=True, loss=loss)
            if best is not None and cut is not None:
                lines += differences({variant.name: self.rows[variant.name] for variant in (best, cut)})
        return lines

    def _best(self, *, is_cut: bool, loss: str = "") -> Variant | None:
        """The variant with the largest mean of the first measure, of one loss or of all."""
        chosen = [
            variant for variant in self.variants if (variant.cut is not None) == is_cut and loss in ("", variant.loss)
        ]
        return max(chosen, key=lambda one: next(iter(self.rows[one.name].means.values())), default=None)


def compare_grades(options: CompareGrades) -> ComparedGrades:
    """Train and evaluate each row; a query counts with its mean over the seeds."""
    folder = SearchFolder(options.data)
    variants = list_variants(folder.grades("train"), options.losses, options.cuts)
    rows: dict[str, RankingEvaluation] = {}
    for variant in variants:
        of_seeds = []
        for seed in range(options.seeds):
            out = options.out / _slug(variant.name) / f"seed-{seed}"
            if not (out / MODEL).is_file():
                train_grades(
                    folder,
                    out,
                    replace(options.training, loss=variant.loss, seed=seed),
                    query_backbone=options.query_backbone,
                    gains=variant.gains,
                    resume=out.exists(),
                    binary_from=variant.cut,
                )
                delete(out / "checkpoints")  # as large as the model, which is finished
            model = open_search_model(out, options.training.device)
            rankings, grades = rank_split(model, folder, options.split, 1000)
            if options.condensed:
                rankings = {each: ranking.condense(grades) for each, ranking in rankings.items()}
            of_seeds.append(rankings.pop(EMBEDDING).evaluate(grades, options.measures))
            for other, ranking in rankings.items():
                rows.setdefault(other, ranking.evaluate(grades, options.measures))
        rows[variant.name] = replace(of_seeds[0], values=np.mean([each.values for each in of_seeds], axis=0))
    return ComparedGrades(rows, variants)


def list_variants(grades: Grades, losses: Sequence[str], cuts: Sequence[float]) -> list[Variant]:
    """The variants of each loss, but for those that cannot differ from an earlier one."""
    variants = []
    for loss in losses:
        uses_order_alone = known_losses.get(loss).uses_order_alone
        seen: set[bytes] = set()
        for variant in (
            Variant(loss),
            *([Variant(loss, "exponential")] if grades.gains.max() <= MOST_DOUBLED else []),
            *(Variant(loss, cut=cut) for cut in cuts or _cuts(grades)),
        ):
            gains = grades.gains if variant.cut is None else grades.at_least(variant.cut).gains
            asked = np.append(gains, 0.0) if grades.unjudged == "zero" else gains
            values = np.exp2(asked) if variant.gains == "exponential" else asked
            values = values.max() - values  # label distances
            digest = (np.unique(values, return_inverse=True)[1] if uses_order_alone else values).tobytes()
            if digest not in seen:
                variants.append(variant)
            seen.add(digest)
    return variants


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


def _slug(name: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name).split())
