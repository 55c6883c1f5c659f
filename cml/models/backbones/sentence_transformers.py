"""Models of sentence-transformers (the extra ``sentences``) as backbones of texts or images, end to end or frozen.

``sentence-transformers/all-MiniLM-L6-v2``, ``sentence-transformers/BAAI/bge-small-en-v1.5``, a folder, or a model in
Python: a ``SentenceTransformer``, or a transformer of ``transformers`` with its tokenizer. A saved model of cml keeps
the whole network in its folder ``backbone``, which ``SentenceTransformer`` and ``AutoModel`` open too.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

from cml.data.input_form import InputKind
from cml.errors import UserError
from cml.processes.device import to_device
from cml.storage.downloads import may_download
from cml.storage.json_file import read_json, write_json
from cml.word_vectors.sentence_model import open_sentence_model, without_bars

NAME = "sentence-transformers"
_MODULES = "modules.json"
_COMMON = {"Dense", "Dropout", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding", "Transformer"}
_SETTINGS = {
    "sentence_transformers.models.Transformer": "sentence_bert_config.json",
    "sentence_transformers.models.Pooling": "config.json",
}
_GRANTED = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}


class SentenceEncoder(nn.Module):
    """A ``SentenceTransformer`` as a module from texts or images to embeddings (B, F), by its own preprocessing.

    It takes a list of B strings, which it tokenises and pads; or pixels (B, 3, h, w) in 0..255, read at the run's image
    size, which its processor resizes to its own size and normalises.
    """

    mean: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0)  # with ``std``: pixels stay in 0..255
    std: ClassVar[tuple[float, ...]] = (1 / 255, 1 / 255, 1 / 255)
    saved_as: ClassVar[str] = NAME  # the name under which a saved model finds it again
    is_embedding: ClassVar[bool] = True  # distances of its features mean something before training

    def __init__(self, sentence_transformer: Any) -> None:  # noqa: ANN401 - of a library that may not be installed
        super().__init__()
        self.sentence_transformer = sentence_transformer
        self._warned = False

    @property
    def kinds(self) -> tuple[InputKind, ...]:
        """The kinds of inputs that it takes: texts, images or both."""
        there = getattr(self.sentence_transformer, "modalities", ("text",))
        names: dict[str, InputKind] = {"text": "texts", "image": "images"}
        return tuple(kind for name, kind in names.items() if name in there)

    @property
    def takes(self) -> InputKind:
        """The kind that its inputs are taken for where nothing else is said."""
        return (*self.kinds, "texts")[0]

    @property
    def features(self) -> int:
        """F, the number of its dimensions."""
        model = self.sentence_transformer
        count = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(count())

    def forward(self, inputs: list[str] | Tensor) -> Tensor:
        """Embeddings (B, F) of B texts, or of pixels (B, 3, h, w)."""
        model = self.sentence_transformer
        if isinstance(inputs, Tensor):
            levels = inputs.detach().round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
            batch = model.preprocess([Image.fromarray(pixels) for pixels in levels])
        else:
            prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
            batch = model.preprocess(inputs, prompt=prompt)
            self._warn_of_cut(batch)
        embeddings: Tensor = model(to_device(batch, next(self.parameters()).device))["sentence_embedding"]
        return embeddings

    def _warn_of_cut(self, batch: Mapping[str, Any]) -> None:
        """Say once that texts are longer than the model takes."""
        most, mask = self.sentence_transformer.max_seq_length, batch.get("attention_mask")
        if self._warned or most is None or not isinstance(mask, Tensor):
            return
        count = int((mask.sum(dim=1) >= most).sum())
        if count:
            self._warned = True
            warnings.warn(
                f"{count} of {len(mask)} texts of a batch reach the {most} tokens that the model takes: what follows "
                "is cut off. Set max_seq_length of the SentenceTransformer, or cut texts where it matters least.",
                stacklevel=2,
            )

    def save(self, folder: Path) -> None:
        """Write the network with its tokenizer, as sentence-transformers does."""
        with without_bars():
            self.sentence_transformer.save(str(folder), create_model_card=False)
        path = folder / _MODULES
        modules = read_json(path, _MODULES)
        for module in modules:
            kind = module["type"] = _name_for_all_versions(module["type"])
            if kind in _SETTINGS:
                _settle_for_all_versions(folder / module["path"] / _SETTINGS[kind])
        write_json(path, modules)


def _settle_for_all_versions(path: Path) -> None:
    """Leave out settings of version 5.4 that older ones take for granted, or name as they do."""
    settings = read_json(path, path.name)
    if settings.items() >= _GRANTED.items():
        settings = {name: value for name, value in settings.items() if name not in _GRANTED}
    if "embedding_dimension" in settings and isinstance(settings.get("pooling_mode"), str):
        settings["word_embedding_dimension"] = settings.pop("embedding_dimension")
    write_json(path, settings)


def _name_for_all_versions(kind: str) -> str:
    """The name by which versions 5 and 6 of the library know a module, whose own place differs between them."""
    library, name = kind.partition(".")[0], kind.rpartition(".")[2]
    return f"sentence_transformers.models.{name}" if library == "sentence_transformers" and name in _COMMON else kind


def sentence_encoder(
    model: str = "", weights: str = "imagenet", pretrained: bool = True, folder: Path | None = None
) -> nn.Module:
    """A model of sentence-transformers.

    Args:
        model: A name on the Hugging Face hub, or a folder; all-MiniLM-L6-v2 comes with the extra ``sentences``.
        weights: ``imagenet`` for the model's own weights, or ``none`` for random ones.
        pretrained: Load the weights; False if others follow.
        folder: The saved network of a trained model, which is opened in place of ``model``.
    """
    if folder is not None:
        _check_modules(folder)
        return SentenceEncoder(open_sentence_model(str(folder), download=False))
    if not model:
        raise UserError(f"Name the model of the backbone, as in '{NAME}/all-MiniLM-L6-v2'.")
    encoder = SentenceEncoder(open_sentence_model(model, download=may_download()))
    if weights not in ("imagenet", "none"):
        raise UserError(
            f"The backbone '{NAME}/{model}' has its own weights: set weights to 'imagenet' or 'none'. Got {weights!r}."
        )
    if weights == "none" and pretrained:
        for module in encoder.modules():
            reset = getattr(module, "_init_weights", None)  # of the models of transformers
            if callable(reset):
                with torch.no_grad():
                    module.apply(reset)
                break
    return encoder


def _check_modules(folder: Path) -> None:
    """Refuse a stranger's folder whose modules are not those of sentence-transformers."""
    modules = read_json(folder / _MODULES, "the list of modules")
    names = [one.get("type") for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    foreign = next((name for name in names if not str(name).startswith("sentence_transformers.")), None)
    if not names or foreign is not None:
        raise UserError(f"{folder / _MODULES} names {foreign!r}, no module of sentence-transformers.")


def wrap_foreign(backbone: Any) -> Any:  # noqa: ANN401 - what a user gives as backbone
    """Make a module of a ``SentenceTransformer``, or of a transformer with its tokenizer; leave others as they are."""
    if isinstance(backbone, tuple | list) and len(backbone) == 2 and isinstance(backbone[0], nn.Module):
        return SentenceEncoder(_join_tokenizer(*backbone))
    libraries = {kind.__module__.partition(".")[0] for kind in type(backbone).__mro__}
    if "sentence_transformers" in libraries:
        return SentenceEncoder(backbone)
    if "transformers" in libraries:
        raise UserError(
            "A transformer needs its tokenizer to take texts: give both, backbone=(model, tokenizer). With images or "
            "tensors give a module that returns one row of features per input."
        )
    return backbone


def _join_tokenizer(network: nn.Module, tokenizer: Any) -> Any:  # noqa: ANN401
    """Make a ``SentenceTransformer`` of a transformer and its tokenizer, whose features are the mean of the tokens."""
    import tempfile

    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
    except ImportError:
        from cml.errors import install_hint

        raise UserError(f"A transformer with its tokenizer needs an extra: {install_hint('sentences')}") from None
    if not hasattr(network, "save_pretrained") or not callable(tokenizer):
        raise UserError(
            "backbone=(model, tokenizer) takes a model of transformers and its tokenizer. Got "
            f"{type(network).__name__} and {type(tokenizer).__name__} instead."
        )
    vocabulary = network.get_input_embeddings()  # type: ignore[operator]
    if len(tokenizer) > vocabulary.num_embeddings:
        raise UserError(
            f"The tokenizer knows {len(tokenizer):,} tokens, the model {vocabulary.num_embeddings:,}: give the "
            "tokenizer that the model was trained with."
        )
    with tempfile.TemporaryDirectory() as folder, without_bars():  # the library makes its modules of folders alone
        network.save_pretrained(folder)  # type: ignore[operator]
        tokenizer.save_pretrained(folder)
        first = Transformer(folder)
    with torch.no_grad():
        first.to(next(network.parameters()).dtype)
    return SentenceTransformer(modules=[first, Pooling(first.get_embedding_dimension())], device="cpu")
