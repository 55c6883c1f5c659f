"""``cml explore RUN`` of graded search: a page with queries and documents as two kinds of points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from cml.array_types import Float32, Int64
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Data, Device, show
from cml.data.input_form import InputForm
from cml.data.vectors import Vectors
from cml.doors.search_model import SearchModel
from cml.errors import UserError
from cml.explore.explore_items import EXPLORER, ExploreOptions, explore_items
from cml.graded.distance import GradedDistance
from cml.graded.grades import Grades
from cml.graded.search_folder import SearchFolder
from cml.graded_runs.run_data import open_data, open_search_model
from cml.items import LabelledItems
from cml.items.labelled_items import Presentation
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class ExploreGrades:
    """Write an interactive page of queries and documents."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Run folder of cml train grades."""
    data: Data = None
    split: str = ""
    """Split whose queries are shown; test by default, or the first one."""
    maps: tuple[Literal["pca", "tsne", "umap"], ...] = ()
    """Maps of the embedding; by default pca and, if it is installed, tsne."""
    count: int = 10_000
    """Maximum number of points; of more documents, those with a grade come first."""
    out: Path | None = None
    """File to write; by default explorer.html in the run folder."""
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Show queries and documents of graded search on a page."""
    options = parse(ExploreGrades, arguments, prog="cml explore grades")
    check_run_folder(options.run)
    model = open_search_model(options.run, options.device)
    folder = open_data(options.run, options.data)
    split = options.split or ("test" if "test" in folder.splits else folder.splits[0])
    path = options.out or options.run / EXPLORER
    explore_search(model, folder, split, path, maps=options.maps, count=options.count)
    show({"explorer": str(path)}, f"explorer: {path}", as_json=options.json)


def explore_search(
    model: SearchModel, folder: SearchFolder, split: str, path: Path, *, maps: Sequence[str] = (), count: int = 10_000
) -> Path:
    """Write the page of the queries of a split and their documents."""
    grades = folder.grades(split)
    rows = {name: row for row, name in enumerate(folder.queries.names)}
    queries = np.array([rows[name] for name in grades.queries])
    room = count - len(queries)
    if room < 1:
        raise UserError(f"--count should leave room for documents beside {len(queries):,} queries. Got {count}.")
    documents = _choose_documents(grades, room)
    sides = [(folder.queries, queries, "query"), (folder.documents, documents, "gallery")]
    embeddings = np.concatenate(
        [
            model.embed(list(folder.queries.by_name(queries).values()), side="queries"),
            model.embed(list(folder.documents.by_name(documents).values()), side="documents", bar="embed"),
        ]
    )
    distance = GradedDistance(grades)
    numbers = [*range(len(queries)), *(len(grades.queries) + documents).tolist()]
    kinds = np.array(["query"] * len(queries) + ["document"] * len(documents), object)
    items = LabelledItems(
        Vectors(embeddings),
        distance.encode(numbers),
        distance,
        given_labels=numbers,
        given_ids=[f"{role[0].upper()} {side.names[row]}" for side, chosen, role in sides for row in chosen.tolist()],
    )
    words = [side.describe(row) for side, chosen, _ in sides for row in chosen.tolist()]
    roles = [role for _, chosen, role in sides for _ in chosen]
    shown = Presentation(words, roles, distance.unit, title=folder.folder.name, colours={"side": (kinds, None)})
    explore_items(
        {"embedding": _Embedded(model)}, items, shown, path, ExploreOptions(beside=("oracle",), maps=tuple(maps))
    )
    return path


def _choose_documents(grades: Grades, most: int) -> Int64:
    """The documents to show: all, or first those that have a grade."""
    everything = np.arange(len(grades.documents))
    if len(everything) <= most:
        return everything
    judged = np.unique(grades.columns)
    others = np.setdiff1d(everything, judged)
    return np.sort(np.concatenate([judged, others])[:most])


@dataclass(frozen=True)
class _Embedded:
    """Gives the explorer embeddings that are computed already, for each side has its network."""

    model: SearchModel
    reference_name: str = ""

    @property
    def label_distance(self) -> Any:  # noqa: ANN401
        """That of the model."""
        return self.model.label_distance

    @property
    def form(self) -> InputForm:
        """That of embeddings."""
        return InputForm("vectors", shape=(self.model.config.dimension,))

    def embed(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401
        """The embeddings themselves."""
        embeddings: Float32 = inputs.read(np.arange(len(inputs)))
        return embeddings

    def embed_by_reference(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401
        """Likewise."""
        return self.embed(inputs)

    def embed_stages(self, inputs: Any) -> dict[int, Float32]:  # noqa: ANN401
        """None."""
        return {}
