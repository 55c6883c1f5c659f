"""``cml index RUN DATA --out INDEX`` of graded search: an index of the documents, which ``cml search`` asks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Device, show
from cml.doors.search_model import SearchModel
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.run_data import open_data, open_search_model
from cml.searching.index import Index
from cml.storage.downloads import check_run_folder

_BLOCK = 10_000  # documents that are embedded and added at a time


@dataclass(frozen=True)
class IndexGrades:
    """Build a search index of the documents of graded search, or add further ones."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Run folder of cml train grades."""
    out: Path
    """Folder of the index."""
    data: Annotated[Path | None, Positional, arg(metavar="DATA")] = None
    """Folder with the documents, as cml prepare grades makes it; by default that of the run."""
    add: bool = False
    """Add documents to an existing index; those whose ids it holds are left out."""
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Index the documents of graded search."""
    options = parse(IndexGrades, arguments, prog="cml index grades")
    check_run_folder(options.run)
    model = open_search_model(options.run, options.device)
    folder = open_data(options.run, options.data)
    if options.add:
        index = Index.open(options.out, model)
    else:
        index = Index.create(options.out, model, run=options.run.absolute())
    added = add_documents(index, model, folder)
    query = {"texts": '"a text"', "images": "IMAGE", "vectors": "VECTORS.npy"}[model.query_model.form.kind]
    show(
        {"index": str(options.out), "items": len(index), "added": added, "method": index.method},
        f"{options.out}: {len(index):,} documents, {index.method}",
        f"next: cml search {shlex.quote(str(options.out))} {query}",
        as_json=options.json,
    )


def add_documents(index: Index, model: SearchModel, folder: SearchFolder) -> int:
    """Embed and add the documents that an index lacks, block by block; return how many."""
    side = folder.documents
    rows = [row for row, name in enumerate(side.names) if name not in index]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        index.add(
            model.embed([side.inputs[row] for row in block], side="documents", bar="embed"),
            ids=[side.names[row] for row in block],
            columns=[{"text": side.describe(row)} for row in block],
            digest=model.digest,
        )
    return len(rows)
