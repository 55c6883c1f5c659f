"""The square of a run: pictures on a grid, each near its place on a map of the embedding."""

from collections.abc import Sequence
from pathlib import Path

from cml.runs.explore import colour_columns, inputs_of, sample_items
from cml.runs.trained_run import TrainedRun


def write_run_square(
    trained: TrainedRun, path: Path, grid: str, *, splits: Sequence[str] = (), map_name: str = "tsne", side: int = 48
) -> Path:
    """Write a grid of pictures as a PNG; a number as label colours the frame.

    Args:
        trained: The run.
        path: Where to write it.
        grid: Columns and rows, as in "60x40".
        splits: Which items: train, query, gallery; all if there are none.
        map_name: The map that gives the places: pca, tsne or umap.
        side: Size of a picture in pixels.

    Raises:
        UserError: The grid is too large, or the map is unknown or its package not installed.
    """
    from cml.explore.maps import MAPS, check_maps
    from cml.explore.picture_grid import frame_colours, grid_size, place_on_grid, write_square

    columns, rows = grid_size(grid)
    check_maps((map_name,))
    pictures, _ = sample_items(trained, splits, columns * rows)
    embeddings = trained.embed_inputs(inputs_of(pictures))
    cells = place_on_grid(MAPS[map_name].draw(embeddings, 0), columns, rows)
    numbers = [column for column in colour_columns(trained, pictures).values() if column[0].dtype.kind == "f"]
    frames = frame_colours(*numbers[0]) if numbers else None
    write_square(path, pictures, cells, columns, rows, side=side, frames=frames)
    return path
