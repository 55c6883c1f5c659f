"""The cache folder, what may be a run, whether models may be downloaded, and the Hugging Face hub."""

import contextlib
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from cml.console.messages import say
from cml.errors import DataError, UserError, require_extra

_allowed: ContextVar[bool] = ContextVar("allowed", default=True)


def may_download() -> bool:
    """Tell whether a model that is not in the cache may be downloaded here."""
    return _allowed.get()


@contextlib.contextmanager
def names_of_a_run(*, allow_download: bool) -> Iterator[None]:
    """Mark a block in which names of models come from a run, which may be a stranger's."""
    before = _allowed.set(allow_download and _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(before)


def not_cached_error(model: str) -> UserError:
    """Make the error for a model that would have to be downloaded where that is not allowed."""
    return UserError(
        f"{model} is not in the cache, and opening a run downloads nothing by itself. To download it add "
        "--allow-download (in Python: allow_download=True)."
    )


_FILES = ("config.json", "model.safetensors")  # of a model
_OPTIONAL = ("calibration.json",)
# a network of texts with its tokenizer; no other files are ever fetched
_OF_BACKBONE = re.compile(r"backbone/(\w+/)?\w[\w.-]*\.(json|txt|model|safetensors)", re.ASCII)
_WHY = {
    "RepositoryNotFoundError": "has no such repository, or it is private (log in: hf auth login)",
    "RevisionNotFoundError": "has no such branch, tag or commit of it",
    "RemoteEntryNotFoundError": f"has no {' and '.join(_FILES)} there, which 'cml export hub' writes",
}


def resolve_run(run: Path | str) -> Path:
    """Find the folder of a run, which may lie on the Hugging Face hub.

    The commit of a branch or tag is printed; a commit needs no network once it is in the cache.
    """
    text = run if isinstance(run, str) else run.as_posix()
    if not text.startswith("hf:"):
        return Path(run)
    name, _, revision = text[3:].partition("@")
    hub = hub_client(name)
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    paths = [try_to_load_from_cache(name, file, revision=revision) for file in _FILES]
    if not (re.fullmatch("[0-9a-f]{40}", revision) and all(isinstance(path, str) for path in paths)):
        with _explain_hub_errors(f"{text} cannot be fetched"):
            # one request: without a network, each request of a download is retried for half a minute
            model = hub.model_info(name, revision=revision or None, timeout=10)
            there = {file.rfilename for file in model.siblings or ()}
            optional = tuple(sorted(file for file in there if file in _OPTIONAL or _OF_BACKBONE.fullmatch(file)))
            # the weights come last: a download that was killed is complete only if they are there
            paths = [hf_hub_download(name, file, revision=model.sha) for file in optional + _FILES]
    folder = Path(str(paths[0])).parent
    if folder.name != revision:
        say(f"{text} is at {folder.name}; hf:{name}@{folder.name} stays with it")
    return folder


def hub_client(name: str, kind: str = "model") -> Any:  # noqa: ANN401 - of a library that may not be installed
    """Make a client of the hub."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII):
        raise UserError(f"A repository on the hub must be named user/name. Got {name!r} instead.")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    with require_extra("hub" if kind == "model" else "datasets", f"The {kind} hf:{name}"):
        from huggingface_hub import HfApi
    return HfApi()


def latest_commit(
    name: str,
    revision: str,  # A branch or tag; "" for the newest commit
) -> str:
    """Look up a commit of a dataset on the hub."""
    hub = hub_client(name, "dataset")
    with _explain_hub_errors(f"The dataset hf:{name} cannot be read"):
        return str(hub.dataset_info(name, revision=revision or None, timeout=10).sha)


@contextlib.contextmanager
def explain_dataset_errors(name: str) -> Iterator[None]:
    """Turn whatever the library ``datasets`` raises, which has no common base class, into a ``DataError``."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = " ".join(str(error.__cause__ or error).split())[:300]
        raise DataError(f"The dataset hf:{name} cannot be read ({type(error).__name__}: {why}).") from None


def upload(folder: Path, name: str, *, private: bool) -> str:
    """Upload the files of a folder as one commit, to a repository that is made if it is missing."""
    hub = hub_client(name)
    from huggingface_hub import CommitOperationAdd

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [CommitOperationAdd(path.relative_to(folder).as_posix(), path) for path in paths]
    with _explain_hub_errors(f"{folder} was written, but cannot be pushed to {name} (log in: hf auth login)"):
        hub.create_repo(name, private=private or None, exist_ok=True)
        if private and not hub.model_info(name, timeout=10).private:
            raise UserError(f"{name} is public: nothing was pushed. Make it private there, or leave out --private.")
        return f"hf:{name}@{hub.create_commit(name, files, commit_message='Upload a model of cml').oid}"


@contextlib.contextmanager
def _explain_hub_errors(subject: str) -> Iterator[None]:
    """Turn whatever the hub, its client or the HTTP library raises into one line."""
    from huggingface_hub import constants

    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of three libraries, without a common base class
        cause = error.__cause__ or error
        why = f"did not answer as expected ({type(cause).__name__}: {' '.join(str(cause).split())[:200]})"
        why = next((_WHY[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _WHY), why)
        raise UserError(f"{subject}: {constants.ENDPOINT} {why}.") from None


def cache_folder() -> Path:
    """Return the folder for label distances, features and embeddings that are worth keeping but can be recomputed."""
    return Path(os.environ.get("CML_CACHE") or Path.home() / ".cache" / "cml")


MADE_BY = "give a run folder that 'cml train' made."


def check_shared_run(run: Path) -> None:
    """Refuse what is neither a folder nor the name of a run on the Hugging Face hub."""
    if not run.as_posix().startswith("hf:"):
        check_run_folder(run)


def check_run_folder(run: Path) -> None:
    """Refuse what is no folder."""
    if not run.is_dir():
        raise DataError(f"{run} is not a folder; {MADE_BY}")
