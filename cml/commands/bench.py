"""``cml bench``: run the benchmark of continuous metric learning, check its results, compare and publish them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.options import going_on, parse, print_json, say
from cml.errors import DataError, UserError, did_you_mean

RESULTS = Path("results")


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
    markdown: bool = False
    """Print the table as Markdown."""


@dataclass(frozen=True)
class Check:
    """Compute every score of results again from their ranks, and hold them against the rules and the split."""

    results: Annotated[Path, Positional, arg(metavar="FILE")]
    """A file of results, or a folder of them."""


@dataclass(frozen=True)
class Table:
    """Compare the results of one version and track: scores, mean rank, Borda count, which differences can be told."""

    results: Annotated[Path, Positional, arg(metavar="DIR")] = RESULTS
    """Folder of the results."""
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
    markdown: bool = False
    """Print the table as Markdown."""
    json: bool = False
    """Print it as JSON."""


@dataclass(frozen=True)
class Page:
    """Write the leaderboard as one page without scripts: sorted by mean rank or a set, a table a track."""

    results: Annotated[Path, Positional, arg(metavar="DIR")] = RESULTS
    """Folder of the results."""
    out: Path = Path("leaderboard.html")
    """The page."""
    galleries: int = 0
    """Write a gallery of so many test queries for each set beside the page: what every method retrieves."""


@dataclass(frozen=True)
class Submit:
    """Check results, copy them into a checkout of the project, and print the text of the pull request."""

    results: Annotated[Path, Positional, arg(metavar="DIR")]
    """Folder of the results."""
    into: Path
    """The checkout's folder results. A plugin that the results need is copied to its folder plugins."""
    methods: tuple[str, ...] = ()
    """Names of the methods to submit; all when none are given."""


@dataclass(frozen=True)
class Embedding:
    """Track C: score any embedding of a set's test images, made elsewhere.

    The prepared set lies in the folder bench of cml's cache, ~/.cache/cml or CML_CACHE, once cml bench has used it. The
    test images are among its queries and its gallery: cml embed RUN --images SET --roles query gallery --out FOLDER.
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


def run(arguments: Sequence[str]) -> None:
    """Run the benchmark, or what the first word says."""
    verbs = {"check": _check, "table": _table, "page": _page, "submit": _submit, "embedding": _embedding}
    verb = next(iter(arguments), "")
    if verb in verbs:
        verbs[verb](arguments[1:])
    elif verb and not verb.startswith("-"):
        raise UserError(f"Unknown verb {verb!r} of cml bench.{did_you_mean(verb, verbs)} Known: {', '.join(verbs)}.")
    else:
        _bench(parse(Bench, arguments, prog="cml bench"))


def _bench(options: Bench) -> None:
    from cml import plugins
    from cml.bench import suite, table, track

    if options.quick and options.version:
        raise UserError(f"--quick is the version {suite.LATEST}-quick: give --quick or --version, not both.")
    version = options.version or suite.LATEST + "-quick" * options.quick
    offline = [name for name, spec in suite.SETS.items() if spec.tier == options.tier]
    sets = [name for name in options.sets or offline if suite.known("set", name, suite.SETS)]
    methods = suite.methods(options.methods, options.quick)
    rules = suite.known("suite", version, suite.SUITES)
    plan = track.Plan(rules, options.track, sets, methods, options.out, options.backbone)
    with going_on():
        left_out = track.run(plan, options.scheduler)
    if len(left_out) == len(sets):
        raise UserError(" ".join(left_out))
    for sentence in left_out:
        say(sentence)
    board = table.board(options.out, version, plan.place)
    print(board.markdown() if options.markdown else board)
    print(f"next: cml bench check {shlex.quote(str(options.out / version))}{plugins.flags()}")


def _check(arguments: Sequence[str]) -> None:
    from cml.bench.result import check, results_in

    wrong, found = 0, results_in(parse(Check, arguments, prog="cml bench check").results)
    for path in found:
        try:
            check(path)
        except DataError as error:
            wrong += 1
            print(error)
    if wrong:
        raise DataError(f"{wrong} of {len(found)} results cannot be trusted.")
    print(f"{len(found)} {'result agrees' if len(found) == 1 else 'results agree'} with ranks, splits and the rules.")


def _table(arguments: Sequence[str]) -> None:
    from cml.bench import table
    from cml.retrieval import text_table

    options = parse(Table, arguments, prog="cml bench table")
    board = table.board(options.results, options.version, options.track)
    if options.diagram is not None:
        table.draw_diagram(board, options.diagram)
    if options.trials or options.against:
        grid, note = board.against(options.against) if options.against else board.trials()
        print(f"{text_table.markdown(grid)}\n" if options.markdown else text_table.aligned(grid), note, sep="\n")
    elif options.json:
        print_json(board.to_json())
    else:
        print(board.markdown() if options.markdown else board)


def _page(arguments: Sequence[str]) -> None:
    from cml.bench.leaderboard import write_leaderboard

    options = parse(Page, arguments, prog="cml bench page")
    for sentence in write_leaderboard(options.results, options.out, options.galleries):
        say(sentence)
    print(f"leaderboard: {options.out}")


def _submit(arguments: Sequence[str]) -> None:
    from cml.bench.submit import submit

    options = parse(Submit, arguments, prog="cml bench submit")
    print(submit(options.results, options.into, options.methods))


def _embedding(arguments: Sequence[str]) -> None:
    from cml.bench.submit import score_embedding
    from cml.bench.suite import LATEST

    own = parse(Embedding, arguments, prog="cml bench embedding")
    version = own.version or LATEST
    print(score_embedding(own.embeddings, own.ids, own.set, own.name, own.pretraining, version, own.out))
