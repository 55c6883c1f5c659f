"""Plugins: files or modules of a user that register distances, losses, samplers, backbones, sources or tasks.

A plugin is only loaded if the user asks for it, by ``--plugin`` or ``cml.load_plugin``. A run holds the names and
hashes of the plugins that it needs; opening an untrusted run imports none of them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import shlex
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from cml.errors import UserError
from cml.registry import loading, registries

_loaded: dict[str, Plugin] = {}  # by name
_sources: dict[str, None] = {}  # as the user gave them


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin."""

    name: str  # the name of its file or module
    sha256: str  # the hash of its code (see ``cml.plugins``)


def load(source: str | Path) -> Plugin:
    """Import a plugin, which registers its parts.

    A file gets a module name of its own. Forked workers know what it registers; a spawned worker has to load it again.
    Loading an unchanged file a second time does nothing.

    Args:
        source: A Python file, or the name of a module that can be imported.

    Returns:
        The plugin.

    Raises:
        UserError: there is no such file or module, its code fails, or it registers nothing.

    Example:
        >>> import cml.plugins
        >>> cml.plugins.load("nowhere.py")
        Traceback (most recent call last):
        cml.errors.UserError: There is no plugin nowhere.py: give a Python file or the name of a module.
    """
    path = Path(source)
    is_file = path.suffix == ".py" or path.exists()
    name = path.name if is_file else str(source)
    if is_file and not path.is_file():
        raise UserError(f"There is no plugin {source}: give a Python file or the name of a module.")
    if is_file and _loaded.get(name) == Plugin(name, hash_content(path.read_bytes())):
        return _loaded[name]
    before = loading.set(name)
    try:
        module = _run(path.resolve()) if is_file else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UserError(f"There is no plugin {name}: give a Python file or the name of a module.") from None
        raise UserError(_failure(name, error)) from error
    except (Exception, SystemExit) as error:
        raise UserError(_failure(name, error)) from error
    finally:
        loading.reset(before)
    origins = {origin for registry in registries for origin in registry.origins().values()}
    if not any(f"{origin}.".startswith(f"{name}.") for origin in origins):
        raise UserError(f"The plugin {name} registers nothing: use a decorator such as cml.losses.register(NAME).")
    _loaded[name], _sources[str(source)] = Plugin(name, hash_module(module)), None
    return _loaded[name]


def flags() -> str:
    """Write the options that load the same plugins on a command line."""
    return "".join(f" --plugin {shlex.quote(source)}" for source in _sources)


def sources() -> tuple[str, ...]:
    """List what loads the same plugins in another process."""
    return tuple(str(Path(source).resolve()) if Path(source).is_file() else source for source in _sources)


def plugin_file(name: str) -> Path | None:  # the file; None if the plugin is a module
    """Find the file of a loaded plugin."""
    return next((Path(source) for source in _sources if Path(source).name == name and Path(source).is_file()), None)


def required_plugins(*choices: str) -> tuple[tuple[str, str], ...]:
    """List the plugins and packages that registered the names in some choices."""
    words = {word for choice in choices for word in re.findall(r"[\w.-]+", choice)}
    origins = [registry.origins() for registry in registries]
    names = {by_name[word] for by_name in origins for word in words & by_name.keys()} - {""}
    return tuple((name, _hash_at_hand(name)) for name in sorted(names))


def explain_missing(saved: Iterable[tuple[str, str]]) -> str:  # a sentence for an error; "" if none is missing
    """Explain how to load the missing plugins of a run."""
    absent = [name for name, _ in saved if not _is_there(name)]
    if not absent:
        return ""
    flags = " ".join(f"--plugin {name}" for name in absent)
    calls = ", ".join(f"cml.load_plugin({name!r})" for name in absent)
    return f"It needs its author's own code; if you trust it, give {flags}, or in Python call {calls} or import it."


def explain_changes(saved: Iterable[tuple[str, str]]) -> str:  # a sentence for an error; "" if none has changed
    """Name the plugins of a run whose code has changed."""
    others = [name for name, sha256 in saved if _is_there(name) and _hash_at_hand(name) not in ("", sha256)]
    return f"The code of {', '.join(others)} has changed since the run was trained." if others else ""


class _SourceLoader(SourceFileLoader):
    """Compiles a file each time: stored bytecode of a file that changed within a second may be that of its old text."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file as it is now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _run(file: Path) -> ModuleType:
    """Run a file as a module, whose name depends on its path, so that no two files share one."""
    place = hash_content(str(file).encode())[:8]
    name = f"cml_plugin_{place}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_SourceLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _failure(name: str, error: BaseException) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return f"The plugin {name} cannot be read: {error.filename}, line {error.lineno}: {error.msg}."
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if frame.filename != __file__ and "importlib" not in frame.filename]
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    cause = message.rstrip(".") if isinstance(error, UserError) else f"{type(error).__name__}: {message}"
    return f"The plugin {name} fails at {last.filename}, line {last.lineno}: {cause}."


def _module_at_hand(name: str) -> ModuleType | None:
    module = sys.modules.get(name.removesuffix(".py"))
    if name.endswith(".py") and Path(getattr(module, "__file__", None) or "").name != name:
        return None
    return module


def _is_there(name: str) -> bool:
    at_hand = name in _loaded or f"{name}.py" in _loaded or _module_at_hand(name) is not None
    return at_hand or any(name in registry.origins().values() for registry in registries)


def _hash_at_hand(name: str) -> str:
    """The hash of a loaded plugin or imported module; "" if there is none."""
    if plugin := _loaded.get(name) or _loaded.get(f"{name}.py"):
        return plugin.sha256
    module = _module_at_hand(name)
    return "" if module is None else hash_module(module)


def hash_content(content: bytes) -> str:
    """Hash the content of a file."""
    return hashlib.sha256(content).hexdigest()


def hash_module(
    module: ModuleType,
) -> str:  # the SHA-256 of the module's file, or of the names and contents of a package's Python files
    """Hash the code of a module or package."""
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if folders:
        files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
        return hash_content(b"".join(file.name.encode() + file.read_bytes() for file in files))
    file = getattr(module, "__file__", None)
    return hash_content(Path(file).read_bytes()) if file else ""
