"""Language guidance: batches should look as similar as their class names read, beside a loss over classes."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.loss import LossInfo
from cml.losses.pairs import in_full, unit_rows
from cml.option_types import convert_option
from cml.settings import check_above_zero, check_number
from cml.word_vectors.open import open_word_vectors


class LanguageGuidanceLoss(ClassLoss):
    """A loss over classes, plus ``weight`` times the divergence of image similarities from those of class names.

    With S the cosines among the batch's embeddings, T those among the text embeddings of their classes' names, and
    [y_i = y_j] 1 within a class and 0 between classes, the mean over items i of

        KL( softmax_j( S_ij / t )  ||  softmax_j( (T_ij + gamma [y_i = y_j]) / t ) )

    A constant added to a whole row would leave its softmax as it is. So gamma acts on the item's own class alone, where
    all texts are equal: it keeps the class together however alike its neighbours read.

    The authors' code differs: it puts 1 + gamma in place of a class's own cosines on both sides, and takes the
    divergence the other way round.

    A class's text embedding is the mean of the vectors of the words in its name; "001.Black_footed_Albatross" has
    three. Words that the vectors do not hold are left out.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` looks up the class names.

    Relations: added to any loss over classes, which it leaves as it is for ``weight`` 0.

    Args:
        loss: The loss over classes, as in ``proxy-anchor(alpha=16)``.
        vectors: Word vectors: ``glove-6b-50d`` (extra ``glove``), or the path of a file.
        weight: Weight of the divergence, at least 0.
        gamma: At least 0, in units of a cosine; 1 as in the authors' code.
        temperature: t, above 0.

    Raises:
        UserError: the loss does not take classes, or a setting is out of range; in ``prepare``, the vectors cannot be
            read, know no word of a class's name, or read the same for every class.

    Example:
        >>> import torch
        >>> loss, points = LanguageGuidanceLoss(gamma=0.0), torch.eye(3)
        >>> loss.texts = points  # prepare(classes, dimension=D, names=names) looks them up
        >>> loss.guidance(points, torch.arange(3)).item()
        0.0

    Reference:
        Roth, Vinyals, Akata: Integrating Language Guidance into Vision-based Deep Metric Learning, CVPR 2022.
    """

    info = LossInfo(
        cost="O(B^2), beside the loss that it guides",
        source="Roth et al., CVPR 2022",
        when="Class names are words that say how classes relate: birds, cars, dishes.",
    )
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
        self.vectors = convert_option("vectors", vectors, str)
        self.weight = check_number("weight", weight, least=0)
        self.gamma = check_number("gamma", gamma, least=0)
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = inner.normalize
        self.register_buffer("texts", torch.empty(0, 0))

    def prepare(
        self,
        target: Tensor,  # (N,) int64 class numbers of the training items
        *,
        dimension: int,  # D of the embeddings
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        """Look up the class names, and prepare the guided loss."""
        self.inner.prepare(target, dimension=dimension, names=names, generator=generator)
        self.texts = text_embeddings(names, self.vectors)

    def proxies(self) -> list[nn.Parameter]:
        """The proxies of the guided loss."""
        return self.inner.proxies()

    def forward(
        self,
        embeddings: Tensor,  # (B, D) floating point. Computed with in at least float32, also under autocast
        classes: Tensor,  # (B,) int64 in 0..C-1
    ) -> Tensor:  # a scalar
        """The loss of a batch."""
        if len(self.texts) == 0:
            raise UserError(
                "LanguageGuidanceLoss has no class names yet: call prepare(classes, dimension=D, names=names) first."
            )
        value: Tensor = self.inner(embeddings, classes)
        self._skipped = self.inner._skipped
        return in_full(value) + self.weight * self.guidance(embeddings, classes)

    def guidance(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The formula of the divergence alone.

        Args:
            embeddings: (B, D) floating point.
            classes: (B,) int64 in 0..C-1.

        Returns:
            A scalar of at least 0.

        Raises:
            UserError: a tensor has another shape or type, or a number is not a class.
        """
        check_classes(embeddings, classes, len(self.texts), look=self.may_check_numbers(embeddings))
        with torch.autocast(embeddings.device.type, enabled=False):
            points, words = unit_rows(embeddings), unit_rows(self.texts.detach())[classes]
            image_shares = (points @ points.T / self.temperature).log_softmax(dim=1)  # (B, B), logarithms
            same = (classes[:, None] == classes).to(points.dtype)
            text_scores = ((words @ words.T).to(points.dtype) + self.gamma * same) / self.temperature
            text_shares = text_scores.log_softmax(dim=1)
            return (image_shares.exp() * (image_shares - text_shares)).sum(dim=1).mean()


def text_embeddings(names: Sequence[str], vectors: str) -> Tensor:
    """The mean word vector (C, W) of each class name. Consecutive letters are a word; anything else separates words.

    ``vectors`` is a source of ``cml.word_vectors``: its name, or the path of a file. Vectors that cannot be read, that
    know no word of a name, or that make all names alike are refused.
    """
    source = open_word_vectors(vectors)
    words = [re.findall(r"[^\W\d_]+", name) for name in names]
    rows = source.find({form for name in words for word in name for form in (word, word.lower())})
    means = []
    for name, words_of_name in zip(names, words, strict=True):
        looked_up = [rows.get(word, rows.get(word.lower())) for word in words_of_name]
        hits = [row for row in looked_up if row is not None]
        if not hits:
            raise UserError(
                f"Language guidance needs class names made of words, but the vectors {vectors!r} know none in {name!r}."
            )
        means.append(source.rows(np.array(hits)).mean(axis=0))
    if not any((mean != means[0]).any() for mean in means):
        alike = f"{len(names)} that read like {names[0]!r}" if names else "none"
        raise UserError(f"Language guidance needs class names that differ in their words. Got {alike} instead.")
    return torch.from_numpy(np.stack(means).astype(np.float32))
