"""A small random transformer of ten words, and texts of them, in place of a sentence model."""

from typing import Any

import torch

WORDS = ["[PAD]", "[UNK]", "few", "some", "many", "dogs", "cats", "in", "the", "snow"]
TEXTS = [f"{WORDS[2 + row % 3]} {WORDS[5 + row % 2]} in the snow"[: 14 + 9 * (row % 2)] for row in range(60)]
LABELS = [float(row % 3) for row in range(60)]


def tiny_transformer() -> tuple[Any, Any]:
    """A small random transformer with its tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: row for row, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, **sizes)), tokenizer
