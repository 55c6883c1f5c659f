"""``cml search INDEX QUERY.. --k 5``: the items of an index, or of a folder of embeddings, nearest to given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Device, StoreOfBackbone, print_json, print_text
from cml.console.messages import say_warning
from cml.errors import DataError, UserError
from cml.searching.embedding_folder import EMBEDDINGS
from cml.searching.index_file import FILE, explain_missing

if TYPE_CHECKING:
    from cml.retrieval.calibration import Calibration
    from cml.searching.hit import Hit

_LONGEST = 4096  # characters of a path, as on the disk


@dataclass(frozen=True)
class Search:
    """Search an index, or a folder of embeddings, for the items that are nearest to query images or texts."""

    index: Annotated[Path, Positional, arg(metavar="INDEX")]
    """Folder of an index from 'cml index', or output folder of 'cml embed', which is searched exactly."""
    queries: Annotated[tuple[str, ...], Positional, arg(metavar="QUERY")]
    """Query images; the query texts if the model embeds texts; or, if it embeds vectors, a .npy file with one query per
    row."""
    k: int | None = None
    """Number of results per query; by default 5, or all that match if --within is given."""
    within: float | None = None
    """Return only items whose expected label distance is at most this, in the label's unit; needs a calibrated run."""
    where: str | None = None
    """Return only items that meet this SQL condition on id, label, path and the index's columns, such as "age > 30"."""
    exclude: tuple[str, ...] = ()
    """Ids of items to exclude from the results."""
    exact: bool = False
    """Compare the query with every item, even if there is a faiss index."""
    html: Path | None = None
    """Also write a page that shows the retrieved images, or the names, labels and columns of vectors."""
    pictures: tuple[Path, ...] = ()
    """Folders whose images --html may show, in addition to the current folder and those of the query images. Images
    elsewhere are not shown, because an index from someone else may name any file."""
    run: Path | None = None
    """Path of the run, if it moved since the index was built."""
    features: StoreOfBackbone = None
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Search, and print what was found."""
    options = parse(Search, arguments, prog="cml search")
    if not any((options.index / name).exists() for name in (FILE, EMBEDDINGS)):
        raise DataError(explain_missing(options.index))
    from cml.data.item_digests import digest_items, find_known
    from cml.doors.search import (  # which imports torch
        describe_query_rows,
        embed_queries,
        find_novelty,
        open_with_model,
        search_embedded,
    )
    from cml.reporting.visible_text import visible_text
    from cml.searching.hit import TRAINED, Hit
    from cml.searching.index_novelty import MEANING
    from cml.searching.search_page import own_label, write_index_page

    if not options.queries:
        raise UserError("'cml search' needs an image or text to look for: cml search INDEX QUERY..")
    index, model = open_with_model(options.index, options.run, device=options.device)
    form = model.query_model.form
    kind = "images" if options.features is not None else form.kind
    given = [query if kind == "texts" else Path(query) for query in options.queries]
    if (folder := next((one for one in given if isinstance(one, Path) and one.is_dir()), None)) is not None:
        raise UserError(f"{folder} is a folder; give images to look for, as in {folder}/*.jpg.")
    if kind not in ("images", "texts") and len(given) != 1:
        raise UserError(f"The model takes {form}: give one .npy file, whose rows are the queries.")
    k = 5 if options.k is None and options.within is None else options.k
    source = index.run if options.run is None else str(options.run)
    rows = embed_queries(model, given if kind in ("images", "texts") else str(given[0]), options.features, source)
    results = search_embedded(
        index,
        model,
        rows,
        k if k is None else min(k, max(1, len(index))),
        options.within,
        where=options.where,
        exclude=options.exclude,
        exact=options.exact,
        source=source,
    )
    novelty = find_novelty(index, model, rows)
    novelties = [None] * len(rows) if novelty is None else novelty
    are_trained = np.zeros(len(rows), bool)
    if kind == "images":  # a query that was trained on lies nearer to like items than a new one
        are_trained = find_known(digest_items(given), model.query_model.training_items)
    calibration = model.calibration
    queries: Sequence[Path | Hit] = [Hit(one, None, 0.0) if isinstance(one, str) else one for one in given]
    names = list(options.queries)
    if kind not in ("images", "texts"):
        queries = describe_query_rows(Path(names[0]), len(results))
        names = [f"{names[0]}, row {row}" for row in range(len(results))]
    if options.html is not None:
        write_index_page(
            options.html, queries, results, index.folder, len(index), calibration, options.pictures, novelty
        )
    if calibration is not None and (caution := calibration.caution_of(len(index))):
        say_warning(caution)
    if options.json:
        listed = [[_as_json(hit, calibration) for hit in hits] for hits in results]
        unit = {} if calibration is None else {"unit": calibration.unit}
        print_json(
            [
                {"image": name, "novelty": new, "is_trained": is_trained, "found": hits, **unit}
                for name, new, is_trained, hits in zip(names, novelties, are_trained.tolist(), listed, strict=True)
            ]
        )
        return
    if calibration is not None:
        print_text(f"expected label distance in {calibration.unit}, interval of {calibration.level:.0%}")
    if novelty is not None:
        print_text(MEANING)
    if are_trained.any() and calibration is not None:
        say_warning("Intervals hold for new queries. They are too optimistic for a query that is a training item.")
    asked = zip(names, queries, novelties, are_trained.tolist(), results, strict=True)
    for name, query, new, is_trained, hits in asked:
        label = own_label(query, hits) if isinstance(query, Path) else query.shown_label
        known = f"{f', label {label}' if label else ''}{'' if new is None else f', novelty {new:.3f}'}"
        known += ", training item" if is_trained else ""
        print_text(visible_text(f"{name}{known}", _LONGEST))
        meaning = "" if calibration is None else f"{'expected':<10}{'interval':<18}"
        print_text(f"      distance  {meaning}{'label  ' if any(hit.shown_label for hit in hits) else ''}item")
        for place, hit in enumerate(hits, 1):  # names of strangers may hold what steers a terminal
            columns = ", ".join(
                "training item" if name == TRAINED else f"{name} {text}" for name, text in hit.shown_columns.items()
            )
            texts = hit.shown_label, hit.item_id, str(hit.path or ""), columns
            named = (visible_text(text, _LONGEST) for text in texts if text)
            meaning = ""
            if calibration is not None:
                expected, low, high = _expectation(hit, calibration).values()
                meaning = f"{expected:<10.3g}{f'{low:.3g} to {high:.3g}':<18}"
            print_text(f"{place:>4}  {hit.distance:<8.4f}  {meaning}{'  '.join(named)}")
        if not hits:
            print_text("      none")
    if calibration is not None and options.within is not None and calibration.radius(options.within) < 0:
        least = calibration.expect(np.array(0.0)).expected
        print_text(
            f"No item is expected within {options.within:g}: even at embedding distance 0, {least:.3g} is expected."
        )
    if options.html is not None:
        print_text(f"page: {options.html}")


def _as_json(hit: Hit, calibration: Calibration | None) -> dict[str, object]:
    shown = {"path": hit.path and str(hit.path), "columns": dict(hit.columns)}
    return {**hit._asdict(), **shown, **_expectation(hit, calibration)}


def _expectation(hit: Hit, calibration: Calibration | None) -> dict[str, float]:
    """The expected label distance of a hit and the ends of its interval; nothing without a calibration."""
    if calibration is None:
        return {}
    expected, low, high = calibration.expect(np.array(hit.distance))
    return {"expected": float(expected), "low": float(low), "high": float(high)}
