"""``cml bench``: run the benchmark of continuous metric learning, compare its results, and run some again."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsMarkdown, print_json, print_text
from cml.console.messages import resume_hint, say
from cml.errors import DataError, UserError, did_you_mean

RESULTS = Path("results")
Data = Annotated[
    tuple[Path, ...],
    arg(help="Prepared datasets of your own, of images or of vectors, as the sets own-NAME_OF_FOLDER."),
]
Stores = Annotated[
    tuple[Path, ...],
    arg(
        help="Feature stores (cml features) whose rows take the place of the items of --data: each makes the set "
        "own-DATASET-STORE of each dataset."
    ),
]
Results = Annotated[Path, Positional, arg(metavar="DIR", help="Folder of the results.")]


@dataclass(frozen=True)
class Bench:
    """Run every method on every set, with equally many trials, settings chosen on validation items, and one test.

    Rerun the command to resume. Several processes share the work. The subcommands are cml bench table, page and check;
    each has its own --help.
    """

    tier: Literal["offline", "drawn", "vectors", "download"] = "offline"
    """offline: images that need no download; drawn: images that cml draws; vectors: sets of vectors; download: sets
    whose raw files you have to provide."""
    track: Literal["A", "B"] = "A"
    """A: a linear head on frozen features; B: a whole network."""
    quick: bool = False
    """Run the small version of the suite, which takes minutes, to check that everything works. Its results are not
    meaningful."""
    sets: tuple[str, ...] = ()
    """Names of sets; by default all sets of the tier, or those of --data."""
    data: Data = ()
    features: Stores = ()
    methods: tuple[str, ...] = ()
    """Names of methods, or losses in the syntax of --loss; by default all methods of the suite. Load your own losses
    with --plugin. Rows without trials, such as frozen and tune, are always included."""
    backbone: str = ""
    """Backbone, as for cml train; by default that of the suite."""
    out: Path = RESULTS
    """Folder of the results."""
    markdown: AsMarkdown = False

    def __call__(self) -> None:
        """Run it, and print the table."""
        from cml import plugins
        from cml.comparing.bench import methods, run, suite, table

        of_tier = [name for name, spec in suite.SETS.items() if spec.tier == self.tier]
        own_sets = suite.add_own_sets(self.data, self.features)
        named = self.sets or (() if own_sets else of_tier)
        sets = list(dict.fromkeys([*(name for name in named if suite.look_up("set", name, suite.SETS)), *own_sets]))
        backbone = suite.choose_backbone(sets, self.track, self.backbone)
        rules = suite.SUITES[suite.QUICK if self.quick else suite.VERSION]
        rows = methods.list_methods(self.methods, self.quick)
        plan = run.Plan(rules, self.track, sets, rows, self.out, backbone)
        with resume_hint():
            left_out = run.run(plan)
        if len(left_out) == len(sets):
            raise UserError(" ".join(left_out))
        for sentence in left_out:
            say(sentence)
        board = table.read_board(self.out, rules.version, plan.track_folder)
        print_text(board.markdown() if self.markdown else board)
        own = _as_option("--data", self.data) + _as_option("--features", self.features)
        print_text(
            f"next: cml bench check --rerun 2 {shlex.quote(str(self.out / rules.version))}{own}{plugins.flags()}"
        )


def _as_option(name: str, folders: Sequence[Path]) -> str:
    """An option with its values as a shell takes it; "" for none."""
    return " ".join(["", name, *(shlex.quote(str(folder)) for folder in folders)]) if folders else ""


@dataclass(frozen=True)
class Check:
    """Read results, run some of them again, and name every score that differs by more than 0.001.

    Only running a result again can show that it is true. On another machine, or with other versions, rounding may
    differ, and with it which items are retrieved.
    """

    results: Annotated[Path, Positional, arg(metavar="FILE")]
    """Result file, or a folder of result files."""
    rerun: int = 0
    """Run this many results again, drawn at random: all of their trials and final runs. Backbones that the results name
    are downloaded if needed."""
    data: Data = ()
    features: Stores = ()

    def __call__(self) -> None:
        """Check, and print what differs."""
        from cml.comparing.bench import check, result, suite

        if self.rerun < 0:
            raise UserError(f"--rerun must be 0 or more. Got {self.rerun}.")
        suite.add_own_sets(self.data, self.features)
        paths, readable = result.results_in(self.results), []
        for path in paths:
            try:
                result.read_result(path)
                readable.append(path)
            except DataError as error:
                print_text(error)
        differing = impossible = 0
        for path in check.draw_results(readable, self.rerun):
            try:
                differences = check.rerun(path)
            except UserError as error:
                impossible += 1
                print_text(f"Not run again: {path}: {error}")
                continue
            differing += bool(differences)
            print_text(f"{path}: {'; '.join(differences) or 'the same scores'}")
        refused = len(paths) - len(readable)
        wrong = [
            f"{count} {noun if count == 1 else noun + 's'} {rule}."
            for count, noun, rule in (
                (refused, "file", "cannot be used"),
                (differing, "result", f"differ{'s' if differing == 1 else ''} when run again"),
                (impossible, "result", "could not be run again here"),
            )
            if count
        ]
        if wrong:
            raise (DataError if refused or differing else UserError)(" ".join(wrong))
        again = min(self.rerun, len(paths))
        only = "" if again else " Only running results again shows whether they are true: give --rerun."
        print_text(f"{len(paths)} result{'s' * (len(paths) != 1)} read, {again} run again.{only}")


@dataclass(frozen=True)
class Table:
    """Compare the results of one version and track: scores, mean rank, Borda count, significant differences."""

    results: Results = RESULTS
    version: str = ""
    """Version of the suite; by default the latest with results."""
    track: str = ""
    """Track: A, B, or the name of a folder of results, such as A-efficientnet-lite0; by default the first."""
    against: str = ""
    """Print the paired differences between all methods and this one instead, with 95 % intervals."""
    score: str = ""
    """Print the means of this score instead, such as ndcg, or a metric of your own."""
    trials: bool = False
    """Print the validation scores of the trials instead: with defaults, of the median trial, and of the best."""
    diagram: Path | None = None
    """Write the critical-difference diagram to this file."""
    markdown: AsMarkdown = False
    json: bool = False
    """Print the table as JSON."""

    def __call__(self) -> None:
        """Print the comparison."""
        from cml.comparing.bench import table
        from cml.retrieval import text_table

        board = table.read_board(self.results, self.version, self.track)
        if self.diagram is not None:
            from cml.comparing.bench.page import draw_critical_difference_diagram

            draw_critical_difference_diagram(board, self.diagram)
        if self.score or self.trials or self.against:
            grid, note = (
                board.against(self.against)
                if self.against
                else board.means_of(self.score)
                if self.score
                else board.trials()
            )
            print_text(f"{text_table.markdown(grid)}\n" if self.markdown else text_table.align_columns(grid), note)
        elif self.json:
            print_json(board.to_json())
        else:
            print_text(board.markdown() if self.markdown else board)


@dataclass(frozen=True)
class Page:
    """Write the leaderboard as a page without scripts: one table per track, sorted by mean rank or by a set."""

    results: Results = RESULTS
    out: Path = Path("leaderboard.html")
    """File to write."""

    def __call__(self) -> None:
        """Write the page."""
        from cml.comparing.bench.page import write_leaderboard

        write_leaderboard(self.results, self.out)
        print_text(f"leaderboard: {self.out}")


VERBS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Table, Page, Check)}


def run(arguments: Sequence[str]) -> None:
    """Run the benchmark, or what the first word says."""
    verb = next(iter(arguments), "")
    if not verb or verb.startswith("-"):
        parse(Bench, arguments, prog="cml bench")()
    elif verb in VERBS:
        parse(VERBS[verb], arguments[1:], prog=f"cml bench {verb}")()
    else:
        raise UserError(f"Unknown verb {verb!r} of cml bench.{did_you_mean(verb, VERBS)} Known: {', '.join(VERBS)}.")
