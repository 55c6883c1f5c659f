"""All classifiers of torchvision that end in a linear layer; pixels are normalised with ImageNet's mean and std."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from cml.errors import UserError, did_you_mean
from cml.models.backbone import Backbone
from cml.models.backbone_checks import unknown_weights
from cml.models.pooling import Pooling, check_pooling, replace_mean_pool, replace_module
from cml.storage.downloads import may_download, not_cached_error


def classifier(model: str, weights: str = "imagenet", pretrained: bool = True, pooling: Pooling = "mean") -> Backbone:
    """A classifier without its last layer.

    Args:
        model: Its name in torchvision, such as ``resnet34``.
        weights: ``imagenet`` for torchvision's default weights, ``none``, or a name such as ``IMAGENET1K_V2``.
        pretrained: Load the weights; False if others follow.
        pooling: ``mean`` or ``max`` of the last map, or ``mean-max`` for their sum, as in Proxy-Anchor's code.
    """
    check_pooling(model, pooling)
    import torchvision

    if model not in (known := torchvision.models.list_models(module=torchvision.models)):
        raise UserError(f"torchvision has no classifier {model!r}.{did_you_mean(model, known)}")
    published: Any = None
    if weights != "none":
        versions = torchvision.models.get_model_weights(model)
        if weights != "imagenet" and weights not in versions.__members__:
            raise unknown_weights(model, weights, [*versions.__members__])
        published = versions["DEFAULT" if weights == "imagenet" else weights]
    # some weights of the vision transformers are for larger images, a size that torchvision stores with the weights
    options: dict[str, Any] = {}
    if published and model.startswith("vit_"):
        options["image_size"] = published.meta["min_size"][0]
    if model in ("googlenet", "inception_v3") and not (published and pretrained):
        options["init_weights"] = True  # the default, of which torchvision warns unless it is given
    if published and pretrained:
        _fetch(model, published.url)
    network = torchvision.models.get_model(model, weights=published if pretrained else None, **options)
    if hasattr(network, "aux_logits"):  # inception and googlenet: drop the auxiliary classifiers
        network.aux_logits = False
        for side in ("AuxLogits", "aux1", "aux2"):
            if hasattr(network, side):
                setattr(network, side, None)
    linear = [(path, module) for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"The backbone {model!r} does not end in a linear classifier: choose another backbone.")
    path, last = linear[-1]
    replace_module(network, path, nn.Identity())
    if pooling != "mean":
        replace_mean_pool(network, model, pooling)
    return Backbone(network, last.in_features)


def _fetch(model: str, url: str) -> None:
    """Download weights to torch's cache; check their hash and that they hold only tensors, as torchvision does not."""
    import pickle

    place = f"{torch.hub.get_dir()}/checkpoints/{url.rpartition('/')[2]}"
    if not may_download() and not Path(place).is_file():
        raise not_cached_error(f"The file of published weights of the backbone {model!r}")
    try:
        torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except OSError as error:  # urllib's errors are OSErrors too
        raise UserError(
            f"The published weights of {model!r} could not be downloaded ({error}). Put {url} at {place}, or use the "
            "backbone 'efficientnet-lite0', whose weights come with pip."
        ) from None
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(
            f"The published weights of {model!r} at {place} are damaged or hold more than weights "
            f"({str(error).splitlines()[0]}). Delete the file."
        ) from None
