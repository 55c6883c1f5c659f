"""``cml bench``: run the benchmark of continuous metric learning, check its results, compare and publish them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from cml.command_line.options import parse, print_json
from cml.command_line.shared import AsMarkdown
from cml.console.messages import say
from cml.console.resume_hint import resume_hint
from cml.errors import DataError, UserError, did_you_mean

RESULTS = Path("results")
Results = Annotated[Path, Positional, arg(metavar="DIR", help="Folder of the results.")]


@dataclass(frozen=True)
class Bench:
    """Run every method on every set by the rules of the suite: equal trials, chosen on validation, tested once.

    What is finished stays; the same command goes on, and several processes share the work. cml bench check | table |
    page | submit | embedding --help tell of the other verbs.
    """

    tier: Literal["offline", "download"] = "offline"
    """Sets that need no download, or those whose raw files are yours: a sentence says how to name them."""
    track: Literal["A", "B"] = "A"
    """A: a linear head on frozen features; B: a whole network."""
    quick: bool = False
    """The suite's small version, in minutes: to see that everything works; its figures say little."""
    version: str = ""
    """Another version of the suite than the latest."""
    sets: tuple[str, ...] = ()
    """Names of sets; all of the tier when none are given."""
    methods: tuple[str, ...] = ()
    """Names of methods, or losses as --loss takes them, your own with --plugin; by default all of the suite's.
    oracle, random, frozen and label-mds are always among them."""
    backbone: str = ""
    """Another backbone than the suite's, as cml train takes it."""
    out: Path = RESULTS
    """Folder of the results."""
    scheduler: str = ""
    """Address of a Dask scheduler, tcp://host:port, whose workers train."""
    markdown: AsMarkdown = False

    def __call__(self) -> None:
        """Run it, and print the table."""
        from cml import plugins
        from cml.bench import suite, table, track

        if self.quick and self.version:
            raise UserError(f"--quick is the version {suite.LATEST}-quick: give --quick or --version, not both.")
        version = self.version or suite.LATEST + "-quick" * self.quick
        offline = [name for name, spec in suite.SETS.items() if spec.tier == self.tier]
        sets = [name for name in self.sets or offline if suite.known("set", name, suite.SETS)]
        methods = suite.methods(self.methods, self.quick)
        rules = suite.known("suite", version, suite.SUITES)
        plan = track.Plan(rules, self.track, sets, methods, self.out, self.backbone)
        with resume_hint():
            left_out = track.run(plan, self.scheduler)
        if len(left_out) == len(sets):
            raise UserError(" ".join(left_out))
        for sentence in left_out:
            say(sentence)
        board = table.board(self.out, version, plan.place)
        print(board.markdown() if self.markdown else board)
        print(f"next: cml bench check {shlex.quote(str(self.out / version))}{plugins.flags()}")


@dataclass(frozen=True)
class Check:
    """Compute every score of results again from their ranks, and hold them against the rules and the split."""

    results: Annotated[Path, Positional, arg(metavar="FILE")]
    """A file of results, or a folder of them."""

    def __call__(self) -> None:
        """Check, and print what is wrong."""
        from cml.bench.result import check, results_in

        wrong, found = 0, results_in(self.results)
        for path in found:
            try:
                check(path)
            except DataError as error:
                wrong += 1
                print(error)
        if wrong:
            raise DataError(f"{wrong} of {len(found)} results cannot be trusted.")
        agreed = "result agrees" if len(found) == 1 else "results agree"
        print(f"{len(found)} {agreed} with ranks, splits and the rules.")


@dataclass(frozen=True)
class Table:
    """Compare the results of one version and track: scores, mean rank, Borda count, which differences can be told."""

    results: Results = RESULTS
    version: str = ""
    """Of the suite; the latest that has results when not given."""
    track: str = ""
    """A or B, or as the folders of results are called, as in A-efficientnet-lite0; the first when not given."""
    against: str = ""
    """Print the paired differences of all methods from this one instead, with their 95 % intervals."""
    trials: bool = False
    """Print the scores of the trials on validation items instead: with defaults, of the median trial, of the best."""
    diagram: Path | None = None
    """Draw the critical-difference diagram into this picture."""
    markdown: AsMarkdown = False
    json: bool = False
    """Print it as JSON."""

    def __call__(self) -> None:
        """Print the comparison."""
        from cml.bench import table
        from cml.retrieval import text_table

        board = table.board(self.results, self.version, self.track)
        if self.diagram is not None:
            table.draw_diagram(board, self.diagram)
        if self.trials or self.against:
            grid, note = board.against(self.against) if self.against else board.trials()
            print(f"{text_table.markdown(grid)}\n" if self.markdown else text_table.aligned(grid), note, sep="\n")
        elif self.json:
            print_json(board.to_json())
        else:
            print(board.markdown() if self.markdown else board)


@dataclass(frozen=True)
class Page:
    """Write the leaderboard as one page without scripts: sorted by mean rank or a set, a table a track."""

    results: Results = RESULTS
    out: Path = Path("leaderboard.html")
    """The page."""
    galleries: int = 0
    """Write a gallery of so many test queries for each set beside the page: what every method retrieves."""

    def __call__(self) -> None:
        """Write the page."""
        from cml.bench.leaderboard import write_leaderboard

        for sentence in write_leaderboard(self.results, self.out, self.galleries):
            say(sentence)
        print(f"leaderboard: {self.out}")


@dataclass(frozen=True)
class Submit:
    """Check results, copy them into a checkout of the project, and print the text of the pull request."""

    results: Results
    into: Path
    """The checkout's folder results. A plugin that the results need is copied to its folder plugins."""
    methods: tuple[str, ...] = ()
    """Names of the methods to submit; all when none are given."""

    def __call__(self) -> None:
        """Copy, and print the text."""
        from cml.bench.submit import submit

        print(submit(self.results, self.into, self.methods))


@dataclass(frozen=True)
class Embedding:
    """Track C: score any embedding of a set's test images, made elsewhere.

    The prepared set lies in the folder bench of cml's cache, ~/.cache/cml or CML_CACHE, once cml bench has used it. The
    test images are among its queries and its gallery: cml embed RUN --images SET --splits query gallery --out FOLDER.
    """

    embeddings: Annotated[Path, Positional, arg(metavar="FOLDER_OR_FILE")]
    """A folder that cml embed wrote, or a .npy file of embeddings (N, D), floating point."""
    set: str
    """The set."""
    name: str
    """What the method shall be called."""
    pretraining: str
    """What the network was trained on: declare it."""
    ids: Path | None = None
    """Of a .npy file: a text file of its N item ids, a line each. Items that are not asked for are left out."""
    version: str = ""
    """Of the suite; the latest when not given."""
    out: Path = RESULTS
    """Folder of the results."""

    def __call__(self) -> None:
        """Score, and print the scores."""
        from cml.bench.submit import score_embedding
        from cml.bench.suite import LATEST

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
