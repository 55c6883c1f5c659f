"""What others hand in: results for the project's folder, and embeddings that were made elsewhere (track C)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from cml.bench.result import Result, check, config_digest, made_on, place, results_in, write_result
from cml.bench.scores import Ranks
from cml.bench.sets import Part, open_set
from cml.distances.label_distance import Float32
from cml.errors import DataError, UserError
from cml.registry import NAME
from cml.retrieval.rankers import embedding_ranker
from cml.storage.npy import map_array


def submit(results: Path, into: Path) -> str:
    """Check results and copy them, with their ranks, to where the project keeps its own.

    Args:
        results: A folder of results, or a file.
        into: The folder ``results`` of a checkout.

    Returns:
        The text of the pull request.

    Raises:
        DataError: one of them cannot be trusted.
        UserError: there are none, or another result has its place.
    """
    checked = [(path, check(path)) for path in results_in(results)]
    lines = []
    for path, found in checked:
        target = place(into, found.suite, found.set, found.track, found.method)
        if target.exists() and target.read_bytes() != path.read_bytes():
            raise UserError(f"{target} holds another result of {found.method}; a version keeps its results.")
        target.parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".json", ".npz"):
            if path.with_suffix(suffix).exists() and not target.with_suffix(suffix).exists():
                shutil.copyfile(path.with_suffix(suffix), target.with_suffix(suffix))
        score = "failed" if found.failed else f"{found.scores['score'].mean}"
        lines.append(f"- {found.suite} {found.set} {found.track} {found.method}: {score} ({found.pretraining})")
    body = "\n".join(lines)
    return (
        f"{len(lines)} results are in {into}. A pull request with them, and this as its text:\n\n"
        f"Add results of the benchmark\n\n{body}\n\nChecked: cml bench check {into}"
    )


def score_embedding(
    embeddings: Path, ids: Path, name: str, method: str, pretraining: str, version: str, out: Path
) -> Path:
    """Score an embedding of a set's test images that was made elsewhere: track C, without training.

    Args:
        embeddings: ``.npy``, (N, D) floating point.
        ids: The item ids of its N rows, a line each; of more items than are asked for the others are left out.
        name: The set.
        method: What the method shall be called.
        pretraining: What the network was trained on.
        version: Of the suite.
        out: Folder of the results.

    Returns:
        The file of the result.

    Raises:
        UserError: an item has no embedding, or a name is none.
        DataError: the file is no array of such numbers.
    """
    if not NAME.fullmatch(method):
        raise UserError(f"A method's name has letters, digits, '_', '-' and '.' alone. Got {method!r}.")
    data = open_set(name, version)
    query, gallery = data.test(0, 0)
    rows = map_array(embeddings)
    named = ids.read_text("utf-8").splitlines()
    if rows.ndim != 2 or rows.dtype.kind != "f" or len(rows) != len(named):
        raise DataError(
            f"{embeddings} should hold floating-point numbers (N, D) for the {len(named)} ids of {ids}. "
            f"Got shape {rows.shape}, {rows.dtype}."
        )
    at = {item: row for row, item in enumerate(named)}

    def of(part: Part) -> Float32:
        lacking = [item for item in part.item_ids if item not in at]
        if lacking:
            raise UserError(
                f"{ids} lacks {len(lacking)} of the test items of {name}, the first of them {lacking[0]!r}."
            )
        found: Float32 = np.asarray(rows[[at[item] for item in part.item_ids]], np.float32)
        return found

    ranks = Ranks.of([embedding_ranker(of(query), of(gallery))], len(query), len(gallery))
    config = {"embeddings": embeddings.name, "dimension": rows.shape[1]}
    result = Result(
        suite=version,
        set=name,
        track="C",
        method=method,
        kind=data.spec.kind,
        split=data.split,
        data=data.data,
        pretraining=pretraining,
        config=config,
        config_sha256=config_digest(config),
        trials=[],
        chosen=None,
        seconds={"run": 0.0, "trials": 0.0},
        memory_mb=0,
        unit=data.report[1],
        **made_on(),
    )
    path = place(out, version, name, "C", method)
    write_result(path, result, ranks, data)
    return path
