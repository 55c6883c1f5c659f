"""A user's own texts, as they are or as vectors of a sentence model, with a label from other columns."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cml.data.dataset_info import TEXT
from cml.data.input_form import InputForm
from cml.data_prep.label_options import READING_OPTIONS, SPLIT_OPTIONS
from cml.data_prep.labelled_rows import LabelledRows, Rows
from cml.data_prep.row_files import cell
from cml.errors import DataError, UserError
from cml.word_vectors.sentence_model import sentence_vectors


@dataclass(frozen=True)
class Text(LabelledRows):
    """Your own texts and labels, for a backbone of texts, or as sentence vectors.

    Command: cml prepare text --source reviews.csv --text-column review --label-columns stars --out DIR

    Input: a CSV, JSONL or Parquet file with a row for each text. The texts are kept as they are, and cml train trains
    a sentence model on them: all-MiniLM-L6-v2 of the extra sentences, which needs no download, or another --backbone.
    With --model, they become vectors of that model, which are stored in the dataset, so that training needs no extra.
    With --kind captions and the same column as label, texts are compared by the Word Mover's Distance.

    Licence: yours.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": (
            *("source", "text_column", "model", "kind", "label_columns", "label_distance", "unit", "id_column"),
            *SPLIT_OPTIONS,
            "keep_columns",
        ),
        "reading": READING_OPTIONS,
    }

    text_column: str = field(default="text", kw_only=True)
    """Column with the text."""
    model: str = field(default="", kw_only=True)
    """Store vectors of this sentence model in place of the texts: all-minilm-l6-v2, the folder of a
    sentence-transformers model, or its name on the Hugging Face hub, which is downloaded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model and TEXT in self.keep_columns and self.text_column != TEXT:
            raise UserError(
                f"The dataset keeps the texts of {self.text_column!r} in its column {TEXT!r}: leave {TEXT!r} out of "
                "--keep-columns, or rename that column of the table."
            )

    @property
    def described_columns(self) -> tuple[str, ...]:
        """See ``LabelledRows.described_columns``."""
        return tuple(dict.fromkeys([*super().described_columns, self.text_column]))

    def form(self) -> InputForm:
        """See ``LabelledRows.form``."""
        if not self.model:
            return InputForm("texts")
        return InputForm("vectors", (len(next(row for row in self._vectors if not isinstance(row, DataError))),))

    def read_inputs(self) -> Iterator[Rows | str | DataError]:
        """See ``LabelledRows.read_inputs``."""
        yield from self._vectors if self.model else self._read_texts()

    def _read_texts(self) -> Iterator[str | DataError]:
        for where, row in self.read_table(self.described_columns):
            try:
                if isinstance(row, DataError):
                    raise row
                text = cell(row, self.text_column, where, option="--text-column")
                if not isinstance(text, str) or not text.strip():
                    raise DataError(f"{where}: {self.text_column} should be a text. Got {text!r:.80} instead.")
                yield text
            except DataError as error:
                yield error

    @functools.cached_property
    def _vectors(self) -> list[Rows | DataError]:
        texts = list(self._read_texts())
        sound = [text for text in texts if isinstance(text, str)]
        if not sound:
            raise next(text for text in texts if isinstance(text, DataError))
        vectors = iter(sentence_vectors(self.model, sound))
        return [next(vectors) if isinstance(text, str) else text for text in texts]
