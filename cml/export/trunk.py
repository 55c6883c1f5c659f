"""The trunk of a network, below its embedding head, that captioning features are taken from."""

from typing import NamedTuple

from cml.errors import UserError
from cml.models import registry
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.device import pick_device
from cml.storage.downloads import names_of_a_run, resolve_run
from cml.training.saved_model import RunConfig, load_model


class Trunk(NamedTuple):
    """A network for features."""

    model: EmbeddingModel  # the network; its head is not used
    title: str  # its name in the manifest
    warning: str = ""  # a warning for the user; "" for none


def open_trunk(run: str, *, imagenet: bool = False, device: str = "auto", allow_download: bool = False) -> Trunk:
    """Open the trunk of a run, or a backbone with its published weights."""
    place = pick_device(device)
    folder = resolve_run(run)
    if not folder.exists() and (run == folder.name or run.partition("/")[0] in registry.names()):
        config = ModelConfig(run, "imagenet", dimension=1, normalize=False, image_size=(224, 224))
        try:
            return Trunk(EmbeddingModel(config).to(place).eval(), f"{run}, ImageNet")
        except UserError as error:
            raise UserError(f"There is no run folder {run!r}, and as a backbone: {error}") from None
    saved = RunConfig.load(folder)
    if imagenet:
        with names_of_a_run(allow_download=allow_download):
            network = EmbeddingModel(saved.model.published)
        return Trunk(network.to(place).eval(), f"{saved.model.backbone}, ImageNet")
    warning = (
        f"{run} was trained with --freeze-backbone: its trunk is the published network, so these features equal "
        "those of --imagenet. Train the whole network for features of its own."
    )
    is_published = saved.train.freeze_backbone and saved.model.weights != "none"
    title = f"{saved.model.backbone}, run {folder.resolve().name}"
    return Trunk(load_model(folder, saved.model, place), title, warning if is_published else "")
