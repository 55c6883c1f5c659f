"""A user's own texts as vectors: each row's text through a sentence model, with a label from other columns."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from cml.data.input_form import InputForm
from cml.data_prep.labelled_rows import LabelledRows, Rows
from cml.data_prep.row_files import cell
from cml.errors import DataError
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors


@dataclass(frozen=True)
class Text(LabelledRows):
    """Your own texts and labels, as sentence vectors of the packaged model all-MiniLM-L6-v2.

    Command: cml prepare text --source reviews.csv --text-column review --label-columns stars --out DIR

    Input: a CSV, JSONL or Parquet file with a row for each text. The texts become vectors of 384 numbers, by the model
    of the extra sentences, which needs no download. They are stored in the dataset, so that training needs no extra.
    With --kind captions and the same column as label, texts are compared by the Word Mover's Distance.

    Licence: yours.
    """

    text_column: str = field(default="text", kw_only=True)
    """Column with the text."""
    model: str = field(default=PACKAGED, kw_only=True)
    """Sentence model: all-minilm-l6-v2, the folder of a sentence-transformers model, or its name on the Hugging Face
    hub, which is downloaded."""

    @property
    def described_columns(self) -> tuple[str, ...]:
        """See ``LabelledRows.described_columns``."""
        return tuple(dict.fromkeys([*super().described_columns, self.text_column]))

    def form(self) -> InputForm:
        """See ``LabelledRows.form``."""
        return InputForm("vectors", (len(next(row for row in self._vectors if not isinstance(row, DataError))),))

    def read_vectors(self) -> Iterator[Rows | DataError]:
        """See ``LabelledRows.read_vectors``."""
        yield from self._vectors

    @functools.cached_property
    def _vectors(self) -> list[Rows | DataError]:
        texts: list[str | DataError] = []
        for where, row in self.read_table(self.described_columns):
            try:
                if isinstance(row, DataError):
                    raise row
                text = cell(row, self.text_column, where, option="--text-column")
                if not isinstance(text, str) or not text.strip():
                    raise DataError(f"{where}: {self.text_column} should be a text. Got {text!r:.80} instead.")
                texts.append(text)
            except DataError as error:
                texts.append(error)
        sound = [text for text in texts if isinstance(text, str)]
        if not sound:
            raise next(text for text in texts if isinstance(text, DataError))
        vectors = iter(sentence_vectors(self.model, sound))
        return [next(vectors) if isinstance(text, str) else text for text in texts]
