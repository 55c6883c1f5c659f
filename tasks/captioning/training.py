"""The captioner, and its training: cross-entropy on the words of people, then self-critical on CIDEr-D.

Top-Down attention over a grid of image features: Anderson et al., CVPR 2018, section 3.2: one LSTM decides where to
look, a second one says the next word. Self-critical: Rennie et al., CVPR 2017: a drawn caption is made likelier by as
much as its CIDEr-D exceeds what the captioner reaches by itself. That is here the mean of the other captions drawn of
the image (Luo, *A Better Variant of Self-Critical Sequence Training*, 2020), which reached more in the same time than
the greedy caption. They are drawn without dropout: of the captioner then used.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cml.console.progress_bar import ProgressBar
from cml.processes.device import pick_device
from cml.settings import check_above_zero, check_whole
from cml.tasks.captioning.scores import CiderD

UNKNOWN = "<unk>"
END = 0  # ends a caption, begins one, and fills what is behind its end


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


class Regions(NamedTuple):
    """What the captioner sees of B images."""

    values: Tensor  # (B, R, H) projected features of R places
    keys: Tensor  # (B, R, M) the same as attention compares them
    mean: Tensor  # (B, H) mean of ``values``

    def repeated(self, times: int) -> "Regions":
        """Every image ``times`` times in a row."""
        return Regions(*(part.repeat_interleave(times, dim=0) for part in self))


class TopDown(nn.Module):
    """Top-Down attention captioner of V = ``words``, ``END`` included, C = ``features`` channels and H = ``hidden``."""

    def __init__(self, words: int, features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        # features of different networks come in different scales: none shall have an advantage by that alone
        projection = nn.Linear(features, hidden)
        self.project = nn.Sequential(nn.LayerNorm(features), projection, nn.ReLU(), nn.Dropout(dropout))
        self.attention_lstm = nn.LSTMCell(3 * hidden, hidden)
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)
        self.key = nn.Linear(hidden, hidden // 2)
        self.query = nn.Linear(hidden, hidden // 2, bias=False)
        self.relevance = nn.Linear(hidden // 2, 1, bias=False)
        self.say = nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, words))

    def look(self, features: Tensor) -> Regions:
        """Project the features (B, R, C) once; every word then attends to them."""
        values = self.project(features)
        return Regions(values, self.key(values), values.mean(dim=1))

    def start(self, images: int) -> Tensor:
        """The state before the first word: (4, B, H), hidden and cell of both LSTMs."""
        return self.embedding.weight.new_zeros(4, images, self.embedding.embedding_dim)

    def step(self, regions: Regions, state: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """One word on: words (B,) to the logits of the next (B, V) and the next state (4, B, H)."""
        seen = torch.cat([state[2], regions.mean, self.embedding(words)], dim=1)
        attention, attention_cell = self.attention_lstm(seen, (state[0], state[1]))
        relevance = self.relevance(torch.tanh(regions.keys + self.query(attention)[:, None]))  # (B, R, 1)
        attended = (relevance.softmax(dim=1) * regions.values).sum(dim=1)
        language, language_cell = self.language_lstm(torch.cat([attended, attention], dim=1), (state[2], state[3]))
        return self.say(language), torch.stack([attention, attention_cell, language, language_cell])

    def forward(self, regions: Regions, captions: Tensor) -> Tensor:
        """Logits (B, T + 1, V) of every next word of captions (B, T), the word after the last included."""
        state, words, logits = self.start(len(captions)), torch.full_like(captions[:, 0], END), []
        for upcoming in (*captions.T, None):
            said, state = self.step(regions, state, words)
            logits.append(said)
            if upcoming is not None:
                words = upcoming
        return torch.stack(logits, dim=1)

    def speak(self, regions: Regions, longest: int, *, sample: bool) -> tuple[Tensor, Tensor]:
        """Captions (B, T), T <= longest, and words' log-probabilities (B, T); ``END`` and 0 behind a caption's end."""
        images = len(regions.mean)
        state, words = self.start(images), torch.full((images,), END, device=regions.mean.device)
        going, said, log_probabilities = torch.ones_like(words, dtype=torch.bool), [], []
        for _ in range(longest):
            logits, state = self.step(regions, state, words)
            log_probability = logits.log_softmax(dim=1)
            words = torch.multinomial(log_probability.exp(), 1)[:, 0] if sample else log_probability.argmax(dim=1)
            chosen = log_probability.gather(1, words[:, None])[:, 0]
            said.append(words.where(going, END))
            log_probabilities.append(chosen.where(going, 0.0))
            going = going & (words != END)
            if not going.any():
                break
        return torch.stack(said, dim=1), torch.stack(log_probabilities, dim=1)

    @torch.inference_mode()
    def search(self, regions: Regions, longest: int, beams: int = 5, *, without: int | None = None) -> Tensor:
        """Captions (B, longest), none with the word ``without``, by beam search over the summed log-probability."""
        images, vocabulary = len(regions.mean), self.embedding.num_embeddings
        wide = regions.repeated(beams)
        state, words = self.start(images * beams), torch.full((images * beams,), END, device=regions.mean.device)
        scores = torch.full((images, beams), -torch.inf, device=regions.mean.device)
        scores[:, 0] = 0  # all beams begin alike: only one of them may branch out
        said = torch.full((images, beams, longest), END, device=regions.mean.device)
        ended = torch.zeros((images, beams), dtype=torch.bool, device=regions.mean.device)
        first = beams * torch.arange(images, device=regions.mean.device)[:, None]
        for position in range(longest):
            logits, state = self.step(wide, state, words)
            further = logits.log_softmax(dim=1).view(images, beams, vocabulary)
            if without is not None:
                further[..., without] = -torch.inf
            further = further.masked_fill(ended[..., None], -torch.inf)
            further[..., END] = further[..., END].where(~ended, 0.0)  # a caption that has ended stays as it is
            scores, chosen = (scores[..., None] + further).flatten(1).topk(beams, dim=1)
            parent, words = chosen // vocabulary, chosen % vocabulary
            said = said.gather(1, parent[..., None].expand_as(said))
            said[..., position] = words
            ended = words == END if position == 0 else ended.gather(1, parent) | (words == END)
            state, words = state[:, (first + parent).flatten()], words.flatten()
            if ended.all():
                break
        return said[:, 0]


class Captioned(NamedTuple):
    """Images with their captions, for a captioner."""

    features: NDArray[Any]  # (N, R, C) float16 or float32, a grid of R places an image
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
    """Train a captioner on ``data``; the same seed gives the same captioner on the same machine."""
    place = pick_device(device)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(data.captions, config.min_count)
    captioner = TopDown(len(vocabulary.words), data.features.shape[2], config.hidden).to(place)
    encoded = [torch.tensor([vocabulary.encode(text, config.words) for text in texts]) for texts in data.captions]

    def train(
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
        said = functional.pad(texts != END, (1, 0), value=True)  # the words and one end: what follows is no word
        return functional.cross_entropy(logits[said], targets[said])

    def self_critical(images: NDArray[Any], regions: Regions) -> Tensor:
        drawn, log_probability = captioner.speak(regions.repeated(config.rl_draws), config.words, sample=True)
        pairs = zip(images.repeat(config.rl_draws).tolist(), drawn.tolist(), strict=True)
        rewards = torch.tensor([reward(image, vocabulary.decode(words)) for image, words in pairs])
        rewards = rewards.view(-1, config.rl_draws)
        gain = rewards - (rewards.sum(dim=1, keepdim=True) - rewards) / (config.rl_draws - 1)
        said = functional.pad(drawn[:, :-1] != END, (1, 0), value=True)  # (B, T) the word that ends it counts too
        return -(gain.to(place).view(-1, 1) * log_probability * said).sum() / said.sum()

    train("cross-entropy", config.xe_steps, config.xe_rate, config.batch_size, cross_entropy)
    if config.rl_steps == 0:
        return TrainedCaptioner(vocabulary, captioner.eval(), None)
    xe, reward = copy.deepcopy(captioner.eval()), CiderD(data.captions)
    train("self-critical", config.rl_steps, config.rl_rate, config.rl_batch_size, self_critical)
    return TrainedCaptioner(vocabulary, xe, captioner)


@torch.inference_mode()
def caption(
    captioner: TopDown, vocabulary: Vocabulary, features: NDArray[Any], config: CaptionerConfig
) -> list[list[str]]:
    """Captions of images with features (N, R, C), by beam search among the words that are known."""
    captions, unknown = list[list[str]](), len(vocabulary.words) - 1
    for part in np.array_split(features, max(1, len(features) // 64)):
        regions = captioner.look(_onto(captioner.embedding.weight.device, part))
        found = captioner.search(regions, config.words, config.beams, without=unknown)
        captions += [vocabulary.decode(numbers) for numbers in found.tolist()]
    return captions


def _onto(place: torch.device, features: NDArray[Any]) -> Tensor:
    return torch.from_numpy(features).to(place).float()  # half as much to send where they are stored as float16
