"""All models of timm (the extra ``timm``): ``timm/resnet18``, ``timm/vit_small_patch14_dinov2.lvd142m``, ..."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cml.errors import UserError, did_you_mean, require_extra
from cml.models.backbone import Backbone
from cml.models.backbone_checks import first_line, unknown_weights
from cml.processes.memory import is_out_of_memory
from cml.storage.downloads import may_download, not_cached_error

_LARGEST_SIDE = 4096  # pixels: for models with a parameter per position, as an untrusted config may ask for any size
# Options for models of a fixed size, best first: they allow any later size, or only the given one.
_SIZES = (("img_size", "dynamic_img_size", "dynamic_img_pad"), ("img_size", "dynamic_img_size"), ("img_size",), ())


def timm_model(
    model: str, weights: str = "imagenet", pretrained: bool = True, image_size: tuple[int, int] = (224, 224)
) -> Backbone:
    """A model without its classifier; pixels are normalised as its weights require.

    Args:
        model: Its name in timm, optionally with a tag after a dot that names the weights.
        weights: ``imagenet`` for the weights of the model's tag, or of timm's default one; ``none``; or a tag.
        pretrained: Load the weights; False if others follow.
        image_size: (height, width) in pixels. A model of a fixed size is made for this one; timm interpolates the
            position embeddings of published weights to it if it can.
    """
    with require_extra("timm", f"The backbone 'timm/{model}'"):
        import timm
    name, _, tag = model.partition(".")
    if not timm.is_model(name):
        raise UserError(f"timm has no model {name!r}.{did_you_mean(name, timm.list_models())}")
    tags = [full_name.partition(".")[2] for full_name in timm.list_pretrained(f"{name}.*")]
    wanted = tag if weights in ("imagenet", "none") else weights
    if tag and wanted != tag:
        raise UserError(f"The name 'timm/{model}' contains its weights: set weights to 'imagenet' or 'none'.")
    if wanted and wanted not in tags:
        raise unknown_weights(f"timm/{model}", wanted, tags)
    if weights == "imagenet" and not wanted and not tags:
        raise UserError(f"The backbone 'timm/{model}' has no published weights: set weights to 'none'.")
    full = f"{name}.{wanted}" if wanted else name
    network = _make_network(full, image_size, load=pretrained and weights != "none", check=pretrained)
    config = network.pretrained_cfg
    return Backbone(network, network.head_hidden_size, tuple(config["mean"]), tuple(config["std"]), _feature_map)


def _make_network(name: str, image_size: tuple[int, int], *, load: bool, check: bool) -> Any:  # noqa: ANN401 - any class of timm's
    """The network, made for the image size if its size is fixed; ``check`` tries that size."""
    import timm

    config: Any = timm.get_pretrained_cfg(name)
    subject = f"The backbone 'timm/{name}'"
    height, width = image_size
    if config.fixed_input_size and max(image_size) > _LARGEST_SIDE:
        most = _LARGEST_SIDE
        raise UserError(f"{subject} takes images of at most {most} pixels per side. Got {height} x {width} instead.")
    cached = _cached_weights(config, subject) if load and not may_download() else {}
    for names in _SIZES if config.fixed_input_size else _SIZES[-1:]:
        options: dict[str, Any] = {key: image_size if key == "img_size" else True for key in names} | cached
        try:
            network = timm.create_model(name, pretrained=load, num_classes=0, **options)
            if check and names and "dynamic_img_pad" not in names:  # which pads to whole patches: any size will do
                with torch.no_grad():
                    network.eval()(torch.zeros(1, 3, height, width))
                network.train()
            return network
        except TypeError as error:
            if "unexpected keyword" not in str(error):
                raise
        except OSError as error:
            raise UserError(
                f"The weights of {subject[4:]} could not be downloaded ({' '.join(str(error).split())}). Download "
                f"model.safetensors of {config.hf_hub_id} and give its path as 'weights', or use the backbone "
                "'efficientnet-lite0', whose weights come with pip."
            ) from None
        except (RuntimeError, AssertionError) as error:
            if is_out_of_memory(error):
                raise
            _, own_height, own_width = config.input_size
            if image_size == (own_height, own_width) or not names:
                raise
            raise UserError(
                f"{subject} cannot take images of {height} x {width} pixels ({first_line(error)}): set image_size to "
                f"{own_height} {own_width}, the size that it was made for."
            ) from None
    raise AssertionError("the last entry of sizes has no option to refuse")


def _cached_weights(config: Any, subject: str) -> dict[str, Any]:  # noqa: ANN401 - a configuration of timm's
    """The options with which timm loads weights from the cache of the hub or of torch, and asks no server."""
    from huggingface_hub import try_to_load_from_cache

    names = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    repository, _, revision = (config.hf_hub_id or "").partition("@")
    files = [try_to_load_from_cache(repository, name, revision=revision or None) for name in names if repository]
    if config.url:
        files.append(f"{torch.hub.get_dir()}/checkpoints/{config.url.rpartition('/')[2]}")
    for file in files:
        if isinstance(file, str) and Path(file).is_file():
            return {"pretrained_cfg_overlay": {"file": file, "custom_load": Path(file).suffix == ".npz"}}
    raise not_cached_error(f"The file of published weights of {subject[0].lower()}{subject[1:]}")


def _feature_map(network: Any, pixels: Tensor) -> Tensor:  # noqa: ANN401 - any class of timm's
    """The last map (B, C, h', w'): of convolutions before pooling, of a transformer its grid of tokens."""
    if getattr(network, "num_prefix_tokens", None) is None:
        maps = network.forward_features(pixels)
        if isinstance(maps, Tensor) and maps.ndim == 4:
            last: Tensor = maps.permute(0, 3, 1, 2) if getattr(network, "output_fmt", "NCHW") == "NHWC" else maps
            return last
    try:
        tokens: Tensor = network.forward_intermediates(pixels, indices=1, norm=True, intermediates_only=True)[-1]
    except AssertionError:  # a few cannot normalise them
        tokens = network.forward_intermediates(pixels, indices=1, intermediates_only=True)[-1]
    return tokens
