"""Backbones: their interface, their registry, and how your own module becomes one.

A backbone of cml is a file of ``cml/models/backbones`` and a line here; your own needs a decorator::

    @cml.models.register("my-net")
    class MyNet(nn.Module):  # (B, 3, h, w) normalised pixels to (B, 64) features
        features = 64

The class or function may have settings, ``my-net(width=2)``, and gets those of the following that are parameters of it:
``weights``, the initial weights (without it the backbone has no published ones); ``pretrained``, False if other weights
follow; ``image_size``, (height, width) in pixels; ``model``, the text after the slash in ``my-net/small``;
``vector_size``, the number of numbers F of a vector: a backbone that asks for it takes vectors (B, F), not images;
``folder``, where a saved model keeps the network itself, or None. A module that takes other inputs says which by an
attribute ``takes``, such as "texts": it gets lists of strings then.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cml.data.bands import count_bands
from cml.data.input_form import InputForm, InputKind
from cml.errors import UserError, did_you_mean
from cml.models.backbone_checks import (
    WEIGHTS_FILES,
    check_features,
    describe_batch,
    embed_batch,
    embed_blank,
    load_weights_file,
)
from cml.models.pooling import last_feature_map
from cml.processes.memory import is_out_of_memory
from cml.registry import Choice, Registry

_VECTOR_SIZE, _FOLDER = "vector_size", "folder"  # parameters of those backbones that take vectors, or texts
CUSTOM = "custom"  # the name of a backbone that is the user's own module
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
BANDS_MEAN = 0.5  # of images that are not RGB
BANDS_STD = 0.25
Levels = tuple[float, ...]


@dataclass(frozen=True)
class Backbone:
    """A feature extractor and the pixels it expects.

    Attributes:
        module: Maps (B, C, h, w), where C is the length of ``mean``, or for inputs that are no images (B, ...), to
            (B, ``features``).
        features: F.
        mean: Subtracted from each channel of pixels scaled to 0..1.
        std: Divides the difference.
        feature_map: From module and normalised pixels to the last map (B, C, h', w'); None if there is none.

    Example:
        >>> from torch import nn
        >>> network = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
        >>> Backbone(network, features=48).mean
        (0.485, 0.456, 0.406)
    """

    module: nn.Module
    features: int
    mean: Levels = IMAGENET_MEAN
    std: Levels = IMAGENET_STD
    feature_map: Callable[[Any, Tensor], Tensor | None] = last_feature_map

    @property
    def is_embedding(self) -> bool:
        """Whether distances of its features mean something before training, which the head then keeps."""
        return bool(getattr(self.module, "is_embedding", False))


registry: Registry[nn.Module | Backbone] = Registry(
    "backbone",
    {
        "small-cnn": "cml.models.backbones.small_cnn:SmallCNN",
        "none": "cml.models.backbones.none:no_backbone",
        "mlp": "cml.models.backbones.mlp:mlp",
        "efficientnet-lite0": "cml.models.backbones.efficientnet_lite:lite0",
        "efficientnet-lite1": "cml.models.backbones.efficientnet_lite:lite1",
        "efficientnet-lite2": "cml.models.backbones.efficientnet_lite:lite2",
        "bn-inception": "cml.models.backbones.bn_inception:bn_inception",
        "timm": "cml.models.backbones.timm:timm_model",
        "torchvision": "cml.models.backbones.torchvision:classifier",
        "sentence-transformers": "cml.models.backbones.sentence_transformers:sentence_encoder",
    },
    group="cml.backbones",
)


def get(
    name: str,
    weights: str = "imagenet",
    *,
    image_size: tuple[int, int] = (224, 224),
    pretrained: bool = True,
    form: InputForm | None = None,
    folder: Path | None = None,
) -> Backbone:
    """Make a backbone.

    Args:
        name: A registered name, ``timm/MODEL``, or the name of a torchvision classifier (``resnet34``).
        weights: ``imagenet`` for the backbone's default published weights (whatever they were trained on), ``none`` for
            random ones, the name of published weights (torchvision's ``IMAGENET1K_V2``, a tag of timm), or the path of
            a .safetensors or .pth file.
        image_size: (height, width) in pixels of its images, for networks of a fixed size.
        pretrained: Load the weights; False if others follow.
        form: The form of its inputs; by default images, or texts of a backbone of texts.
        folder: The folder in which a saved model keeps the network itself, such as one of texts with its tokenizer.

    Returns:
        The backbone.

    Raises:
        UserError: the name or the weights are unknown, the weights cannot be downloaded, or the backbone takes inputs
            of another kind.

    Example:
        >>> import torch
        >>> get("small-cnn", "none").module(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """
    choice, known = _entry(name)
    if form is None and _kind_of_entry(known) == "texts":
        form = InputForm("texts")
    kind = _kind_of_entry(known)
    if name != CUSTOM and kind != "texts":  # of these, the module itself says whether it takes images too
        _check_kind(name, (kind,), form or InputForm())
    is_file = weights.endswith(WEIGHTS_FILES)
    load = pretrained and not is_file
    if load and "weights" not in known and weights != "none":
        raise UserError(
            f"The backbone {name!r} has no published weights: set weights to 'none' or a {WEIGHTS_FILES[0]} file."
        )
    initial = weights if load or ("pretrained" in known and not is_file) else "none"
    offered: dict[str, Any] = {"weights": initial, "pretrained": load, "image_size": image_size, "folder": folder}
    if form is not None and form.kind == "vectors":
        offered["vector_size"] = form.shape[0]
    settings = {key: value for key, value in offered.items() if key in known}
    made = registry.get(str(choice), **settings)
    if name != CUSTOM and kind == "texts":
        _check_kind(name, getattr(made, "kinds", (kind,)), form or InputForm())
    backbone = as_backbone(made, name=name, image_size=image_size, form=form)
    if is_file and pretrained:
        load_weights_file(backbone.module, weights, name)
    return backbone


def has_published_weights(name: str) -> bool:
    """Tell whether ``weights="imagenet"`` means anything for a backbone.

    Args:
        name: Name of the backbone.

    Returns:
        Whether it has published weights.

    Example:
        >>> has_published_weights("efficientnet-lite0"), has_published_weights("small-cnn")
        (True, False)
    """
    return name != CUSTOM and "weights" in _entry(name)[1]


def input_kind(backbone: "str | nn.Module | Backbone") -> InputKind | None:
    """Tell which kind of inputs a backbone takes; None of a user's own module that does not say."""
    if isinstance(backbone, str):
        return None if backbone == CUSTOM else _kind_of_entry(_entry(backbone)[1])
    stated: InputKind | None = getattr(getattr(backbone, "module", backbone), "takes", None)
    return stated


def read_by_itself(backbone: "str | nn.Module | Backbone") -> InputKind | None:
    """Tell which kind of inputs a backbone reads by itself, such as texts; None where inputs tell their kind."""
    kind = input_kind(backbone)
    return None if kind in ("images", "vectors") else kind


def _kind_of_entry(known: Iterable[str]) -> InputKind:
    """The kind of inputs of a registered backbone, by its parameters: one with a folder of its own takes texts."""
    return "vectors" if _VECTOR_SIZE in known else "texts" if _FOLDER in known else "images"


def count_channels(
    # its name, or a module of the user's own, whose attribute ``channels`` or the length of whose ``mean`` tells it
    backbone: "str | nn.Module | Backbone",
    *,
    mean: Levels | None = None,
) -> int:
    """Count the bands of the images that a backbone takes."""
    if isinstance(backbone, Backbone):
        return len(backbone.mean)
    if isinstance(backbone, str):
        if backbone == CUSTOM:
            return 3
        choice, known = _entry(backbone)
        stated = choice.settings.get("channels") if "channels" in known else None
        return stated if type(stated) is int and stated >= 1 else 3
    stated = getattr(backbone, "channels", None)
    if type(stated) is int and stated >= 1:
        return stated
    values: Any = getattr(backbone, "mean", None) if mean is None else mean
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):  # none, or no levels
        return 3
    return len(numbers) or 3


def _check_kind(name: str, kinds: Sequence[InputKind], form: InputForm) -> None:
    """Refuse a backbone for another kind of inputs."""
    if form.kind in kinds:
        return
    mend = {
        "images": "choose one for images, such as efficientnet-lite0",
        "vectors": "leave the backbone out, choose none or mlp(512, 512), or give a torch module that takes (B, F)",
        "tensors": "give a torch module of your own that takes them",
        "texts": "choose one for texts, such as sentence-transformers/all-MiniLM-L6-v2",
        "items": "give a torch module of your own that takes the batch",
    }[form.kind]
    raise UserError(f"The backbone {name!r} takes {' or '.join(kinds)}, but the inputs are {form}: {mend}.")


def _entry(name: str) -> tuple[Choice, Iterable[str]]:
    """The registered name and settings for a backbone's name, and the parameters of the entry."""
    choice = Choice.parse(name)
    kind, slash, model = choice.name.partition("/")
    if not slash and kind not in registry.names():
        import torchvision

        if kind not in (known := torchvision.models.list_models(module=torchvision.models)):
            raise UserError(
                f"Unknown backbone {kind!r}.{did_you_mean(kind, [*registry.names(), *known])} Known: "
                f"{', '.join(registry.names())} (as timm/MODEL), and the names of torchvision's classifiers."
            )
        kind, slash, model = "torchvision", "/", kind
    settings = {**choice.settings, "model": model} if slash else choice.settings
    return Choice(kind, settings), inspect.signature(registry.entry(kind)).parameters


def as_backbone(
    module: nn.Module | Backbone,
    *,
    name: str = CUSTOM,
    features: int | None = None,
    mean: Levels | None = None,
    std: Levels | None = None,
    image_size: tuple[int, int] = (64, 64),
    form: InputForm | None = None,
    example: Any = None,  # noqa: ANN401 - a batch of any kind
) -> Backbone:
    """Make a backbone of your own module.

    Args:
        module: Maps normalised pixels (B, 3, h, w) to features (B, F). It may have the attributes ``features``,
            ``mean`` and ``std``, and a method ``feature_map(pixels) -> (B, C, h', w')``. With an attribute ``channels``
            it takes images of so many bands, which are not converted: 1 for grey, 4 for RGBA, with 8 or 16 bits.
        name: Its name in errors.
        features: F; by default the module's attribute, else measured by a pass over blank images.
        mean: Mean of each channel of pixels scaled to 0..1; by default the module's attribute, else ImageNet's, or 0.5
            where there are not three channels.
        std: Divides the difference; by default the module's attribute, else ImageNet's, or 0.25.
        image_size: (height, width) of the blank images, in pixels.
        form: The form of its inputs, of whose shape the blank ones are; by default images. Vectors are standardised,
            and tensors are given to the module as they are.
        example: A batch to measure F with in place of blank inputs, which items of any kind do not have.

    Returns:
        The backbone.

    Raises:
        UserError: it is not a module, or its output is not (B, F); the message says what it returned and the remedy.

    Example:
        >>> as_backbone(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())).features
        3
    """
    if isinstance(module, Backbone):
        return module
    if not isinstance(module, nn.Module):
        raise UserError(f"The backbone {name!r} must be a torch.nn.Module. Got {type(module).__name__} instead.")
    is_image = form is None or form.kind == "images"
    channels = count_channels(module, mean=mean) if is_image else 3
    if form is not None and is_image and channels != form.channels:
        raise UserError(
            f"The backbone {name!r} takes images of {count_bands(channels)}, but the model {form}. Its attributes "
            "'channels' and 'mean' state the number."
        )
    defaults = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((BANDS_MEAN,) * channels, (BANDS_STD,) * channels)
    stated: dict[str, Levels] = {}
    for key, argument, default in (("mean", mean, defaults[0]), ("std", std, defaults[1])):
        value = getattr(module, key, default) if argument is None else argument
        try:
            numbers = tuple(float(number) for number in value)
            if len(numbers) != channels or (key == "std" and min(numbers) <= 0):
                raise ValueError
        except (TypeError, ValueError):
            count = "three numbers" if channels == 3 else f"{channels} numbers, one for each band"
            raise UserError(
                f"The {key!r} of the backbone {name!r} must be {count}, 'std' above 0. Got {value!r} instead."
            ) from None
        stated[key] = numbers
    features = getattr(module, "features", None) if features is None else features
    shape = (channels, *image_size) if form is None or is_image else form.shape
    if type(features) is not int:  # in some networks that is the name of their stages
        try:
            if form is not None and not form.has_shape:
                out = embed_batch(module, example)
            else:
                out = embed_blank(module, shape, whole=form is not None and form.whole)
        except Exception as error:  # an unknown module may raise anything
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            mend = "Set image_size to a size that it accepts, or mend its forward." if is_image else "Mend its forward."
            noun = "images" if is_image else "inputs"
            on = (
                describe_batch(example) if form is not None and not form.has_shape else f"{noun} of shape {(2, *shape)}"
            )
            raise UserError(f"The backbone {name!r} fails on {on} ({reason}). {mend}") from error
        features = int(check_features(out, name).shape[1])
    return Backbone(
        module, features, **stated, feature_map=getattr(type(module), "feature_map", None) or last_feature_map
    )
