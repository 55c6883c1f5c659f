"""``cml explore RUN ...``: an interactive page for exploring an embedding, beside the label distances."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, AsJson, Data, Device, Split, StoreOfImages, show
from cml.storage.downloads import check_run_folder


@dataclass(frozen=True)
class Explore:
    """Write an interactive page for exploring an embedding: maps, neighbours and pairs, by embedding and by label."""

    runs: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN")]
    """Run folders of one dataset, or the folder of a comparison. Each run or row of the comparison is a tab."""
    beside: tuple[Literal["frozen", "oracle"], ...] = ("frozen", "oracle")
    """Additional tabs: frozen features of an ImageNet network, and the labels themselves."""
    splits: tuple[Split, ...] = ()
    """Splits to show; by default all, or query if the queries are the training items."""
    maps: tuple[Literal["pca", "tsne", "umap"], ...] = ()
    """Maps of each embedding; by default pca and, if it is installed, tsne."""
    count: int = 10_000
    """Maximum number of items (random subset). With more than 10,000, the images are written to a folder next to the
    page."""
    out: Path | None = None
    """File to write; by default explorer.html in the first folder."""
    grid: str = ""
    """Write an image of items on a grid of COLUMNSxROWS, such as 60x40, instead of the page. Items with similar
    embeddings are placed close together, and numeric labels are shown by the colour of the frames."""
    png: Path | None = None
    """File for the image of --grid; by default square.png in the first folder."""
    cell: int = 48
    """Size of an item in the image of --grid, in pixels."""
    data: Data = None
    features: StoreOfImages = None
    device: Device = "auto"
    allow_download: AllowDownload = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Write RUN/explorer.html, or RUN/square.png."""
    options = parse(Explore, arguments, prog="cml explore")
    for folder in options.runs:
        check_run_folder(folder)
    from cml.doors.run import open_run
    from cml.doors.run_explorer import by_title, explore_runs
    from cml.errors import UserError
    from cml.explore.explore_items import EXPLORER, SQUARE, ExploreOptions

    if not options.runs:
        raise UserError("'cml explore' needs a run to show: cml explore RUN")
    titles_and_folders = dict.fromkeys(pair for folder in options.runs for pair in _runs_of(folder).items())
    titles = [title for title, _ in titles_and_folders]
    opened = [
        open_run(
            folder,
            data=options.data,
            device=options.device,
            allow_download=options.allow_download,
            features=options.features,
        )
        for _, folder in titles_and_folders
    ]
    if options.grid:
        path, map_name = options.png or options.runs[0] / SQUARE, (*options.maps, "tsne")[0]
        opened[0].square(path, options.grid, splits=options.splits, map_name=map_name, side=options.cell)
        show({"square": str(path)}, f"square: {path}", as_json=options.json)
        return
    if options.png is not None:
        raise UserError("'--png' needs the size of the grid: --grid 60x40.")
    are_distinct = all(titles) and len(set(titles)) == len(titles)
    tabs = dict(zip(titles, opened, strict=True)) if are_distinct else by_title(opened)
    items = ExploreOptions(options.beside, options.splits, options.maps, options.count)
    explorer = explore_runs(tabs, options.out or options.runs[0] / EXPLORER, items)
    show({"explorer": str(explorer)}, f"explorer: {explorer}", as_json=options.json)


def _runs_of(folder: Path) -> dict[str, Path]:
    """Title to run folder: the folder itself under "", or of a comparison the first run of each row."""
    from cml.comparing.rows import slug
    from cml.errors import UserError
    from cml.storage.json_file import read_json
    from cml.training.saved_model import MODEL

    path = folder / "comparison.json"
    if not path.is_file():
        return {"": folder}
    comparison = read_json(path, "a comparison")
    folders = comparison.get("folders", {})
    runs = {}
    for row in comparison.get("rows", {}):
        model = min((folder / folders.get(row, slug(row))).rglob(MODEL), default=None)
        if model is not None:
            runs[row] = model.parent
    if not runs:
        raise UserError(f"The runs of the comparison {folder} are missing; give run folders.")
    return runs
