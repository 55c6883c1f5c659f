"""Features of texts by a frozen backbone: each text is embedded once, and its features are kept in the cache.

A network has a folder in the cache with a file for each call that embedded new texts: the digests of the texts, and
their features. A file has the name of its own SHA-256, so that a damaged one is told and deleted.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.models.embedding import EmbeddingModel
from cml.models.weights import weights_fingerprint
from cml.storage.atomic import atomic_file, delete
from cml.storage.downloads import cache_folder
from cml.storage.regular_file import text_path

_KEYS, _FEATURES = "keys", "features"  # (N, 32) uint8 and (N, F) float32


def frozen_text_features(
    model: EmbeddingModel,
    texts: Sequence[str],
    *,
    bar: str = "",  # title of a progress bar; "" for none
) -> Float32:  # features (N, F), those of ``model.extract``
    """Compute the features of texts, or read them from the cache if the weights are published ones."""
    if model.config.weights == "none" or not len(texts):
        return model.extract(list(texts), bar=bar)
    folder = cache_folder() / "features" / f"texts-{weights_fingerprint(model.backbone, repr(model.backbone))[:32]}"
    keys = [hashlib.sha256(text.encode(errors="surrogatepass")).digest() for text in texts]
    known = _read(folder, {*keys})
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if new:
        features = model.extract([*new.values()], bar=bar)
        _write(folder, [*new], features)
        known.update(zip(new, features, strict=True))
    return np.stack([known[key] for key in keys])


def _read(folder: Path, wanted: set[bytes]) -> dict[bytes, Float32]:
    """The features (F,) of those of the texts that the folder has."""
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load

    known: dict[bytes, Float32] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with text_path(path) as name, safe_open(name, "np") as file:
                keys = [bytes(key) for key in file.get_tensor(_KEYS)]
            if wanted.isdisjoint(keys):
                continue
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != path.stem:
                raise ValueError("The file is damaged.")
            features = load(content)[_FEATURES]
        except (SafetensorError, ValueError, KeyError, OSError):
            delete(path)
            continue
        known.update({key: row for key, row in zip(keys, features, strict=True) if key in wanted})
    return known


def _write(folder: Path, keys: list[bytes], features: Float32) -> None:
    """Keep features; a cache that cannot be written costs only time."""
    from safetensors.numpy import save

    digests = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1)
    content = save({_KEYS: digests, _FEATURES: np.ascontiguousarray(features, np.float32)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / f"{hashlib.sha256(content).hexdigest()}.safetensors") as temporary:
            temporary.write_bytes(content)
    except OSError:
        return
