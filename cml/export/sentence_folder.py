"""The files by which ``SentenceTransformer(folder)`` loads a model of cml from its own folder.

Of a model of texts, the modules are those of sentence-transformers alone: its network, a linear map and the
normalisation. All others are one module of cml. Where queries have a network of their own, a ``Router`` chooses between
the modules of both folders.
"""

from pathlib import Path
from typing import Any

from torch import nn

from cml.models.embedding import EmbeddingModel
from cml.storage.json_file import read_json, write_json
from cml.training.saved_model import BACKBONE, save_tensors

MODULES, CONFIG = "modules.json", "config_sentence_transformers.json"
HEAD, NORMALIZE = "head", "normalize"
QUERIES = "queries"  # the folder of the network of queries, in that of the documents'
_MODULE = "cml.sentence_transformers.module.Embedding"
# names that every version of the library knows
_DENSE, _NORMALIZE = "sentence_transformers.models.Dense", "sentence_transformers.models.Normalize"
_ROUTER, _ROUTES = "sentence_transformers.models.Router", "router_config.json"  # from 5.0 on


def write_sentence_folder(folder: Path, model: EmbeddingModel) -> None:
    """Add the files to the folder of a saved model."""
    config: dict[str, Any] = {"default_prompt_name": None}
    modules: list[dict[str, Any]] = [{"path": "", "type": _MODULE}]
    below = folder / BACKBONE
    is_of_texts = model.config.inputs.kind == "texts"  # images are read by cml before the network's own preprocessing
    if is_of_texts and (below / MODULES).is_file() and type(model.head) is nn.Linear:
        config |= {name: value for name, value in read_json(below / CONFIG, CONFIG).items() if name != "model_type"}
        known = read_json(below / MODULES, MODULES)
        modules = [{**one, "path": "/".join(filter(None, [BACKBONE, one["path"]]))} for one in known]
        modules.append({"path": HEAD, "type": _DENSE})
        _write_head(folder / HEAD, model.head)
        if model.config.normalize:
            modules.append({"path": NORMALIZE, "type": _NORMALIZE})
            (folder / NORMALIZE).mkdir(exist_ok=True)
            write_json(folder / NORMALIZE / "config.json", {})
    prompts = config.get("prompts", {})
    prompt = prompts.get(config["default_prompt_name"]) or ""  # of all texts that it learned from, on whatever side
    config["prompts"] = {**prompts, "query": prompt, "document": prompt}
    config["similarity_fn_name"] = "cosine" if model.config.normalize else "euclidean"
    write_json(folder / MODULES, [{**one, "idx": row, "name": str(row)} for row, one in enumerate(modules)])
    write_json(folder / CONFIG, config)


def write_routes(folder: Path) -> None:
    """Let ``encode_query`` take the network of queries, and all else that of documents, once both are written."""
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    prompts: dict[str, str] = {}
    for side, below in (("query", QUERIES), ("document", "")):
        modules = read_json(folder / below / MODULES, MODULES)
        paths = ["/".join(filter(None, [below, one["path"]])) for one in modules]
        types |= {path: one["type"] for path, one in zip(paths, modules, strict=True)}
        structure[side] = paths
        config = read_json(folder / below / CONFIG, CONFIG)
        prompts[side] = config["prompts"][side]
    routes = {"types": types, "structure": structure, "parameters": {"default_route": "document"}}
    write_json(folder / _ROUTES, routes)
    write_json(folder / MODULES, [{"path": "", "type": _ROUTER, "idx": 0, "name": "0"}])
    write_json(folder / CONFIG, {**config, "prompts": prompts, "default_prompt_name": "document"})


def _write_head(folder: Path, head: nn.Linear) -> None:
    folder.mkdir(exist_ok=True)
    identity = "torch.nn.modules.linear.Identity"
    shape = {"in_features": head.in_features, "out_features": head.out_features, "bias": True}
    write_json(folder / "config.json", shape | {"activation_function": identity})
    save_tensors(folder / "model.safetensors", {"linear.weight": head.weight, "linear.bias": head.bias})
