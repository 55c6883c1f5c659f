"""The word vectors of the scenes' captions, so that the embedded dataset needs no other package.

``python -m cml.data_prep.synthetic.scenes.words`` writes the packaged scene_words.txt anew: the vectors of the
captions' words as GloVe 6B 50d has them, in GloVe's text form. scene_words.md beside it states their licence.
"""

import numpy as np

from cml.data_prep.synthetic.scenes.captions import vocabulary
from cml.errors import DataError


def glove_text() -> str:
    """GloVe 6B 50d of the vocabulary, a word and 50 numbers a line, which read back as the same float32."""
    from cml.word_vectors.open import open_word_vectors
    from cml.word_vectors.word_vectors import PACKAGED

    vectors, words = open_word_vectors(PACKAGED), vocabulary()
    rows = vectors.find(words)
    if missing := [word for word in words if word not in rows]:
        lack = f"lack the word {missing[0]!r} of the scenes' captions; choose another"
        raise DataError(f"The vectors {PACKAGED!r} {lack}.")
    lines = []
    for word in words:
        numbers = vectors.rows(np.array([rows[word]]))[0].astype(np.float32)
        lines.append(" ".join([word, *(np.format_float_positional(number, trim="-") for number in numbers)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from cml.word_vectors.open import SCENE_WORDS

    SCENE_WORDS.write_text(glove_text(), encoding="utf-8", newline="\n")
