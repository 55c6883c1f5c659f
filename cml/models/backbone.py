"""Backbones: their interface, their registry, and how your own module becomes one.

A backbone of cml is a file of ``cml/models/backbones`` and a line here; your own needs a decorator::

    @cml.models.register("my-net")
    class MyNet(nn.Module):  # (B, 3, h, w) normalised pixels to (B, 64) features
        features = 64

The class or function may have settings, ``my-net(width=2)``, and gets those of the following that are parameters of it:
``weights``, the initial weights (without it the backbone has no published ones); ``pretrained``, False if other weights
follow; ``image_size``, (height, width) in pixels; ``model``, the text after the slash in ``my-net/small``.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import DataError, UserError, did_you_mean
from cml.registry import Choice, Registry
from cml.storage.regular_file import text_path

CUSTOM = "custom"  # the name of a backbone that is the user's own module
LARGEST_TRIED = 384  # pixels; the largest default size of a torchvision classifier
FILE = ".safetensors"
# Names of classifiers in torchvision, timm and the packaged networks: a file may hold one, a backbone has none.
_CLASSIFIERS = {"fc", "_fc", "classifier", "head", "heads", "head_dist", "aux1", "aux2", "AuxLogits", "last_linear"}
_STAGES = ("features", "layers", "conv5")  # of torchvision's networks without a pooling layer: DenseNet, MobileNetV2
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Three = tuple[float, float, float]


def last_map(network: nn.Module, pixels: Tensor) -> Tensor | None:
    """The last convolution map (B, C, h', w') of a network without a method ``feature_map``; None if there is none."""
    # the input of the last pooling layer, or the output of the convolution stages; its mean is the pooled features
    caught: list[Any] = []
    paths = {path: module for path, module in network.named_modules() if path}
    # squeeze-and-excitation blocks pool too, but come before the network's own pooling
    pools = [path for path, module in paths.items() if isinstance(module, nn.AdaptiveAvgPool2d)]
    stages = [path for path in _STAGES if path in paths]
    if pools and not any(pools[-1].startswith(stage + ".") for stage in stages):
        hook = paths[pools[-1]].register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    elif stages:
        hook = paths[stages[0]].register_forward_hook(lambda _, given, output: caught.append(output))
    else:
        return None
    try:
        network(pixels)
    finally:
        hook.remove()
    # only after the whole pass: DenseNet rectifies its map in place after the layer
    return caught[0] if len(caught) == 1 and isinstance(caught[0], Tensor) else None


@dataclass(frozen=True)
class Backbone:
    """A feature extractor and the pixels it expects.

    Attributes:
        module: Maps (B, 3, h, w) to (B, ``features``).
        features: F.
        mean: Subtracted from each channel of pixels scaled to 0..1.
        std: Divides the difference.
        feature_map: From module and normalised pixels to the last map (B, C, h', w'); None if there is none.
    """

    module: nn.Module
    features: int
    mean: Three = IMAGENET_MEAN
    std: Three = IMAGENET_STD
    feature_map: Callable[[Any, Tensor], Tensor | None] = last_map


registry: Registry[nn.Module | Backbone] = Registry(
    "backbone",
    {
        "small-cnn": "cml.models.backbones.small_cnn:SmallCNN",
        "efficientnet-lite0": "cml.models.backbones.efficientnet_lite:lite0",
        "efficientnet-lite1": "cml.models.backbones.efficientnet_lite:lite1",
        "efficientnet-lite2": "cml.models.backbones.efficientnet_lite:lite2",
        "timm": "cml.models.backbones.timm:timm_model",
        "torchvision": "cml.models.backbones.torchvision:classifier",
    },
    group="cml.backbones",
)


def get(
    name: str, weights: str = "imagenet", *, image_size: tuple[int, int] = (224, 224), pretrained: bool = True
) -> Backbone:
    """Make a backbone.

    Args:
        name: A registered name, ``timm/MODEL``, or the name of a torchvision classifier (``resnet34``).
        weights: ``imagenet`` for the backbone's default published weights (whatever they were trained on), ``none`` for
            random ones, the name of published weights (torchvision's ``IMAGENET1K_V2``, a tag of timm), or the path of
            a .safetensors file.
        image_size: (height, width) in pixels of its images, for networks of a fixed size.
        pretrained: Load the weights; False if others follow.

    Raises:
        UserError: the name or the weights are unknown, or the weights cannot be downloaded.

    Example:
        >>> get("small-cnn", "none").module(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])
    """
    choice, known = _entry(name)
    is_file = weights.endswith(FILE)
    load = pretrained and not is_file
    if load and "weights" not in known and weights != "none":
        raise UserError(f"The backbone {name!r} has no published weights: set weights to 'none' or a {FILE} file.")
    initial = weights if load or ("pretrained" in known and not is_file) else "none"
    offered = {"weights": initial, "pretrained": load, "image_size": image_size}
    taken = {key: value for key, value in offered.items() if key in known}
    made = as_backbone(registry.get(str(choice), **taken), name=name, image_size=image_size)
    if is_file and pretrained:
        _load_weights(made.module, weights, name)
    return made


def _load_weights(module: nn.Module, path: str, name: str) -> None:
    """Load the tensors of a backbone, without a classifier's, from a file or the ``model.safetensors`` of a run."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        raise DataError(f"The weights {path} of the backbone {name!r} are missing.")
    try:
        with text_path(Path(path)) as named:
            found = load_file(named)
    except (SafetensorError, OSError) as error:
        raise DataError(f"The weights {path} of the backbone {name!r} are damaged ({error}).") from None
    of_run = {key.removeprefix("backbone."): value for key, value in found.items() if key.startswith("backbone.")}
    if of_run and "head.weight" in found:
        found = of_run
    wanted = module.state_dict()
    found = {key: value for key, value in found.items() if key in wanted or key.partition(".")[0] not in _CLASSIFIERS}
    # files of older versions of torch lack these counters; no result depends on them here
    found = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")} | found
    faults = [f"it lacks {key}" for key in wanted if key not in found]
    faults += [f"it also has {key}" for key in found if key not in wanted]
    wrong = [key for key in wanted if key in found and found[key].shape != wanted[key].shape]
    faults += [f"{key} has the shape {tuple(found[key].shape)}, not {tuple(wanted[key].shape)}" for key in wrong]
    if faults:
        more = f"(and {len(faults) - 1} more faults)"
        raise DataError(f"The weights {path} do not fit the backbone {name!r}: {faults[0]} {more}.")
    module.load_state_dict(found)


def has_published_weights(name: str) -> bool:
    """Whether ``weights="imagenet"`` means anything for this backbone."""
    return name != CUSTOM and "weights" in _entry(name)[1]


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


def unknown_weights(name: str, weights: str, known: list[str]) -> UserError:
    """The error for weights that a backbone lacks; ``known`` are those that it has."""
    also = f", one of {', '.join(known)}," if known else ""
    return UserError(
        f"The backbone {name!r} has no weights {weights!r}.{did_you_mean(weights, known)} Set weights to 'imagenet', "
        f"'none'{also} or the path of a {FILE} file."
    )


def as_backbone(
    made: nn.Module | Backbone,
    *,
    name: str = CUSTOM,
    features: int | None = None,
    mean: Three | None = None,
    std: Three | None = None,
    image_size: tuple[int, int] = (64, 64),
) -> Backbone:
    """Your own module as a backbone.

    Args:
        made: Maps normalised pixels (B, 3, h, w) to features (B, F). It may have the attributes ``features``, ``mean``
            and ``std``, and a method ``feature_map(pixels) -> (B, C, h', w')``.
        name: Its name in errors.
        features: F; by default the module's attribute, else found by a pass over blank images.
        mean: Of each channel of pixels scaled to 0..1; by default the module's attribute, else ImageNet's.
        std: Likewise.
        image_size: (height, width) of the blank images, in pixels.

    Raises:
        UserError: it is not a module, or its output is not (B, F); the message says what it returned and the remedy.

    Example:
        >>> as_backbone(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())).features
        3
    """
    if isinstance(made, Backbone):
        return made
    if not isinstance(made, nn.Module):
        raise UserError(f"The backbone {name!r} must be a torch.nn.Module. Got {type(made).__name__} instead.")
    stated: dict[str, Three] = {}
    for key, given, default in (("mean", mean, IMAGENET_MEAN), ("std", std, IMAGENET_STD)):
        value = getattr(made, key, default) if given is None else given
        try:
            red, green, blue = (float(one) for one in value)
            if key == "std" and min(red, green, blue) <= 0:
                raise ValueError
        except (TypeError, ValueError):
            raise UserError(
                f"The {key!r} of the backbone {name!r} must be three numbers, 'std' above 0. Got {value!r} instead."
            ) from None
        stated[key] = red, green, blue
    features = getattr(made, "features", None) if features is None else features
    if type(features) is not int:  # in some networks that is the name of their stages
        try:
            out = _of_blank(made, image_size)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # an unknown module may raise anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise UserError(
                f"The backbone {name!r} fails on images of shape {(2, 3, *image_size)} ({reason}). Set image_size to a "
                "size that it accepts, or mend its forward."
            ) from error
        features = int(checked_features(out, name).shape[1])
    return Backbone(made, features, **stated, feature_map=getattr(type(made), "feature_map", None) or last_map)


def checked_features(out: object, name: str, features: int | None = None) -> Tensor:
    """The output of a backbone, checked to be (B, F)."""
    what = f"The backbone {name!r} gives"
    if not isinstance(out, Tensor):
        raise UserError(f"{what} a {type(out).__name__}: let its forward return one tensor of features (B, F).")
    if out.ndim == 2 and out.is_floating_point() and out.shape[1] == (features or max(1, out.shape[1])):
        return out
    mend = "let it return one row of floats per image"
    if out.ndim in (3, 4):
        pool = "pool its map, as in nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten())"
        mend = pool if out.ndim == 4 else "take one token per image, or the mean of the tokens"
    kind = str(out.dtype).removeprefix("torch.")
    raise UserError(f"{what} {kind} {tuple(out.shape)} instead of features (B, {features or 'F'}): {mend}.")


def first_line(error: Exception) -> str:
    """What an error says, without its details."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")


def least_side(module: nn.Module, size: tuple[int, int]) -> int | None:
    """Side of the smallest square images that a backbone accepts, found by trying; None if it accepts ``size``."""

    def takes(height: int, width: int) -> bool:
        try:
            _of_blank(module, (height, width))
        except (RuntimeError, AssertionError):  # vision transformers assert
            return False
        return True

    return None if takes(*size) else next((side for side in range(1, LARGEST_TRIED + 1) if takes(side, side)), None)


@torch.no_grad()  # not in inference mode: some modules keep tensors of their first pass
def _of_blank(module: nn.Module, size: tuple[int, int]) -> object:
    first = next(module.parameters(), torch.zeros(()))
    with evaluating(module):
        return module(torch.zeros(2, 3, *size, device=first.device, dtype=first.dtype))


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for the block, then back into its former mode."""
    training = module.training
    try:
        module.eval()
        yield
    finally:
        module.train(training)
