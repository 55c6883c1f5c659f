"""What others hand in: results for the project's folder, and embeddings that were made elsewhere (track C)."""

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from cml import plugins
from cml.array_types import Float32
from cml.bench.check_result import check_result
from cml.bench.computing import Final, build_result
from cml.bench.own_metrics import explain_unregistered
from cml.bench.result import describe_machine, read_result, result_path, results_in, write_result
from cml.bench.scores import Ranks
from cml.bench.sets import Part, open_set
from cml.bench.suite import LATEST, OWN
from cml.errors import DataError, UserError
from cml.registry import NAME
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.searching.embedding_folder import EmbeddingFolder
from cml.storage.atomic import atomic_file, with_path
from cml.storage.npy import map_array


def submit(results: Path, into: Path, methods: Collection[str] = ()) -> str:
    """Check results and copy them to a checkout of the project.

    Args:
        results: Folder of the results.
        into: Folder of results in the checkout. Plugins are copied to its folder ``plugins``.
        methods: Names of the methods; none takes all.

    Returns:
        The text of the pull request.

    Raises:
        UserError: there are no such results, they are of a small version, another file is in their place, or a plugin
            that they need is not loaded.
        DataError: a result does not follow from its ranks, or breaks the rules.
    """
    paths = [path for path in results_in(results) if not methods or read_result(path).method in methods]
    if not paths:
        raise UserError(f"There are no results of {', '.join(methods)} in {results}.")
    small = next((path for path in paths if "-" in read_result(path).suite), None)
    if small is not None:
        raise UserError(f"{small} is of a small version, whose figures say little: submit results of {LATEST}.")
    own_set = next((path for path in paths if read_result(path).set.startswith(OWN)), None)
    if own_set is not None:
        raise UserError(
            f"{own_set} is of a dataset of your own, which nobody else can check: submit results of the suite."
        )
    checked = {path: check_result(path) for path in paths}
    absent = [metric for one in checked.values() for metric in one.unregistered.values()]
    if absent:
        raise UserError(explain_unregistered(absent))
    for path, one in checked.items():
        if one.unranked:
            raise UserError(f"{path}: its ranks were not computed again. {one.unranked}")
    lines: list[str] = []
    copies: dict[Path, Path] = {}
    for path, result in ((path, one.result) for path, one in checked.items()):
        target = result_path(into, result.suite, result.set, result.track, result.method)
        files = [file for name, _ in result.plugins if (file := plugins.plugin_file(name)) is not None]
        copies |= {file: into / "plugins" / file.name for file in files}
        if not result.failed:
            copies[path.with_suffix(".npz")] = target.with_suffix(".npz")
        copies[path] = target  # after its ranks, so that nobody sees it without them
        score = "failed" if result.failed else f"{result.scores['score'].mean}"
        lines.append(f"- {result.suite} {result.set} {result.track} {result.method}: {score} ({result.pretraining})")
    _copy_files(copies)
    body, own = "\n".join(lines), sorted((into / "plugins").glob("*.py"))
    files_of_all = (f"--plugin={into.name}/plugins/{file.name}" for file in own)  # as the folder of results holds them
    check_again = shlex.join(["cml", "bench", "check", into.name, *files_of_all])  # in the checkout
    return (
        f"The results are in {into}. Open a pull request with them and this text:\n\n"
        f"Add results of the benchmark\n\n{body}\n\nChecked: {check_again}"
    )


def _copy_files(copies: Mapping[Path, Path]) -> None:
    """Copy files to where there are none yet, or equal ones; nothing is written if one of them is in the way.

    Raises:
        UserError: another file is in the place of a copy.
        OSError: a file cannot be read or written; the error names the one that cannot.
    """
    missing: dict[Path, bytes] = {}
    for source, target in copies.items():
        with with_path(source):
            content = source.read_bytes()
        if not target.exists():
            missing[target] = content
            continue
        with with_path(target):
            is_equal = target.read_bytes() == content
        if not is_equal:
            raise UserError(f"{target} is another file than {source}. A version keeps its results.")
    for target, content in missing.items():
        with atomic_file(target) as temporary:
            temporary.write_bytes(content)


def score_embedding(
    embeddings: Path, ids: Path | None, name: str, method: str, pretraining: str, version: str, out: Path
) -> Path:
    """Score an embedding of a set's test images that was made elsewhere: track C, without training.

    Args:
        embeddings: Folder that ``cml embed`` wrote, or a ``.npy`` file of (N, D) floating-point numbers.
        ids: For a ``.npy`` file: a text file with its N item ids, one per line. Items that are not needed are ignored.
        name: Name of the set.
        method: Name of the method in the tables.
        pretraining: The data on which the network was trained.
        version: Version of the suite.
        out: Folder of the results.

    Returns:
        The file of the result.

    Raises:
        UserError: the name has other characters than allowed, or a test item has no embedding.
        DataError: the file does not hold (N, D) floating-point numbers for N ids.
    """
    if not NAME.fullmatch(method):
        raise UserError(f"A method's name has letters, digits, '_', '-' and '.' alone. Got {method!r}.")
    data = open_set(name, version)
    query, gallery = data.test(0, 0)
    if embeddings.is_dir():
        folder = EmbeddingFolder.open(embeddings)
        rows = folder.embeddings
        named = [str(item["item_id"]) for item in folder.items()]
    elif ids is None:
        raise UserError(f"{embeddings} does not name its items: give their ids with --ids, or a folder of cml embed.")
    else:
        rows = map_array(embeddings)
        named = ids.read_text("utf-8").splitlines()
    if rows.ndim != 2 or rows.dtype.kind != "f" or len(rows) != len(named):
        raise DataError(
            f"{embeddings} should hold floating-point numbers (N, D) for the {len(named)} ids of {ids}. "
            f"Got shape {rows.shape}, {rows.dtype}."
        )
    at = {item: row for row, item in enumerate(named)}

    def of(part: Part) -> Float32:
        missing = [item for item in part.item_ids if item not in at]
        if missing:
            raise UserError(
                f"{ids or embeddings} lacks {len(missing)} of the test items of {name}, the first of them "
                f"{missing[0]!r}. They are among the queries and the gallery of the prepared dataset {data.folder}."
            )
        selected: Float32 = np.asarray(rows[[at[item] for item in part.item_ids]], np.float32)
        return selected

    ranks = Ranks.from_rankers([embedding_ranker(of(query), of(gallery))], len(query), len(gallery))
    config = {"embeddings": embeddings.name, "dimension": rows.shape[1]}
    result = build_result(
        data, version, "C", method, pretraining, config, [Final(ranks, 0.0, "", 0, describe_machine())]
    )
    path = result_path(out, version, name, "C", method)
    write_result(path, result, ranks, data)
    return path
