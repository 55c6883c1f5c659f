"""The word vectors of the scenes' captions, so that the embedded dataset needs no other package.

``scene_words.txt`` holds, in GloVe's text form, the vectors of the captions' words as GloVe 6B 50d has them;
scene_words.md beside it says whose they are. ``python -m cml.data_prep.drawn.scenes.words`` writes it anew. Not for:
other captions.
"""

import numpy as np

from cml.data_prep.drawn.scenes.captions import vocabulary
from cml.errors import DataError
from cml.word_vectors.open import PACKAGED, SCENE_WORDS, open_word_vectors


def glove_text() -> str:
    """The lines of scene_words.txt: a word and 50 numbers that read back as the same float32."""
    vectors = open_word_vectors(PACKAGED)
    rows = vectors.find(vocabulary())
    if missing := [word for word in vocabulary() if word not in rows]:
        raise DataError(
            f"The vectors {PACKAGED!r} lack the word {missing[0]!r} of the scenes' captions; choose another."
        )
    lines = []
    for word in vocabulary():
        numbers = vectors.rows(np.array([rows[word]]))[0].astype(np.float32)
        lines.append(" ".join([word, *(np.format_float_positional(number, trim="-") for number in numbers)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    SCENE_WORDS.write_text(glove_text(), encoding="utf-8", newline="\n")
