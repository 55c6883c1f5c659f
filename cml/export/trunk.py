"""The network whose features are exported: a trained run's trunk, or a published network of the same kind."""

from dataclasses import dataclass

from cml.errors import UserError
from cml.models import registry
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.device import pick_device
from cml.storage.hugging_face import local_run
from cml.training.run_config import RunConfig
from cml.training.run_folder import load_model


@dataclass(frozen=True)
class Trunk:
    """A network for features (the head of ``model`` is not used), its title, and a warning for the user or ""."""

    model: EmbeddingModel
    title: str
    warning: str = ""


def open_trunk(run: str, *, imagenet: bool = False, device: str = "auto") -> Trunk:
    """Open the trunk of a run folder, of one on the hub as for ``cml.load``, or a backbone with published weights.

    With ``imagenet`` it has the published weights of the run's backbone.
    """
    place = pick_device(device)
    folder = local_run(run)
    if not folder.exists() and (run == folder.name or run.partition("/")[0] in registry.names()):
        config = ModelConfig(run, "imagenet", dimension=1, normalize=False, image_size=(224, 224))
        try:
            return Trunk(EmbeddingModel(config).to(place).eval(), f"{run}, ImageNet")
        except UserError as error:
            raise UserError(f"There is no run folder {run!r}, and as a backbone: {error}") from None
    saved = RunConfig.load(folder)
    if imagenet:
        return Trunk(EmbeddingModel(saved.model.published).to(place).eval(), f"{saved.model.backbone}, ImageNet")
    warning = ""
    if saved.train.freeze_backbone and saved.model.weights != "none":
        warning = (
            f"{run} was trained with --freeze-backbone: its trunk is the published network, so these features equal "
            "those of --imagenet. Train the whole network for features of its own."
        )
    title = f"{saved.model.backbone}, run {folder.resolve().name}"
    return Trunk(load_model(folder, saved.model, place), title, warning)
