"""A captioner: Top-Down attention over a grid of image features.

One LSTM decides where to look, a second one generates the next word: Anderson et al., Bottom-Up and Top-Down Attention
for Image Captioning and Visual Question Answering, CVPR 2018, section 3.2.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

END = 0  # ends a caption, begins one, and fills what is behind its end


class Regions(NamedTuple):
    """What the captioner sees of B images."""

    values: Tensor  # projected features (B, R, H) of R places
    keys: Tensor  # the same (B, R, M) as attention compares them
    mean: Tensor  # mean of ``values`` (B, H)

    def repeat(self, times: int) -> "Regions":  # the regions of B * ``times`` images
        """Repeat every image."""
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

    def step(
        self,
        regions: Regions,
        state: Tensor,  # hidden states and cells (4, B, H) of both LSTMs
        words: Tensor,  # the last word (B,) of each caption
    ) -> tuple[Tensor, Tensor]:  # logits (B, V) of the next word, and the next state (4, B, H)
        """Go one word further."""
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
            next_logits, state = self.step(regions, state, words)
            logits.append(next_logits)
            if upcoming is not None:
                words = upcoming
        return torch.stack(logits, dim=1)

    def speak(
        self,
        regions: Regions,
        longest: int,
        *,
        sample: bool,  # draw words by their probability; otherwise take the likeliest
    ) -> tuple[Tensor, Tensor]:
        """Generate captions word by word.

        Returns captions (B, T), T <= longest, ``END`` behind a caption's end, and the log-probability (B, T) of each
        word, 0 there.
        """
        images = len(regions.mean)
        state, words = self.start(images), torch.full((images,), END, device=regions.mean.device)
        going, captions, log_probabilities = torch.ones_like(words, dtype=torch.bool), [], []
        for _ in range(longest):
            logits, state = self.step(regions, state, words)
            log_probability = logits.log_softmax(dim=1)
            words = torch.multinomial(log_probability.exp(), 1)[:, 0] if sample else log_probability.argmax(dim=1)
            chosen = log_probability.gather(1, words[:, None])[:, 0]
            captions.append(words.where(going, END))
            log_probabilities.append(chosen.where(going, 0.0))
            going = going & (words != END)
            if not going.any():
                break
        return torch.stack(captions, dim=1), torch.stack(log_probabilities, dim=1)

    @torch.inference_mode()
    def search(
        self,
        regions: Regions,
        longest: int,
        beams: int = 5,
        *,
        without: int | None = None,  # a word that no caption may have; None for none
    ) -> Tensor:  # the best caption of each image (B, longest), ``END`` behind its end
        """Generate captions by beam search over the summed log-probability."""
        images, vocabulary = len(regions.mean), self.embedding.num_embeddings
        wide = regions.repeat(beams)
        state, words = self.start(images * beams), torch.full((images * beams,), END, device=regions.mean.device)
        scores = torch.full((images, beams), -torch.inf, device=regions.mean.device)
        scores[:, 0] = 0  # all beams begin alike: only one of them may branch out
        captions = torch.full((images, beams, longest), END, device=regions.mean.device)
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
            captions = captions.gather(1, parent[..., None].expand_as(captions))
            captions[..., position] = words
            ended = words == END if position == 0 else ended.gather(1, parent) | (words == END)
            state, words = state[:, (first + parent).flatten()], words.flatten()
            if ended.all():
                break
        return captions[:, 0]
