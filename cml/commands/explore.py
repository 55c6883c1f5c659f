"""``cml explore RUN..``: a page to walk in an embedding, label distance beside embedding distance."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.options import parse, show
from cml.command_line.shared import AsJson, Data, Device


@dataclass(frozen=True)
class Explore:
    """Write a page to walk in an embedding: maps, neighbours and pairs, by embedding and by label."""

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Run folders on one dataset, one tab each, or the folder of a comparison, one tab per variant."""
    beside: tuple[Literal["frozen", "oracle"], ...] = ("frozen", "oracle")
    """Further tabs: features of a frozen ImageNet network, and the labels themselves."""
    roles: tuple[Literal["train", "query", "gallery"], ...] = ()
    """Which items; by default all."""
    maps: tuple[Literal["pca", "tsne", "umap"], ...] = ()
    """Maps of each embedding; by default pca and, if it is installed, tsne."""
    count: int = 10_000
    """Items at most, drawn at random from more; over 10,000, the pictures lie in a folder beside the page."""
    out: Path | None = None
    """Where to write the page; explorer.html in the first folder when not given."""
    grid: str = ""
    """COLUMNSxROWS, as in 60x40: instead of the page, draw a picture of this many items on a grid. Items with near
    embeddings are near; labels that are numbers colour the frames."""
    png: Path | None = None
    """Where to write that picture; square.png in the first folder when not given."""
    cell: int = 48
    """Pixels of an item on it."""
    data: Data = None
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Write RUN/explorer.html, or RUN/square.png."""
    from cml.errors import UserError
    from cml.runs.explore import EXPLORER, SQUARE, explore_runs, titled, write_run_square
    from cml.runs.run import open_run

    options = parse(Explore, arguments, prog="cml explore")
    if not options.runs:
        raise UserError("'cml explore' needs a run to look at: cml explore RUN")
    folders = {(name, folder): None for given in options.runs for name, folder in _runs_of(given).items()}
    opened = [open_run(folder, data=options.data, device=options.device) for _, folder in folders]
    names = [name for name, _ in folders]
    named = dict(zip(names, opened, strict=True)) if all(names) and len(set(names)) == len(names) else titled(opened)
    if options.grid:
        place, chosen = options.png or options.runs[0] / SQUARE, (*options.maps, "tsne")[0]
        write_run_square(opened[0], place, options.grid, roles=options.roles, map_name=chosen, side=options.cell)
        show({"square": str(place)}, f"square: {place}", as_json=options.json)
        return
    if options.png is not None:
        raise UserError("'--png' needs the size of the grid: --grid 60x40.")
    how = {name: getattr(options, name) for name in ("beside", "roles", "maps", "count")}
    made = explore_runs(named, options.out or options.runs[0] / EXPLORER, **how)
    show({"explorer": str(made)}, f"explorer: {made}", as_json=options.json)


def _runs_of(folder: Path) -> dict[str, Path]:
    """The runs that a folder is of: title to folder; of a comparison the first run of each variant."""
    from cml.errors import UserError
    from cml.runs.rows import slug
    from cml.storage.atomic import read_json
    from cml.training.run_folder import MODEL

    comparison = folder / "comparison.json"
    if not comparison.is_file():
        return {"": folder}
    rows = read_json(comparison, "a comparison").get("rows", {})
    found = {name: min((folder / slug(name)).rglob(MODEL), default=None) for name in rows}
    if runs := {name: model.parent for name, model in found.items() if model is not None}:
        return runs
    raise UserError(f"{folder} is a comparison whose runs are gone; give run folders.")
