"""The field's scores of captions, of ``pycocoevalcap``, and CIDEr-D once more as a fast reward, equal to rounding."""

import contextlib
import io
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.errors import UserError, require_extra

Words = Sequence[str]
_ORDERS = 4  # n-grams of 1 to 4 words
_SIGMA = 6.0  # of the penalty on lengths that differ


class CiderD:
    """CIDEr-D against the captions of one corpus (Vedantam, Zitnick, Parikh, CVPR 2015).

    Ten times the mean, over the references and over n = 1..4, of the clipped cosine of tf-idf n-gram vectors, times
    exp(-(difference of lengths)^2 / 72). Document frequencies are of the images of ``references``, tokenised.
    """

    def __init__(self, references: Sequence[Sequence[Words]]) -> None:
        counts = [[_ngrams(caption) for caption in captions] for captions in references]
        self._images = math.log(max(len(references), 1))
        self._seen = Counter(ngram for captions in counts for ngram in set().union(*captions))
        self._references = [[self._vector(caption) for caption in captions] for captions in counts]

    def __call__(self, image: int, caption: Words) -> float:
        """The score of ``caption`` for image number ``image`` of the corpus: 0 to 10."""
        vector, norms, length = self._vector(_ngrams(caption))
        total = 0.0
        for reference, reference_norms, reference_length in self._references[image]:
            dots = [0.0] * _ORDERS
            for ngram, weight in vector.items():
                if (other := reference.get(ngram)) is not None:
                    dots[len(ngram) - 1] += min(weight, other) * other
            products = zip(dots, norms, reference_norms, strict=True)
            cosines = sum(dot / (a * b) for dot, a, b in products if a and b)
            total += cosines * math.exp(-((length - reference_length) ** 2) / (2 * _SIGMA**2))
        return 10 * total / (_ORDERS * len(self._references[image]))

    def _vector(self, counts: Counter[tuple[str, ...]]) -> tuple[dict[tuple[str, ...], float], list[float], int]:
        seen = self._seen
        weights = {ngram: count * (self._images - math.log(max(1, seen[ngram]))) for ngram, count in counts.items()}
        squares = [0.0] * _ORDERS
        for ngram, weight in weights.items():
            squares[len(ngram) - 1] += weight**2
        pairs = sum(count for ngram, count in counts.items() if len(ngram) == 2)  # the package's measure of length
        return weights, [math.sqrt(square) for square in squares], pairs


def score(references: Mapping[str, Sequence[str]], captions: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """Scores by name of captions, by image, both tokenised with blanks between words; a line about each that failed."""
    absent = unavailable()
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.spice.spice import Spice

    if references.keys() != captions.keys():
        odd = sorted(references.keys() ^ captions.keys())[0]
        raise UserError(f"Captions and references should be of the same images; {odd!r} is only in one of them.")
    truth = {image: list(texts) for image, texts in references.items()}
    candidates = {image: [text] for image, text in captions.items()}
    scores: dict[str, float] = {}
    failed: list[str] = []
    bleu = (("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"), Bleu)
    others = (("ROUGE-L",), Rouge), (("CIDEr-D",), Cider), (("METEOR",), Meteor), (("SPICE",), Spice)
    for names, scorer in (bleu, *others):
        if names[0] in absent:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the package prints as it goes
                value: Any = scorer().compute_score(truth, candidates)[0]
        except Exception as error:  # a Java program that fails shows itself in many ways
            if names[0] not in ("METEOR", "SPICE"):
                raise
            failed.append(f"{names[0]} is left out: it failed ({type(error).__name__}: {str(error)[:80]}).")
            continue
        scores.update(zip(names, value if isinstance(value, list) else [float(value)], strict=True))
    return {name: float(value) for name, value in scores.items()}, failed


def unavailable() -> dict[str, str]:
    """Scores that cannot be computed on this machine, each with a line that says why."""
    with require_extra("captioning", "Scoring captions"):
        import pycocoevalcap.spice
    if shutil.which("java") is None:
        return {name: f"{name} is left out: it needs Java, which is not installed." for name in ("METEOR", "SPICE")}
    models = Path(pycocoevalcap.spice.__path__[0]) / "lib" / "stanford-corenlp-3.6.0-models.jar"
    if models.is_file():
        return {}
    fetch = f"run python {models.parents[1] / 'get_stanford_models.py'} to fetch them"
    return {"SPICE": f"SPICE is left out: its models are not there; {fetch}."}  # nothing here downloads unasked


def _ngrams(words: Words) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for n in range(1, _ORDERS + 1) for i in range(len(words) - n + 1))
