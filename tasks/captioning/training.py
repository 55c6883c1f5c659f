"""Training the captioner: cross-entropy on the words of people, then self-critical on CIDEr-D.

Self-critical: Rennie et al., *Self-critical Sequence Training for Image Captioning*, CVPR 2017: a drawn caption is made
likelier by as much as its CIDEr-D exceeds what the captioner reaches by itself. That is here the mean of the other
captions drawn of the image (Luo, *A Better Variant of Self-Critical Sequence Training*, 2020), which reached
more in the same time than the greedy caption, and they are drawn without dropout: of the captioner that is then used.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cml.processes.bar import Bar
from cml.processes.device import pick_device
from cml.settings import check_above_zero, check_whole
from cml.tasks.captioning.model import END, TopDown
from cml.tasks.captioning.scores import CiderD

UNKNOWN = "<unk>"


@dataclass(frozen=True)
class CaptionerConfig:
    """How to train a captioner."""

    hidden: int = 512
    """Size of both LSTMs."""
    min_count: int = 5
    """Words that occur less often in the training captions are unknown."""
    words: int = 20
    """Words of a caption; longer ones are cut."""
    batch_size: int = 50
    """Images a step, each with one of its captions in turn."""
    xe_steps: int = 3000
    """Steps of cross-entropy training."""
    xe_rate: float = 1e-3
    """Its learning rate (Adam), falling to zero."""
    rl_steps: int = 500
    """Steps of self-critical training after that."""
    rl_rate: float = 1e-4
    """Its learning rate (Adam), falling to zero."""
    rl_batch_size: int = 20
    """Images a step of it."""
    rl_draws: int = 5
    """Captions drawn of each; one is judged by the mean of the others."""
    beams: int = 5
    """Beams of the search that makes the captions to be scored."""

    def __post_init__(self) -> None:
        for name in ("hidden", "min_count", "words", "batch_size", "xe_steps", "rl_batch_size", "beams"):
            check_whole(name, getattr(self, name))
        check_whole("rl_steps", self.rl_steps, least=0)
        check_whole("rl_draws", self.rl_draws, least=2)  # one is judged by the others
        check_above_zero("xe_rate", self.xe_rate)
        check_above_zero("rl_rate", self.rl_rate)


@dataclass(frozen=True)
class Captioned:
    """Images with their captions, for a captioner."""

    features: NDArray[Any]  # (N, R, C) float16 or float32, a grid of R places an image
    captions: Sequence[Sequence[Sequence[str]]]  # N lists of tokenised captions


class Vocabulary:
    """Words and their numbers; number 0 is the end of a caption, the last one stands for unknown words.

    Args:
        captions: The training captions, tokenised.
        min_count: Rarer words are unknown.
    """

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


@dataclass(frozen=True)
class TrainedCaptioner:
    """A captioner after cross-entropy, and after self-critical training if there was any."""

    vocabulary: Vocabulary
    xe: TopDown
    rl: TopDown | None


def train_captioner(
    data: Captioned, config: CaptionerConfig, *, seed: int, device: str = "cpu", quiet: bool = False
) -> TrainedCaptioner:
    """Train a captioner on ``data``; the same seed gives the same captioner on the same machine.

    Raises:
        UserError: there is no such device.
    """
    place = pick_device(device)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(data.captions, config.min_count)
    captioner = TopDown(len(vocabulary.words), data.features.shape[2], config.hidden).to(place)
    encoded = [torch.tensor([vocabulary.encode(text, config.words) for text in texts]) for texts in data.captions]

    optimizer = torch.optim.Adam(captioner.parameters(), config.xe_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.xe_steps)
    for _ in Bar(range(config.xe_steps), desc="cross-entropy", disable=quiet):
        images = rng.choice(len(encoded), min(config.batch_size, len(encoded)), replace=False)
        texts = torch.stack([encoded[image][rng.integers(len(encoded[image]))] for image in images]).to(place)  # (B, T)
        logits = captioner(captioner.look(_onto(place, data.features[images])), texts)
        _update(optimizer, captioner, _cross_entropy(logits, texts))
        schedule.step()
    if config.rl_steps == 0:
        return TrainedCaptioner(vocabulary, captioner.eval(), None)

    xe = copy.deepcopy(captioner.eval())
    reward = CiderD(data.captions)
    optimizer = torch.optim.Adam(captioner.parameters(), config.rl_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.rl_steps)
    for _ in Bar(range(config.rl_steps), desc="self-critical", disable=quiet):
        images = rng.choice(len(encoded), min(config.rl_batch_size, len(encoded)), replace=False)
        regions = captioner.look(_onto(place, data.features[images])).repeated(config.rl_draws)
        drawn, log_probability = captioner.speak(regions, config.words, sample=True)
        rewards = torch.tensor(
            [
                reward(image, vocabulary.decode(words))
                for image, words in zip(images.repeat(config.rl_draws).tolist(), drawn.tolist(), strict=True)
            ]
        ).view(-1, config.rl_draws)
        gain = rewards - (rewards.sum(dim=1, keepdim=True) - rewards) / (config.rl_draws - 1)
        said = functional.pad(drawn[:, :-1] != END, (1, 0), value=True)  # (B, T) the word that ends it counts too
        loss = -(gain.to(place).view(-1, 1) * log_probability * said).sum() / said.sum()
        _update(optimizer, captioner, loss)
        schedule.step()
    return TrainedCaptioner(vocabulary, xe, captioner)


@torch.inference_mode()
def caption(
    captioner: TopDown, vocabulary: Vocabulary, features: NDArray[Any], config: CaptionerConfig
) -> list[list[str]]:
    """Captions of images with features (N, R, C), by beam search among the words that are known."""
    captions: list[list[str]] = []
    unknown = len(vocabulary.words) - 1
    for part in np.array_split(features, max(1, len(features) // 64)):
        regions = captioner.look(_onto(captioner.embedding.weight.device, part))
        found = captioner.search(regions, config.words, config.beams, without=unknown)
        captions += [vocabulary.decode(numbers) for numbers in found.tolist()]
    return captions


def _onto(place: torch.device, features: NDArray[Any]) -> Tensor:
    return torch.from_numpy(features).to(place).float()  # half as much to send where they are stored as float16


def _cross_entropy(logits: Tensor, texts: Tensor) -> Tensor:
    """Mean over the words and the one end of each caption; what fills a text up behind its end is no word."""
    targets = functional.pad(texts, (0, 1), value=END)  # (B, T + 1)
    said = functional.pad(texts != END, (1, 0), value=True)
    return functional.cross_entropy(logits[said], targets[said])


def _update(optimizer: torch.optim.Optimizer, captioner: TopDown, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(captioner.parameters(), 1.0)
    optimizer.step()
