"""Training of the captioner: cross-entropy on the words of people, then self-critical on CIDEr-D.

Self-critical: Rennie et al., CVPR 2017: a sampled caption is made likelier by as much as its CIDEr-D exceeds what the
captioner reaches by itself. That is here the mean of the other captions sampled of the image (Luo, *A Better Variant of
Self-Critical Sequence Training*, 2020), which reached a higher score in the same time than the greedy caption. They are
sampled without dropout, as the captioner is used later.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cml.console.progress_bar import ProgressBar
from cml.processes.device import pick_device
from cml.settings import check_above_zero, check_whole
from cml.tasks.captioning.model import END, Regions, TopDown
from cml.tasks.captioning.scores import CiderD

UNKNOWN = "<unk>"


@dataclass(frozen=True)
class CaptionerConfig:
    """Options of training a captioner."""

    hidden: int = 512
    """Size of both LSTMs."""
    min_count: int = 5
    """Words that occur less often in the training captions become the unknown word."""
    words: int = 20
    """Maximum number of words of a caption; longer captions are truncated."""
    batch_size: int = 50
    """Number of images per step, each with one of its captions in turn."""
    xe_steps: int = 3000
    """Number of steps of cross-entropy training."""
    xe_rate: float = 1e-3
    """Its learning rate (Adam), falling to zero."""
    rl_steps: int = 500
    """Number of steps of self-critical training after that."""
    rl_rate: float = 1e-4
    """Its learning rate (Adam), falling to zero."""
    rl_batch_size: int = 20
    """Number of images per step of self-critical training."""
    rl_draws: int = 5
    """Number of captions sampled per image; the baseline of each is the mean score of the others."""
    beams: int = 5
    """Beam size of the search that generates the captions to be scored."""

    def __post_init__(self) -> None:
        for name in ("hidden", "min_count", "words", "batch_size", "xe_steps", "rl_batch_size", "beams"):
            check_whole(name, getattr(self, name))
        check_whole("rl_steps", self.rl_steps, least=0)
        check_whole("rl_draws", self.rl_draws, least=2)  # one is judged by the others
        check_above_zero("xe_rate", self.xe_rate)
        check_above_zero("rl_rate", self.rl_rate)


class Captioned(NamedTuple):
    """N images with their captions, for a captioner."""

    features: NDArray[Any]  # features (N, R, C) float16 or float32, a grid of R places per image
    captions: Sequence[Sequence[Sequence[str]]]  # N lists of tokenised captions


class Vocabulary:
    """Words of the training captions and their numbers: 0 ends a caption, the last one stands for rarer words."""

    def __init__(self, captions: Sequence[Sequence[Sequence[str]]], min_count: int) -> None:
        counts = Counter(word for texts in captions for text in texts for word in text)
        kept = sorted(word for word, count in counts.items() if count >= min_count)
        self.words = ["", *kept, UNKNOWN]
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def encode(self, text: Sequence[str], longest: int) -> list[int]:
        """Numbers of the words, filled up with ``END`` to ``longest``."""
        numbers = [self._numbers.get(word, len(self.words) - 1) for word in text[:longest]]
        return numbers + [END] * (longest - len(numbers))

    def decode(self, numbers: Sequence[int]) -> list[str]:
        """The words up to the end."""
        ends = list(numbers).index(END) if END in numbers else len(numbers)
        return [self.words[number] for number in numbers[:ends]]


class TrainedCaptioner(NamedTuple):
    """A captioner after cross-entropy, and after self-critical training if there was any."""

    vocabulary: Vocabulary
    xe: TopDown
    rl: TopDown | None


def train_captioner(
    data: Captioned, config: CaptionerConfig, *, seed: int, device: str = "cpu", quiet: bool = False
) -> TrainedCaptioner:
    """Train a captioner; the same seed gives the same captioner on the same machine."""
    place = pick_device(device)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(data.captions, config.min_count)
    captioner = TopDown(len(vocabulary.words), data.features.shape[2], config.hidden).to(place)
    encoded = [torch.tensor([vocabulary.encode(text, config.words) for text in texts]) for texts in data.captions]

    def _train(
        name: str, steps: int, rate: float, size: int, loss_of: Callable[[NDArray[Any], Regions], Tensor]
    ) -> None:
        optimizer = torch.optim.Adam(captioner.parameters(), rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in ProgressBar(range(steps), desc=name, disable=quiet):
            images = rng.choice(len(encoded), min(size, len(encoded)), replace=False)
            loss = loss_of(images, captioner.look(_onto(place, data.features[images])))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(captioner.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    def cross_entropy(images: NDArray[Any], regions: Regions) -> Tensor:
        texts = torch.stack([encoded[image][rng.integers(len(encoded[image]))] for image in images]).to(place)  # (B, T)
        logits, targets = captioner(regions, texts), functional.pad(texts, (0, 1), value=END)  # (B, T + 1)
        counted = functional.pad(texts != END, (1, 0), value=True)  # the words and one end: what follows is no word
        return functional.cross_entropy(logits[counted], targets[counted])

    def self_critical(images: NDArray[Any], regions: Regions) -> Tensor:
        drawn, log_probability = captioner.speak(regions.repeat(config.rl_draws), config.words, sample=True)
        pairs = zip(images.repeat(config.rl_draws).tolist(), drawn.tolist(), strict=True)
        rewards = torch.tensor([reward(image, vocabulary.decode(words)) for image, words in pairs])
        rewards = rewards.view(-1, config.rl_draws)
        gain = rewards - (rewards.sum(dim=1, keepdim=True) - rewards) / (config.rl_draws - 1)
        counted = functional.pad(drawn[:, :-1] != END, (1, 0), value=True)  # (B, T) the word that ends it counts too
        return -(gain.to(place).view(-1, 1) * log_probability * counted).sum() / counted.sum()

    _train("cross-entropy", config.xe_steps, config.xe_rate, config.batch_size, cross_entropy)
    if config.rl_steps == 0:
        return TrainedCaptioner(vocabulary, captioner.eval(), None)
    xe, reward = copy.deepcopy(captioner.eval()), CiderD(data.captions)
    _train("self-critical", config.rl_steps, config.rl_rate, config.rl_batch_size, self_critical)
    return TrainedCaptioner(vocabulary, xe, captioner)


@torch.inference_mode()
def caption(
    captioner: TopDown,
    vocabulary: Vocabulary,
    features: NDArray[Any],  # features (N, R, C) of the images
    config: CaptionerConfig,
) -> list[list[str]]:
    """Generate captions of images by beam search, without the word that stands for unknown ones."""
    captions, unknown = list[list[str]](), len(vocabulary.words) - 1
    for part in np.array_split(features, max(1, len(features) // 64)):
        regions = captioner.look(_onto(captioner.embedding.weight.device, part))
        numbers_of_words = captioner.search(regions, config.words, config.beams, without=unknown)
        captions += [vocabulary.decode(numbers) for numbers in numbers_of_words.tolist()]
    return captions


def _onto(place: torch.device, features: NDArray[Any]) -> Tensor:
    return torch.from_numpy(features).to(place).float()  # half as much to send where they are stored as float16
