"""Options that several commands have, with what ``--help`` says of them."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

AsJson = Annotated[bool, arg(help="Print the result as JSON.")]
AsMarkdown = Annotated[bool, arg(help="Print the table as Markdown.")]
BatchSize = Annotated[int | None, arg(help="Images per forward pass; by default 64, or 16 on a processor.")]
Data = Annotated[Path | None, arg(help="Where the dataset lies now, if not where it was at training.")]
Dataset = Annotated[Path, Positional, arg(metavar="DATASET", help="Folder of the prepared dataset.")]
Device = Annotated[str, arg(help="auto | cpu | cuda ..")]
Split = Literal["train", "query", "gallery"]
Splits = Annotated[tuple[Split, ...], arg(help="Splits of a prepared dataset to take.")]
Run = Annotated[Path, Positional, arg(metavar="RUN", help="Run folder.")]
_HUB = "Run folder, a folder that 'cml export hub' made, or hf:user/name[@revision] on the Hugging Face hub."
SharedRun = Annotated[Path, Positional, arg(metavar="RUN", help=_HUB)]
Threads = Annotated[int, arg(help="Images decoded at a time.")]
