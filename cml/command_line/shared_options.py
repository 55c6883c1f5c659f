"""Options that several commands have, with their help."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

AllowDownload = Annotated[
    bool, arg(help="Download models that the run names (pretrained weights, a sentence model) if they are not cached.")
]
AsJson = Annotated[bool, arg(help="Print the result as JSON.")]
AsMarkdown = Annotated[bool, arg(help="Print the table as Markdown.")]
BatchSize = Annotated[int | None, arg(help="Number of images per forward pass; by default 64, or 16 on a CPU.")]
Data = Annotated[Path | None, arg(help="Dataset path, if it moved since training.")]
Dataset = Annotated[Path, Positional, arg(metavar="DATASET", help="Folder of the prepared dataset.")]
Device = Annotated[str, arg(help="Device to compute on: auto (a GPU if there is one), cpu, cuda or cuda:N.")]
Split = Literal["train", "query", "gallery"]
Splits = Annotated[tuple[Split, ...], arg(help="Splits of a prepared dataset to use.")]
StoreOfImages = Annotated[
    Path | None, arg(help="Folder of a feature store with the images (cml features); by default that of the run.")
]
StoreOfBackbone = Annotated[
    Path | None,
    arg(
        help="Folder of a feature store (cml features) with the images, made by the backbone of the model: no image is "
        "read."
    ),
]
Run = Annotated[Path, Positional, arg(metavar="RUN", help="Run folder.")]
_HUB = "Run folder, output folder of 'cml export hub', or hf:user/name[@revision] on the Hugging Face hub."
RowIds = Annotated[
    Path | None, arg(help="Text file with the ids of the rows of a .npy file, one per line, in place of their numbers.")
]
SharedRun = Annotated[Path, Positional, arg(metavar="RUN", help=_HUB)]
Threads = Annotated[int, arg(help="Number of images decoded at the same time.")]
