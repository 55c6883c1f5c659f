"""``cml export captioning RUN --images DIR --out DIR``: features for the loaders of public captioning code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AllowDownload, Device, Threads, print_json, print_text
from cml.console.messages import say, say_warning
from cml.export.captioning import CaptioningFeatures
from cml.processes.cores import CORES

if TYPE_CHECKING:
    from cml.export.captioning import Estimate


@dataclass(frozen=True)
class Captioning:
    """Write global (fc) and spatial (att) features of a backbone, keyed by COCO id, for public captioning code."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    """Run folder, hf:user/name, or a backbone with ImageNet weights such as efficientnet-lite0 or resnet101."""
    images: Path
    """Folder of images named by their COCO ids, or a prepared dataset."""
    out: Path
    """Output folder. Rerun the command to resume."""
    features: CaptioningFeatures = field(default_factory=CaptioningFeatures)
    imagenet: bool = False
    """Use the run's backbone with its published weights, so that the two sets of features differ only in training."""
    ids: Path | None = None
    """JSON file with the ids of the images, COCO's or Karpathy's. Only the images listed in it are used."""
    batch_size: int | None = None
    """Number of images of 640 x 480 pixels per forward pass; by default 16, or 1 on a CPU."""
    threads: Threads = CORES
    skip_bad: bool = False
    """Leave out images that cannot be read; the manifest lists them."""
    device: Device = "auto"
    allow_download: AllowDownload = False
    json: bool = False
    """Print the manifest as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Export features, and say where they are."""
    from cml.console.messages import format_bytes
    from cml.data.image_list import ImageList
    from cml.export.captioning import export_captioning
    from cml.export.feature_stores import STORES
    from cml.export.trunk import open_trunk

    options = parse(Captioning, arguments, prog="cml export captioning")
    images = ImageList.open(options.images).with_coco_ids(options.ids)
    trunk = open_trunk(
        options.run, imagenet=options.imagenet, device=options.device, allow_download=options.allow_download
    )
    if trunk.warning:
        say_warning(trunk.warning)

    def tell(estimate: Estimate) -> None:
        needed, free = format_bytes(estimate.needed), format_bytes(estimate.free)
        say(f"{estimate.images} images, at most {needed} to write, {free} free")

    features = options.features
    manifest = export_captioning(
        trunk.model,
        images,
        options.out,
        features,
        trunk=trunk.title,
        batch_size=options.batch_size,
        threads=options.threads,
        skip_bad=options.skip_bad,
        tell=tell,
    )
    if options.json:
        print_json(manifest)
        return
    fc, att = STORES[features.layout].parts(features.name)
    side, channels = features.att_size, manifest["channels"]
    print_text(f"{options.out / fc}: {manifest['items']} x {channels}, float32")
    print_text(f"{options.out / att}: {manifest['items']} x {side} x {side} x {channels}, {features.dtype}")
    if manifest["scaled"]:
        print_text(f"{manifest['scaled']} images were scaled to the limits of size (--longest {features.longest})")
    if manifest["skipped"]:
        print_text(
            f"{len(manifest['skipped'])} images were skipped: {options.out / (features.name + '_manifest.json')}"
        )
