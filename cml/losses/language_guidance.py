"""Language guidance: batches should look as similar as their class names read, beside a loss over classes."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.embeddings import check_matrix, in_full, unit
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number
from cml.word_vectors.open import open_word_vectors


def language_guidance_loss(
    embeddings: Tensor, texts: Tensor, classes: Tensor, *, gamma: float = 1.0, temperature: float = 1.0
) -> Tensor:
    """The guidance alone, at least 0, of embeddings (B, D), texts (C, W) of the names, and classes (B,) int64."""
    check_number("gamma", gamma, least=0)
    check_above_zero("temperature", temperature)
    check_matrix("texts", texts, "(C, W)")
    check_classes(embeddings, classes, len(texts))
    with torch.autocast(embeddings.device.type, enabled=False):
        points, words = unit(embeddings), unit(texts.detach())[classes]
        seen = (points @ points.T / temperature).log_softmax(dim=1)  # (B, B)
        same = (classes[:, None] == classes).to(points.dtype)
        read = ((words @ words.T).to(points.dtype) + gamma * same) / temperature
        return (seen.exp() * (seen - read.log_softmax(dim=1))).sum(dim=1).mean()


class LanguageGuidanceLoss(ClassLoss):
    """A loss over classes plus ``weight`` times a divergence of images from the names of their classes.

    With S the cosines among the batch's embeddings, T those among the text embeddings of their classes' names, and
    [y_i = y_j] 1 within a class and 0 between classes, the mean over items i of

        KL( softmax_j( S_ij / t )  ||  softmax_j( (T_ij + gamma [y_i = y_j]) / t ) )

    A constant added to a whole row would leave its softmax as it is. So gamma acts on the item's own class alone, where
    all texts are equal: it keeps the class together however alike its neighbours read.

    The authors' code differs: it puts 1 + gamma in place of a class's own cosines on both sides, and takes the
    divergence the other way round.

    A class's text embedding is the mean of the vectors of the words in its name; "001.Black_footed_Albatross" has
    three. Words that the vectors lack are left out.

    Args:
        loss: The loss over classes, as in ``proxy-anchor(alpha=16)``.
        vectors: Word vectors: ``glove-6b-50d`` (extra ``glove``), or the path of a file.
        weight: At least 0.
        gamma: At least 0, in units of a cosine; 1 as in the authors' code.
        temperature: Above 0.

    Raises:
        UserError: the loss does not take classes; in ``prepare``, the vectors cannot be read, know no word of a class's
            name, or read the same for every class.

    Example:
        >>> points = torch.eye(3)
        >>> language_guidance_loss(points, points, torch.arange(3), gamma=0.0).item()
        0.0

    Reference:
        Roth, Vinyals, Akata: Integrating Language Guidance into Vision-based Deep Metric Learning, CVPR 2022.
    """

    _when = "Class names are words that say how classes relate: birds, cars, dishes."
    about = About("O(B^2), beside the loss that it guides", "Roth et al., CVPR 2022", _when)
    texts: Tensor

    def __init__(
        self,
        loss: str = "multi-similarity",
        vectors: str = "glove-6b-50d",
        weight: float = 1.0,
        gamma: float = 1.0,
        temperature: float = 1.0,
    ) -> None:
        from cml.losses import registry

        super().__init__()
        inner = registry.make(loss)
        if not isinstance(inner, ClassLoss) or isinstance(inner, LanguageGuidanceLoss):
            got = f"Got {loss!r} instead."
            raise UserError(f"Language guidance goes with a loss over classes, such as multi-similarity. {got}")
        self.loss = loss
        self.inner = inner
        self.vectors = vectors
        self.weight = check_number("weight", weight, least=0)
        self.gamma = check_number("gamma", gamma, least=0)
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = inner.normalize
        self.register_buffer("texts", torch.empty(0, 0))

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Look up the class names, and prepare the loss that is guided."""
        self.inner.prepare(target, dimension=dimension, names=names, generator=generator)
        self.texts = text_embeddings(names, self.vectors)

    def proxies(self) -> list[nn.Parameter]:
        """Those of the loss that is guided."""
        return self.inner.proxies()

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        if len(self.texts) == 0:
            said = "LanguageGuidanceLoss has no class names yet:"
            raise UserError(f"{said} call prepare(classes, dimension=D, names=names) first.")
        value: Tensor = self.inner(embeddings, classes)
        self.left_out = self.inner.left_out
        settings = {"gamma": self.gamma, "temperature": self.temperature}
        return in_full(value) + self.weight * language_guidance_loss(embeddings, self.texts, classes, **settings)


def text_embeddings(names: Sequence[str], vectors: str) -> Tensor:
    """The mean word vector (C, W) float32 of each class name; letters in a row are a word."""
    source = open_word_vectors(vectors)
    words = [re.findall(r"[^\W\d_]+", name) for name in names]
    rows = source.find({form for name in words for word in name for form in (word, word.lower())})
    means = []
    for name, spelt in zip(names, words, strict=True):
        hits = [row for word in spelt if (row := rows.get(word, rows.get(word.lower()))) is not None]
        if not hits:
            said = "Language guidance needs class names made of words,"
            raise UserError(f"{said} but the vectors {vectors!r} know none in {name!r}.")
        means.append(source.rows(np.array(hits)).mean(axis=0))
    if not any((mean != means[0]).any() for mean in means):
        alike = f"{len(names)} that read like {names[0]!r}" if names else "none"
        raise UserError(f"Language guidance needs class names that differ in their words. Got {alike} instead.")
    return torch.from_numpy(np.stack(means).astype(np.float32))
