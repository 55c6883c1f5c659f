"""Options of a training run: one dataclass is the command's flags, the saved config and the argument."""

import contextlib
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from cml.errors import UserError, did_you_mean
from cml.option_types import check_options, convert_values
from cml.processes.cores import READERS
from cml.processes.exactness import Decode, Precision
from cml.storage.json_file import check_format, parse_yaml, read_json, read_parsed
from cml.storage.saved_options import TINY, check_bounds, saved_options
from cml.training import optimizers
from cml.training.schedules import make_schedule

NO_GROUPS = "none"  # the value of ``group_column`` that turns off the groups of a dataset
OWN = "custom"  # the value of an option for which a function is given
# options that do not change the result, and may differ when a run is resumed
_NO_EFFECT = ("checkpoint_every", "keep_models", "workers", "worker_timeout", "cache_bytes", "device")
_OPTIONS = "options of training"
RUN_AGAIN = "Train it again with 'cml train'."
_LARGE = 10**9
_BOUNDS = {  # an untrusted config may hold any number
    (1, 65_536): ("dimension", "image_size", "projector"),
    (1, _LARGE): ("steps", "checkpoint_every", "micro_batch"),
    (0, _LARGE): (
        *("epochs", "warmup", "head_first", "evaluate_every", "patience", "memory", "worker_timeout"),
        "weight_decay",
    ),
    (0, 2**63 - 1): ("seed",),
    (0, 2**50): ("cache_bytes",),
    (0, 512): ("workers", "lora"),
    (1, 64): ("views",),
    (TINY, 1e38): (
        *("learning_rate", "backbone_lr_scale", "proxy_rate", "tune_rates"),
        *("clip_gradient", "clip_gradient_value"),
    ),
    (TINY, 1): ("crop",),
    (0, 1 - TINY): ("ema_decay",),
    (TINY, 1 - TINY): ("validation_fraction",),
    (0, 1e6): ("tune_minutes",),
    (0, 0.5): ("scale_jitter", "shift_jitter", "brightness_jitter"),
}


@dataclass(frozen=True)
class TrainConfig:
    """Training options. A task's recipe is an instance of this class.

    Example:
        >>> TrainConfig(loss="cosent(scale=2.0)", steps=300).learning_rate
        0.001
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": (
            *("label_distance", "loss", "sampler", "backbone", "freeze_backbone", "tune", "dimension"),
            *("steps", "learning_rate", "evaluate_every", "patience", "seed", "device"),
        ),
        "data": ("missing", "image_size", "decode", "features", "group_column", "validation_fraction"),
        "model": ("weights", "head_start", "projector", "lora", "train_only", "batch_norm"),
        "training": (
            *("epochs", "optimizer", "backbone_lr_scale", "proxy_rate", "weight_decay", "schedule"),
            *("warmup", "head_first", "clip_gradient", "clip_gradient_value", "ema_decay"),
            *("memory", "micro_batch", "precision", "compile"),
        ),
        "augmentation": (
            *("crop", "scale_jitter", "shift_jitter", "brightness_jitter", "random_crop", "flip", "views"),
        ),
        "tuning": ("tune_losses", "tune_rates", "tune_minutes"),
        "run": ("checkpoint_every", "keep_models", "workers", "worker_timeout", "cache_bytes"),
    }

    label_distance: str = "euclidean"
    """Label distance: a name, or name(setting=value, ...). 'dataset' uses the label distance that is stored with the
    dataset."""
    loss: str = "log-ratio"
    """Loss: a name, or name(setting=value, ...). cml losses lists the names, and cml losses NAME explains the
    settings."""
    sampler: str = "random"
    """Sampler, which composes the batches: random | grouped | dense (lists as in the log-ratio paper) | binary |
    per-class | pairs | linked | triplets (of judgements) | queries (of grades)."""

    backbone: str = "efficientnet-lite0"
    """Backbone: small-cnn | efficientnet-lite0, -lite1, -lite2 | bn-inception | timm/MODEL for any timm model | a
    torchvision classifier, such as resnet34, or resnet34(pooling=mean-max). For vectors: none (a linear head) |
    mlp(512, 512). For texts: sentence-transformers/MODEL, such as sentence-transformers/all-MiniLM-L6-v2."""
    weights: str = "imagenet"
    """Initial weights of the backbone: imagenet (the default weights of the model) | none (random) | the name of a set
    of weights, such as IMAGENET1K_V2 or a timm tag | a .safetensors or .pth file."""
    dimension: int = 128
    """Number of dimensions of the embedding."""
    missing: Literal["refuse", "mean"] = "refuse"
    """How to handle missing numbers (NaN) in input vectors: 'refuse' raises an error, 'mean' replaces them by the
    column's mean."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the backbone's input in pixels."""
    decode: Decode = "exact"
    """Decoding of training images: 'fast' decodes JPEGs at a half, a quarter or an eighth of their size where that is
    enough, which changes pixels slightly. Evaluation decodes exactly."""
    freeze_backbone: bool = False
    """Keep the backbone fixed and train only the head. Every image passes through the backbone once, so that training
    takes seconds."""
    features: str = ""
    """Folder of a feature store (cml features) on whose features a head is trained. The network that computed them from
    images is the frozen backbone of the model. If they were computed from texts or by your own function, they are the
    inputs of the model. --search-space features=A,B compares the stores A and B."""
    tune: bool = False
    """Choose a head on frozen features, or on vectors, by comparing trained heads, a ridge regression, PCA and the
    features themselves on held-out items. The features themselves are used unless the gain is clear."""
    tune_losses: tuple[str, ...] = ("log-ratio", "h-ap")
    """Losses with which tune trains heads, each from three initialisations."""
    tune_rates: tuple[float, ...] = (3e-3,)
    """Learning rates with which tune trains heads."""
    tune_minutes: float = 0.0
    """Time budget in minutes for which tune also tries whole networks: small-cnn from scratch and the backbone, each
    with two learning rates. Networks that do not fit into the budget are left out; 0 tries only heads."""
    train_only: tuple[str, ...] = ()
    """Patterns of the names of the parameters to train, such as head.* and backbone.layer4.*, as listed by
    model.named_parameters(). All others stay fixed. Without patterns, all parameters are trained."""
    head_start: Literal["auto", "random", "pca", "standardised"] = "auto"
    """Initialisation of a head that is trained alone, on vectors or on a frozen backbone: 'random' weights; 'pca', the
    principal components of the features, with which few or noisy labels do less harm; or 'standardised', random weights
    on at most 256 principal components of the standardised features. 'auto' uses pca if label distances vary little,
    such as those of captions or of many classes, and random otherwise."""
    lora: int = 0
    """Rank of low-rank adapters on a transformer's linear layers, such as 8; 0 for none. They are trained instead of
    the backbone's weights, which needs less memory, and are merged into the weights at the end."""

    crop: float = 1.0
    """Side of the centre crop as a fraction of the image's side. The margin leaves room for jitter."""
    scale_jitter: float = 0.0
    """Maximum random change of the crop's side, as a fraction of the image's side."""
    shift_jitter: float = 0.0
    """Maximum random shift of the crop, as a fraction of the image's side."""
    brightness_jitter: float = 0.0
    """Maximum relative change of brightness and contrast."""
    random_crop: Literal["none", "place", "area"] = "none"
    """Random crop of training images, instead of scale and shift jitter: 'place' crops image_size at a random position
    of the stored image, such as 224 of 256 pixels with crop=0.875; 'area' crops 8 to 100 % of its area, with an aspect
    ratio of 3:4 to 4:3, and resizes it."""
    flip: Literal["none", "list", "image"] = "none"
    """Horizontal flip: 'list' flips whole batches, which keeps label distances valid; 'image' flips single images
    together with their labels."""

    views: int = 1
    """Number of copies of each item in a batch, each with independent random augmentation; their label distance is 0.
    The number of images in a batch is multiplied by it."""
    projector: tuple[int, ...] = ()
    """Widths of the linear layers of a projector, such as 128 64: a small network between the embeddings and the loss,
    which is dropped after training. Empty for none."""

    epochs: int = 0
    """Number of epochs, instead of 'steps'. In each epoch, every training item is an anchor once. 0 uses 'steps'."""
    steps: int = 1000
    """Number of training steps, one batch each."""
    optimizer: str = "adamw"
    """Optimiser: a name, or name(setting=value, ...): adamw and adam have beta1=0.9, beta2=0.999 and epsilon=1e-8, sgd
    has momentum=0.9, as in the log-ratio paper, and rmsprop has decay=0.99, momentum=0 and epsilon=1e-8. All but adamw
    add the weight decay to the gradient. In Python also a function that returns an optimiser, which is called 'custom'
    in the saved options."""
    learning_rate: float = 1e-3
    """Learning rate of the head; that of the backbone is multiplied by backbone_lr_scale. For vectors, the default is
    0.003, with grades 0.001."""
    backbone_lr_scale: float = 1.0
    """Learning rate of the backbone relative to that of the head. Use a value below 1 for pretrained weights."""
    proxy_rate: float = 100.0
    """Learning rate of a loss's proxies relative to that of the head; 100 is the published value of Proxy-Anchor."""
    weight_decay: float = 5e-4
    """Weight decay of all weights."""
    schedule: str = "cosine"
    """Learning rate schedule: cosine decays to zero, inverse(decay=1e-4) is 1 / (1 + decay * step), as in the log-ratio
    paper, step(every=N, decay=0.1) is decay ** (step // every), for the first time at step M with first=M, and constant
    leaves the rate as it is. In Python also a function that returns a scheduler of torch, which is called 'custom' in
    the saved options."""
    warmup: int = 0
    """Number of warm-up steps, over which the learning rate rises from zero."""
    head_first: int = 0
    """Number of initial steps in which only the head and the loss are trained."""
    clip_gradient: float | None = None
    """Maximum gradient norm. By default the gradient is not clipped."""
    clip_gradient_value: float | None = None
    """Maximum absolute value of each element of the gradient, including that of the loss's proxies; Proxy-Anchor's code
    uses 10. It is applied before clip_gradient. By default the gradient is not clipped."""
    ema_decay: float = 0.0
    """Decay of an exponential moving average of the weights, such as 0.99; 0 disables it. The average is validated and
    saved instead of the weights. It includes the statistics of batch normalisation and needs memory for a second copy
    of the weights."""
    memory: int = 0
    """Number of embeddings of earlier batches that anchors are also compared with (cross-batch memory); 0 disables
    it."""
    micro_batch: int | None = None
    """Number of images per forward pass. A larger batch is processed in parts and in two passes, which needs only the
    memory of one part. The gradient is that of the whole batch, except with batch normalisation: see batch_norm, or use
    small-cnn(norm=group)."""
    batch_norm: Literal["batch", "fixed"] = "batch"
    """Statistics of batch normalisation: 'batch' uses those of the images in a forward pass, 'fixed' uses those stored
    in the backbone."""
    precision: Precision = "float32"
    """Precision of the network: bfloat16 uses autocast; tf32 lets a GPU round the factors of float32 products to 10
    bits. The loss is always computed in float32."""
    compile: bool = False
    """Compile the backbone by torch.compile, which takes a minute or more and a C++ compiler, and pays in long runs."""

    evaluate_every: int = 0
    """Number of steps between validations on held-out training items; 0 disables validation. The score is 1 - rank
    correlation, with grades 1 - nDCG@10, and the best weights are kept."""
    validation_fraction: float = 0.1
    """Fraction of the training items that are held out for validation, at least 8 and at most 1,000 items. Whole groups
    are held out if there are groups, two or more if these are the classes, the last items if consecutive items are
    alike, and random items otherwise. With grades, queries are held out."""
    group_column: str = ""
    """Column of the dataset's metadata.jsonl that identifies groups, such as subjects or sessions. Validation and tune
    hold out all items of a group together, and evaluation compares items of different groups. Name the column of the
    classes if the test has new classes; items of one class are then compared as usual. The default are the
    groups of cml prepare; none turns groups off. In Python, pass groups to cml.fit instead."""
    patience: int = 0
    """Number of validations without improvement after which training stops early; 0 disables early stopping."""
    checkpoint_every: int = 200
    """Number of steps between checkpoints."""
    keep_models: bool = False
    """Also keep the model of every checkpoint, for the training slider of cml explore."""
    seed: int = 0
    """Random seed."""
    workers: int = READERS
    """Number of processes that read images, by default one per core and at most 8; 0 reads them in the training
    process."""
    worker_timeout: float = 300.0
    """Timeout in seconds for a batch from the workers, after which training stops with an error; 0 waits forever."""
    cache_bytes: int = 1 << 30
    """Keep decoded images in memory if they take at most this many bytes."""
    device: str = "auto"
    """Device: auto | cpu | cuda | mps, or another name of torch, such as cuda:1."""

    def check(self) -> None:
        """Refuse options that are out of range or do not fit each other.

        Raises:
            UserError: one is, or two do not.
        """
        check_bounds(self, _BOUNDS)
        if self.optimizer != OWN:
            optimizers.get(self.optimizer)
        if self.schedule != OWN:
            make_schedule(self.schedule)
        elif self.warmup or self.head_first:
            name = "warmup" if self.warmup else "head_first"
            raise UserError(
                f"A schedule of your own sets all learning rates: leave out {name}={getattr(self, name)}, or take "
                "one of cml's schedules."
            )
        if self.patience and not self.evaluate_every:
            raise UserError(f"'patience' counts validations: set 'evaluate_every'. Got patience={self.patience} alone.")
        if self.features and not self.freeze_backbone and not _takes_vectors(self.backbone):
            raise UserError(
                "'features' are those of a frozen backbone: set 'freeze_backbone', or give 'features' to cml.train, "
                f"which takes all from the store. Got features={self.features!r} alone."
            )
        if self.head_start == "standardised" and self.keep_models:
            raise UserError(
                f"A head is composed only at the end: leave out 'keep_models' or head_start={self.head_start}."
            )
        for option in fields(self):
            if option.name.startswith("tune_") and not self.tune and getattr(self, option.name) != option.default:
                value = getattr(self, option.name)
                raise UserError(f"{option.name!r} is an option of 'tune': set 'tune' too. Got {value} alone.")
        if self.features:  # wherever the run is opened later
            object.__setattr__(self, "features", str(Path(self.features).absolute()))
        if self.tune and not (self.tune_losses and self.tune_rates):
            raise UserError("'tune_losses' and 'tune_rates' need at least one value each.")
        if self.tune and self.lora:
            raise UserError(f"'tune' keeps the backbone as it is: leave out lora={self.lora}.")
        if self.freeze_backbone and self.lora:
            raise UserError(f"A backbone is frozen or has adapters: leave out 'freeze_backbone' or lora={self.lora}.")
        if self.keep_models and self.lora:
            raise UserError(f"Adapters are merged only at the end: leave out 'keep_models' or lora={self.lora}.")
        if self.train_only and (self.freeze_backbone or self.lora or self.tune):
            other = "tune" if self.tune else "lora" if self.lora else "freeze_backbone"
            raise UserError(
                f"Both 'train_only' and {other!r} say what is trained: leave out one of them. "
                f"Got train_only={' '.join(self.train_only)} instead."
            )
        if self.freeze_backbone and self.views > 1:
            raise UserError(
                "With 'freeze_backbone' every input is embedded once, so all views of it would be equal: leave out "
                f"'freeze_backbone' or views={self.views}."
            )
        if self.random_crop != "none" and (self.scale_jitter or self.shift_jitter):
            name = "scale_jitter" if self.scale_jitter else "shift_jitter"
            raise UserError(
                f"Both 'random_crop' and {name!r} place the crop: leave out one of them. "
                f"Got random_crop={self.random_crop} and {name}={getattr(self, name)} instead."
            )
        if self.random_crop == "place" and self.crop == 1:
            raise UserError(
                "With random_crop=place the stored image must be larger than the crop: set 'crop' below 1, such as "
                "0.875. Got crop=1.0 instead."
            )
        if self.freeze_backbone and self.random_crop != "none":
            raise UserError(
                "With 'freeze_backbone' every image is embedded once, unchanged: set 'random_crop' to none. "
                f"Got random_crop={self.random_crop} instead."
            )
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

        Returns:
            The options.

        Raises:
            UserError: the file cannot be read, or an option does not exist, has another type or is out of range.
        """
        base = cls() if base is None else base
        return replace(base, **read_options(path, base))

    @property
    def groups(self) -> str:
        """The column of groups; "" for no groups."""
        return "" if self.group_column == NO_GROUPS else self.group_column

    @property
    def method(self) -> str:
        """What chose the embedding, as titles and tables name it: the loss, or "tuned" with ``tune``."""
        return "tuned" if self.tune else self.loss

    @property
    def learner(self) -> str:
        """The registered name of what learns the embedding, see ``cml.training.learner``."""
        return "tune" if self.tune else "gradient-descent"

    @property
    def has_head_alone(self) -> bool:
        """Whether only a head is trained: on a frozen backbone, or on vectors."""
        return self.freeze_backbone or self.backbone == "none"

    def difference(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """Compare the options that affect the result.

        Args:
            other: Other options.

        Returns:
            Name to (own value, other value) of each that differs.
        """
        mine, theirs = asdict(self), asdict(other)
        return {
            name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name] and name not in _NO_EFFECT
        }


with contextlib.suppress(OSError):  # an installation without sources; ``help`` finds the text below each field
    _lines = re.findall(r'^    (\w+): .*\n    """([^"]*)"""$', inspect.getsource(TrainConfig), re.MULTILINE)
    _texts = "".join(f"\n        {name}: {' '.join(text.split())}" for name, text in _lines)
    TrainConfig.__doc__ = (TrainConfig.__doc__ or "").replace("\n\n", f"\n\n    Attributes:{_texts}\n\n", 1)


def read_options(path: Path | str, base: TrainConfig) -> dict[str, Any]:
    """Read the options in a file, see ``TrainConfig.load``."""
    path = Path(path)
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    value = read_parsed(path, _OPTIONS, "YAML", parse_yaml) if is_yaml else read_json(path, _OPTIONS)
    if isinstance(value, dict) and {"cml", "train"} <= value.keys():  # the config.json of a run
        check_format(value, path, RUN_AGAIN)
        value = value["train"]
    named: Collection[str] = ()
    if isinstance(value, dict):
        named = value.keys()
        value = {**asdict(base), **value}
    config = saved_options(TrainConfig, value, str(path), _OPTIONS)
    return {name: getattr(config, name) for name in named}


def _takes_vectors(backbone: str) -> bool:
    from cml.models.backbone import input_kind  # imports torch

    return input_kind(backbone) == "vectors"


def with_options(
    config: TrainConfig,
    options: Mapping[str, Any],  # new values by name; see ``add_implied_options``
) -> TrainConfig:
    """Change some options."""
    patterns: Any = config.train_only
    if isinstance(patterns, str):  # one alone
        options = {"train_only": patterns, **options}
    return check_options(replace(config, **add_implied_options(options)))


def add_implied_options(
    options: Mapping[str, Any],  # values by name
) -> dict[str, Any]:
    """Add the options that follow from those that the user chose."""
    known = [option.name for option in fields(TrainConfig)]
    for name in options:
        if name == "batch_size":
            raise UserError("The size of batches is the sampler's, as in sampler='random(batch_size=60)'.")
        if name not in known:
            raise UserError(
                f"There is no option {name!r}.{did_you_mean(name, known)} The options are those of cml.TrainConfig."
            )
    if isinstance(options.get("train_only"), str):  # a pattern alone
        options = {**options, "train_only": (options["train_only"],) if options["train_only"] else ()}
    options = {**options, **convert_values(TrainConfig, options)}
    if options.get("epochs") and "steps" in options:
        raise UserError(
            "'steps' and 'epochs' both say how long to train: leave out one of them. "
            f"Got steps={options['steps']} and epochs={options['epochs']} instead."
        )
    if "steps" in options:
        options = {"epochs": 0, **options}
    if options.get("features"):
        from cml.training.vector_options import store_options

        options = {**store_options(str(options["features"])), **options}
    return dict(options)
