"""``cml bench``: run the benchmark of continuous metric learning, check its results, compare and publish them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.print_result import print_json
from cml.command_line.shared_options import AsMarkdown
from cml.console.messages import resume_hint, say
from cml.errors import DataError, UserError, did_you_mean

if TYPE_CHECKING:
    from cml.bench.check_result import CheckedResult

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

    Rerun the command to resume. Several processes share the work. The subcommands are cml bench check, table, page,
    submit and embedding; each has its own --help.
    """

    tier: Literal["offline", "vectors", "download"] = "offline"
    """offline: images that need no download; vectors: sets of vectors; download: sets whose raw files you have to
    provide."""
    track: Literal["A", "B"] = "A"
    """A: a linear head on frozen features; B: a whole network."""
    quick: bool = False
    """Run the small version of the suite, which takes minutes, to check that everything works. Its figures are not
    meaningful."""
    version: str = ""
    """Version of the suite; by default the latest."""
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
    scheduler: str = ""
    """Address (tcp://host:port) of a Dask scheduler whose workers run the training."""
    markdown: AsMarkdown = False

    def __call__(self) -> None:
        """Run it, and print the table."""
        from cml import plugins
        from cml.bench import suite, table, track
        from cml.bench.own_sets import add_own_sets, choose_backbone

        if self.quick and self.version:
            raise UserError(f"--quick is the version {suite.LATEST}-quick: give --quick or --version, not both.")
        version = self.version or suite.LATEST + "-quick" * self.quick
        of_tier = [name for name, spec in suite.SETS.items() if spec.tier == self.tier]
        own_sets = add_own_sets(self.data, self.features)
        if own_sets and self.scheduler:
            raise UserError("The workers of --scheduler do not have the datasets of --data: give one of the two.")
        named = self.sets or (() if own_sets else of_tier)
        sets = list(dict.fromkeys([*(name for name in named if suite.look_up("set", name, suite.SETS)), *own_sets]))
        backbone = choose_backbone(sets, self.track, self.backbone)
        rules = suite.look_up("suite", version, suite.SUITES)
        methods = suite.methods(self.methods, rules, self.quick)
        plan = track.Plan(rules, self.track, sets, methods, self.out, backbone)
        with resume_hint():
            left_out = track.run(plan, self.scheduler)
        if len(left_out) == len(sets):
            raise UserError(" ".join(left_out))
        for sentence in left_out:
            say(sentence)
        board = table.read_board(self.out, version, plan.track_folder, checks=True)
        print(board.markdown() if self.markdown else board)
        own = _as_option("--data", self.data) + _as_option("--features", self.features)
        print(f"next: cml bench check {shlex.quote(str(self.out / version))}{own}{plugins.flags()}")


def _as_option(name: str, folders: Sequence[Path]) -> str:
    """An option with its values as a shell takes it; "" for none."""
    return " ".join(["", name, *(shlex.quote(str(folder)) for folder in folders)]) if folders else ""


@dataclass(frozen=True)
class Check:
    """Recompute every score from the ranks, and check the results against the rules and the split.

    A file cannot show whether its trials and final runs took place; --rerun trains some of them again.
    """

    results: Annotated[Path, Positional, arg(metavar="FILE")]
    """Result file, or a folder of result files."""
    rerun: int = 0
    """Also run this many trials, final runs and rows without trials again, drawn at random from all results, and
    compare them with the files. Backbones that the results name are downloaded if needed."""
    data: Data = ()
    features: Stores = ()

    def __call__(self) -> None:
        """Check, and print what is wrong."""
        from cml.bench.check_record import CheckRecord, write_check_record
        from cml.bench.check_result import CheckedResult, check_result
        from cml.bench.own_metrics import explain_unregistered
        from cml.bench.own_sets import add_own_sets
        from cml.bench.result import results_in

        add_own_sets(self.data, self.features)
        if self.rerun < 0:
            raise UserError(f"--rerun must be 0 or more. Got {self.rerun}.")
        checked: dict[Path, CheckedResult] = {}
        wrong = unchecked = 0
        paths = results_in(self.results)
        for path in paths:
            try:
                checked[path] = check_result(path)
            except DataError as error:
                wrong += 1
                print(error)
            except UserError as error:
                unchecked += 1
                print(f"Not checked: {error}")
        for path, one in checked.items():
            columns = [column for metric in one.unregistered.values() for column in metric.columns]
            write_check_record(path, CheckRecord(columns, one.unranked))
        unregistered = [metric for one in checked.values() for metric in one.unregistered.values()]
        if unregistered:
            print(explain_unregistered(unregistered))
        for path, one in checked.items():
            if one.unranked:
                print(f"Not checked: the ranks of {path}. {one.unranked}")
        differing, impossible = _rerun(checked, self.rerun)
        _conclude(len(paths), wrong, unchecked, differing, impossible)


def _rerun(checked: Mapping[Path, "CheckedResult"], count: int) -> tuple[int, int]:
    """Run parts of results again, and print how they compare; how many differ, and how many cannot be run here."""
    from cml.bench.rerun import draw_runs, rerun

    differing = impossible = 0
    for run in draw_runs(checked, count):
        try:
            comparison = rerun(run, checked[run.path])
        except UserError as error:
            impossible += 1
            print(f"Not run again: {run}: {error}", flush=True)
            continue
        differing += not comparison.agrees
        print(f"{'Rerun' if comparison.agrees else 'Rerun differs'}: {run}: {comparison.text}.", flush=True)
    return differing, impossible


def _conclude(count: int, wrong: int, unchecked: int, differing: int, impossible: int) -> None:
    """Print that all results agree, or raise an error that says how many do not."""
    sentences = []
    if wrong:
        sentences.append(f"{wrong} of {count} results cannot be trusted.")
    if unchecked:
        sentences.append(f"{unchecked} of {count} results were not checked.")
    if differing:
        sentences.append(f"{differing} {'run differs' if differing == 1 else 'runs differ'} from the files.")
    if impossible:
        sentences.append(f"{impossible} {'run was' if impossible == 1 else 'runs were'} not possible here.")
    if sentences:
        raise (DataError if wrong or differing else UserError)(" ".join(sentences))
    agreed = "result agrees" if count == 1 else "results agree"
    print(f"{count} {agreed} with ranks, splits and the rules.")


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
    trials: bool = False
    """Print the validation scores of the trials instead: with defaults, of the median trial, and of the best."""
    diagram: Path | None = None
    """Write the critical-difference diagram to this file."""
    markdown: AsMarkdown = False
    json: bool = False
    """Print the table as JSON."""

    def __call__(self) -> None:
        """Print the comparison."""
        from cml.bench import table
        from cml.retrieval import text_table

        board = table.read_board(self.results, self.version, self.track, checks=True)
        if self.diagram is not None:
            from cml.bench.critical_difference_diagram import draw_critical_difference_diagram

            draw_critical_difference_diagram(board, self.diagram)
        if self.trials or self.against:
            grid, note = board.against(self.against) if self.against else board.trials()
            print(f"{text_table.markdown(grid)}\n" if self.markdown else text_table.align_columns(grid), note, sep="\n")
        elif self.json:
            print_json(board.to_json())
        else:
            print(board.markdown() if self.markdown else board)


@dataclass(frozen=True)
class Page:
    """Write the leaderboard as a page without scripts: one table per track, sorted by mean rank or by a set."""

    results: Results = RESULTS
    out: Path = Path("leaderboard.html")
    """File to write."""
    reports: int = 0
    """Also write a retrieval report for each set, with the images that each method retrieves for this many test
    queries."""
    data: Data = ()
    features: Stores = ()

    def __call__(self) -> None:
        """Write the page."""
        from cml.bench.leaderboard import write_leaderboard
        from cml.bench.own_sets import add_own_sets

        add_own_sets(self.data, self.features)
        for sentence in write_leaderboard(self.results, self.out, self.reports):
            say(sentence)
        print(f"leaderboard: {self.out}")


@dataclass(frozen=True)
class Submit:
    """Check results, copy them into a checkout of the project, and print the text of the pull request."""

    results: Results
    into: Path
    """Folder 'results' of the checkout. Plugins that the results need are copied to its folder 'plugins'."""
    methods: tuple[str, ...] = ()
    """Names of the methods to submit; by default all."""

    def __call__(self) -> None:
        """Copy, and print the text."""
        from cml.bench.submit import submit

        print(submit(self.results, self.into, self.methods))


@dataclass(frozen=True)
class Embedding:
    """Track C: score embeddings of a set's test images that come from any program.

    After cml bench has used a set, the prepared set is in the folder bench of cml's cache, ~/.cache/cml or CML_CACHE.
    The test images are among its queries and its gallery: cml embed RUN --images SET --splits query gallery --out
    FOLDER.
    """

    embeddings: Annotated[Path, Positional, arg(metavar="FOLDER_OR_FILE")]
    """Output folder of cml embed, or a .npy file of embeddings (N, D), floating point."""
    set: str
    """The set."""
    name: str
    """Name of the method in the tables."""
    pretraining: str
    """Declaration of the data on which the network was trained."""
    ids: Path | None = None
    """For a .npy file: a text file with its N item ids, one per line. Items that are not needed are ignored."""
    version: str = ""
    """Version of the suite; by default the latest."""
    out: Path = RESULTS
    """Folder of the results."""
    data: Data = ()
    features: Stores = ()

    def __call__(self) -> None:
        """Score, and print the scores."""
        from cml.bench.own_sets import add_own_sets
        from cml.bench.submit import score_embedding
        from cml.bench.suite import LATEST

        add_own_sets(self.data, self.features)
        version = self.version or LATEST
        print(score_embedding(self.embeddings, self.ids, self.set, self.name, self.pretraining, version, self.out))


VERBS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Check, Table, Page, Submit, Embedding)}


def run(arguments: Sequence[str]) -> None:
    """Run the benchmark, or what the first word says."""
    verb = next(iter(arguments), "")
    if not verb or verb.startswith("-"):
        parse(Bench, arguments, prog="cml bench")()
    elif verb in VERBS:
        parse(VERBS[verb], arguments[1:], prog=f"cml bench {verb}")()
    else:
        raise UserError(f"Unknown verb {verb!r} of cml bench.{did_you_mean(verb, VERBS)} Known: {', '.join(VERBS)}.")
