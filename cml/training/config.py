"""Options of a training run: one dataclass is the command's flags, the saved config and the argument."""

import contextlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from cml.errors import UserError, did_you_mean
from cml.storage.atomic import read_json, read_parsed
from cml.storage.saved_options import TINY, check_bounds, saved_options
from cml.storage.strict_yaml import parse_yaml

Precision = Literal["float32", "bfloat16"]
# options that may differ when a run is resumed
_HOW = ("checkpoint_every", "keep_models", "workers", "worker_timeout", "cache_bytes", "device")
_OPTIONS = "options of training"
_LARGE = 10**9
_BOUNDS = {  # an untrusted config may hold any number
    (1, 65_536): ("dimension", "image_size"),
    (1, _LARGE): ("steps", "checkpoint_every", "micro_batch"),
    (0, _LARGE): (
        *("warmup", "head_first", "evaluate_every", "patience", "memory", "worker_timeout"),
        *("decay", "decay_every", "weight_decay"),
    ),
    (0, 2**63 - 1): ("seed",),
    (0, 2**50): ("cache_bytes",),
    (0, 512): ("workers", "lora"),
    (TINY, 1e38): ("learning_rate", "backbone_rate", "proxy_rate", "clip_gradient"),
    (TINY, 1): ("crop",),
    (0, 1 - TINY): ("average",),
    (TINY, 1 - TINY): ("validation_share",),
    (0, 0.5): ("scale_jitter", "shift_jitter", "brightness_jitter"),
}


@dataclass(frozen=True)
class TrainConfig:
    """How to train an embedding. A task's recipe is an instance of it.

    Example:
        >>> TrainConfig(loss="cosent(scale=2.0)", steps=300).learning_rate
        0.001
    """

    label_distance: str = "euclidean"
    """The label distance: a name, or name(setting=value, ..); dataset: the one that a dataset of numbers names."""
    loss: str = "log-ratio"
    """The loss: a name, or name(setting=value, ..); cml losses lists them, cml losses NAME explains the settings."""
    sampler: str = "random"
    """How a batch is drawn: random | grouped | dense (the paper's lists) | binary | per-class."""

    backbone: str = "efficientnet-lite0"
    """small-cnn | efficientnet-lite0, 1, 2 | timm/MODEL, any of timm's | a torchvision classifier, such as resnet34."""
    weights: str = "imagenet"
    """imagenet: the published default | none | their name: IMAGENET1K_V2, a tag of timm's | a .safetensors file."""
    dimension: int = 128
    """Size of the embedding."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width in pixels that the backbone sees."""
    freeze_backbone: bool = False
    """Embed every image once with the backbone unchanged, and train only the head, in seconds."""
    lora: int = 0
    """Rank of low-rank adapters on a transformer's linear layers, such as 8; 0 for none. They are trained
    instead of the backbone, which takes less memory, and are merged into it at the end."""

    crop: float = 1.0
    """Share of the image's sides that the centre box covers; the rest is room for jitter."""
    scale_jitter: float = 0.0
    """The box's side changes by up to this share of the image's side."""
    shift_jitter: float = 0.0
    """The box moves by up to this share of the image's side."""
    brightness_jitter: float = 0.0
    """Brightness and contrast change by up to this share."""
    flip: Literal["none", "list", "image"] = "none"
    """Mirroring: once for a whole list (label distances stay true), or image by image together with its label."""

    steps: int = 1000
    """Training steps, one batch each."""
    optimizer: Literal["sgd", "adamw"] = "adamw"
    """SGD with momentum 0.9 (the paper's), or AdamW."""
    learning_rate: float = 1e-3
    """Learning rate of the head; the backbone's is this times backbone_rate."""
    backbone_rate: float = 1.0
    """Learning rate of the backbone as a share of the head's; below 1 where it starts from published weights."""
    proxy_rate: float = 100.0
    """Learning rate of a loss's proxies as a multiple of the head's; 100 as published for Proxy-Anchor."""
    weight_decay: float = 5e-4
    """Weight decay of all weights."""
    schedule: Literal["cosine", "inverse", "step", "constant"] = "cosine"
    """cosine to zero, the paper's 1 / (1 + decay * step), or step: decay ** (step // decay_every)."""
    decay: float = 1e-4
    """The decay of the schedules 'inverse' and 'step'."""
    decay_every: int = 0
    """Steps after which the schedule 'step' multiplies the learning rate with 'decay'."""
    warmup: int = 0
    """Steps over which the learning rate rises from zero."""
    head_first: int = 0
    """Steps at the beginning in which head and loss learn and the backbone does not."""
    clip_gradient: float | None = None
    """Largest norm of the gradient; none for no limit."""
    average: float = 0.0
    """Keep, validate and save an exponential moving average of the weights with this decay, such as 0.99; 0 for none.
    It averages the statistics of batch normalisation too, and holds a second copy of the weights."""
    memory: int = 0
    """How many embeddings of earlier batches anchors are compared with as well; 0 for none."""
    micro_batch: int | None = None
    """Images per pass through the network. A larger batch takes two passes, in the memory of one part. The gradient is
    that of the whole batch, except with batch normalisation: see batch_norm, or small-cnn(norm=group)."""
    batch_norm: Literal["batch", "fixed"] = "batch"
    """Batch normalisation by the images of a pass, or fixed: by the backbone's own statistics."""
    precision: Precision = "float32"
    """bfloat16 runs the network under autocast; the loss is float32 either way."""

    evaluate_every: int = 0
    """Steps between two validations on held-out training items (1 - rank correlation); the best weights are kept."""
    validation_share: float = 0.1
    """Share of the training items held out when evaluate_every is set: the last ones, at least 8 and at most 1,000."""
    patience: int = 0
    """Validations without a better score after which the run ends early; 0 for never."""
    checkpoint_every: int = 200
    """Steps between two checkpoints."""
    keep_models: bool = False
    """Keep the model of every checkpoint as well, for the slider over training of cml explore."""
    seed: int = 0
    """Seed of everything random."""
    workers: int = 2
    """Processes that read images; 0 reads in the training process."""
    worker_timeout: float = 300.0
    """Seconds to wait for a batch before the workers count as hung, which is an error; 0 waits forever."""
    cache_bytes: int = 1 << 30
    """Decoded images are kept in memory if they take at most this."""
    device: str = "auto"
    """auto | cpu | cuda | mps .."""

    def __post_init__(self) -> None:
        size = self.image_size if isinstance(self.image_size, tuple | list) else ()
        if len(size) != 2 or min(size) < 1:
            raise UserError(
                f"'image_size' must be two positive numbers, height and width. Got {self.image_size} instead."
            )
        check_bounds(self, _BOUNDS)
        if (self.schedule == "step") != (self.decay_every > 0):
            raise UserError(
                f"'decay_every' belongs to the schedule 'step'. Got {self.decay_every} and {self.schedule} instead."
            )
        if self.patience and not self.evaluate_every:
            raise UserError(f"'patience' counts validations: set 'evaluate_every'. Got patience={self.patience} alone.")
        if self.freeze_backbone and self.lora:
            raise UserError(f"A backbone is frozen or has adapters: leave out 'freeze_backbone' or lora={self.lora}.")
        if self.keep_models and self.lora:
            raise UserError(f"Adapters are merged only at the end: leave out 'keep_models' or lora={self.lora}.")
        if self.freeze_backbone and self.flip != "none":
            raise UserError(
                "With 'freeze_backbone' every image is embedded once, unchanged: set 'flip' to none. "
                f"Got flip={self.flip} instead."
            )

    @classmethod
    def load(cls, path: Path | str, base: Self | None = None) -> Self:
        """The options in a file: the config.json of a run, or some options by their names, as JSON or YAML.

        Args:
            path: The file; it is YAML, which needs the extra ``yaml``, if its name ends in .yaml or .yml.
            base: The values of options that the file leaves out; None for the defaults.

        Raises:
            UserError: the file cannot be read, or an option does not exist, has another type or is out of range.
        """
        path = Path(path)
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        value = read_parsed(path, _OPTIONS, "YAML", parse_yaml) if is_yaml else read_json(path, _OPTIONS)
        if isinstance(value, dict) and {"cml", "train"} <= value.keys():  # the config.json of a run
            value = value["train"]
        if isinstance(value, dict):
            value = {**asdict(cls() if base is None else base), **value}
        return saved_options(cls, value, str(path), _OPTIONS)

    def difference(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """Options that affect the result and differ: name to (own value, other value)."""
        mine, theirs = asdict(self), asdict(other)
        return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name] and name not in _HOW}


with contextlib.suppress(OSError):  # an installation without sources; ``help`` finds the text below each field
    _lines = re.findall(r'^    (\w+): .*\n    """([^"]*)"""$', inspect.getsource(TrainConfig), re.MULTILINE)
    _texts = "".join(f"\n        {name}: {' '.join(text.split())}" for name, text in _lines)
    TrainConfig.__doc__ = (TrainConfig.__doc__ or "").replace("\n\n", f"\n\n    Attributes:{_texts}\n\n", 1)


def with_options(config: TrainConfig, options: Mapping[str, Any]) -> TrainConfig:
    """The config with some options changed; a UserError names one that does not exist or is out of range."""
    known = [option.name for option in fields(config)]
    for name in options:
        if name == "batch_size":
            raise UserError("The size of batches is the sampler's, as in sampler='random(batch_size=60)'.")
        if name not in known:
            raise UserError(
                f"There is no option {name!r}.{did_you_mean(name, known)} The options are those of cml.TrainConfig."
            )
    return replace(config, **options)
