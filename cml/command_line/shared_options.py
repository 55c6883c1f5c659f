"""What several commands share: options with their help, a first argument that is a name, and results on stdout."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.command_list import HELP, PLUGIN, PLUGIN_HELP
from cml.command_line.own_commands import kinds
from cml.command_line.own_commands import summary as summary_of_kind
from cml.errors import UserError, did_you_mean, escape_controls
from cml.processes.exactness import Decode, Precision

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
    Path | None, arg(help="Folder of a feature store (cml features) of the images; by default that of the run.")
]
StoreOfBackbone = Annotated[
    Path | None,
    arg(
        help="Folder of a feature store (cml features) of the images, computed by the backbone of the model, so that "
        "no image is read."
    ),
]
Run = Annotated[Path, Positional, arg(metavar="RUN", help="Run folder.")]
_HUB = "Run folder, output folder of 'cml export hub', or hf:user/name[@revision] on the Hugging Face hub."
RowIds = Annotated[
    Path | None, arg(help="Text file with the ids of the rows of a .npy file, one per line, in place of their numbers.")
]
FirstDimensions = Annotated[
    int | None, arg(help="Keep only this many first dimensions, if the run was trained for this (loss matryoshka).")
]
SharedRun = Annotated[Path, Positional, arg(metavar="RUN", help=_HUB)]
ImageDecoding = Annotated[
    Decode,
    arg(
        help="Decoding of images: fast decodes JPEGs at a half, a quarter or an eighth of their size where that is "
        "enough, which changes pixels slightly."
    ),
]
NetworkPrecision = Annotated[
    Precision, arg(help="Precision of the network: bfloat16 uses autocast, tf32 that of GPUs for float32 products.")
]
Compiled = Annotated[
    bool, arg(help="Compile the backbone by torch.compile, which takes a minute or more and a C++ compiler.")
]
Threads = Annotated[int, arg(help="Number of images decoded at the same time.")]


def check_source(path: Path | None) -> None:
    """Refuse images or vectors that are not there, before anything is imported that takes seconds."""
    if path is not None and not path.exists():
        raise UserError(
            f"{path} does not exist; give a folder of images, a prepared dataset, or a .npy file of vectors."
        )


def print_json(value: object) -> None:  # value: a value that JSON can hold; NaN and infinity are a ``ValueError``
    """Print a result as JSON on stdout."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)  # which spells those below a blank alone
    print(escape_controls(text, lambda character: f"\\u{ord(character):04x}"))


def show(value: object, *lines: str, as_json: bool) -> None:
    """Print a result on stdout, as JSON or as lines of text."""
    if as_json:
        print_json(value)
    else:
        print_text(*lines)


def print_text(*lines: object) -> None:
    """Print lines of text on stdout."""
    print(*(escape_controls(part) for line in lines for part in str(line).split("\n")), sep="\n", flush=True)


def pick(
    arguments: Sequence[str],
    kind: str,
    known: Iterable[str],
    summary: Callable[[str], str],
    prog: str,
    default: str | None = None,
) -> tuple[str, Sequence[str]]:
    """Take a name from the front of a command's arguments; without one, print a help text that lists the names."""
    if default is not None and (not arguments or arguments[0].startswith("-")):
        return default, arguments
    known, command = list(known), prog.removeprefix("cml ")
    own = kinds(command)  # which the command line finds itself
    if not arguments or arguments[0] in HELP:
        print(f"usage: {prog} {kind.upper()} [options]\n")
        for name in sorted([*known, *own]):
            print(f"  {name:<15}{summary_of_kind(command, name) if name in own else summary(name)}")
        print(f"\n  {PLUGIN}\n  {'':<15}{PLUGIN_HELP}")
        print(f"\n{prog} {kind.upper()} --help explains the options.")
        raise SystemExit(0)
    if arguments[0] not in known:
        every = sorted([*known, *own])
        hint = did_you_mean(arguments[0], every)
        raise UserError(f"Unknown {kind} {arguments[0]!r}.{hint} Known: {', '.join(every)}.")
    return arguments[0], arguments[1:]
