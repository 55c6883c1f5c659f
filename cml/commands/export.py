"""``cml export KIND RUN --out ...``: a trained run as ONNX, as a folder to share, as features for captioning code."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Data, Run, pick, show
from cml.console.messages import say
from cml.storage.downloads import check_run_folder

KINDS = {
    "onnx": "a graph from uint8 pixels or float32 vectors to embeddings, checked against torch",
    "hub": "a folder to upload: weights, config, model card",
    "captioning": "global and spatial features of the backbone in the formats of captioning code",
}


@dataclass(frozen=True)
class Onnx:
    """Write the model as an ONNX graph: uint8 pixels or float32 vectors in, embeddings out, any batch size."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Run folder, or output folder of 'cml export hub'."""
    out: Path
    """A file NAME.onnx, or a new folder."""
    json: AsJson = False


@dataclass(frozen=True)
class Hub:
    """Write a model folder to share: model.safetensors, config.json, README.md. cml.load loads it."""

    run: Run
    out: Path
    """The new folder."""
    name: str = ""
    """Name of the model; by default that of the run folder."""
    licence: str = "other"
    """Licence of the weights, by its name on the hub: mit, apache-2.0, cc-by-4.0, ..."""
    data: Data = None
    push: str = ""
    """Also upload the folder to this repository of the Hugging Face hub: user/name."""
    private: bool = False
    """Make that repository private."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Export one kind."""
    kind, rest = pick(arguments, "kind", KINDS, KINDS.__getitem__, "cml export")
    if kind == "captioning":
        from cml.commands.export_captioning import run as _captioning  # which imports torch

        _captioning(rest)
    else:
        {"onnx": _onnx, "hub": _hub}[kind](rest)


def _onnx(arguments: Sequence[str]) -> None:
    options = parse(Onnx, arguments, prog="cml export onnx")
    import cml
    from cml.export.onnx_graph import export_onnx

    exported = export_onnx(cml.load(options.run, device="cpu").network, options.out)
    show(
        {"path": str(exported.path), "cosine": exported.cosine, "error": exported.error},
        f"{exported.path}: against torch the smallest cosine is {exported.cosine:.7f}, "
        f"the largest difference {exported.error:.1e}",
        as_json=options.json,
    )


def _hub(arguments: Sequence[str]) -> None:
    options = parse(Hub, arguments, prog="cml export hub")
    check_run_folder(options.run)
    from cml.errors import UserError
    from cml.export.hub import export_hub
    from cml.storage.downloads import hub_client, upload

    if options.push:
        hub_client(options.push)  # before anything is written
    elif options.private:
        raise UserError("--private is about a repository of the hub: say which with --push user/name.")
    gaps = export_hub(
        options.run, options.out, name=options.name, licence=options.licence, data=options.data, repository=options.push
    )
    for gap in gaps:
        say(f"not on the card: {gap}")
    result: dict[str, Any] = {"folder": str(options.out), "not_on_the_card": gaps}
    line = f"{options.out}: model.safetensors, config.json and README.md, its card; read the card before you share it"
    if options.push:
        result["pushed"] = upload(options.out, options.push, private=options.private)
        line = f'{options.out} is pushed: cml.load("{result["pushed"]}")'
    show(result, line, as_json=options.json)
