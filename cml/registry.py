"""Registries of everything that has a name: label distances, losses, samplers, backbones, tasks, data sources.

An entry is an object or "module:attribute", which is imported on first use, so that listing names is fast. ``Choice``
is how a command line, a recipe and a saved config write an entry with its settings:
``log-ratio(weights=rank, floor_quantile=0.05)``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast

from cml.errors import UserError, did_you_mean

T = TypeVar("T")
E = TypeVar("E")
registries: list[Registry[Any]] = []  # all registries
loading: ContextVar[str] = ContextVar("loading", default="")  # name of the plugin that is being loaded
_MOST_NESTED = 8  # choices within choices: each level quotes the texts of the next, which doubles their length
_nested: ContextVar[int] = ContextVar("nested", default=0)  # choices that are being made, one within another
_WORD = r"\w[\w.-]*"
_CHOICE = re.compile(rf"\s*(?P<name>[\w.-]+|{_WORD}(?:/{_WORD})+)\s*(?:\((?P<settings>.*)\))?\s*", re.DOTALL)
NAME = re.compile(r"[\w.-]+")
_QUOTED = r"'(?:\\.|[^'\\])*'" + r'|"(?:\\.|[^"\\])*"'
_HYPHENED = re.compile(rf"(?P<quoted>{_QUOTED})|(?<![\w.])(?P<word>[A-Za-z_][\w.]*(?:-[\w.]+)+)")


@dataclass(frozen=True)
class Choice:
    """A registered name with settings, e.g. ``Choice("log-ratio", {"weights": "rank"})``."""

    name: str  # the registered name
    settings: Mapping[str, Any] = field(default_factory=dict)  # its settings by name

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Read ``name`` or ``name(key=value, ...)``."""
        match = _CHOICE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UserError(f"{reprlib.repr(text)} should read 'name' or 'name(setting=value, ...)'.")
        inside = match["settings"]
        if inside is None or not inside.strip():
            return cls(match["name"])
        quoted = _HYPHENED.sub(lambda match: match["quoted"] or repr(match["word"]), inside)
        try:
            call: Any = ast.parse(f"f({quoted})", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            call = None
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if named and _count_nested(call) > _MOST_NESTED:
            raise _nested_error(text)
        settings = _keywords(call, text) if named else None
        listed = call.args if named else []
        if settings is None or (listed and match["name"] not in _LISTED):
            raise UserError(f"{text!r} should read 'name(setting=value, ...)'; {inside!r} is not a list of settings.")
        if listed:
            setting, parse_value = _LISTED[match["name"]]
            settings[setting] = [parse_value(value, text) for value in listed]
        return cls(match["name"], settings)

    def __str__(self) -> str:
        """The text that ``parse`` reads back."""
        if not self.settings:
            return self.name
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"


class Registry(Generic[T]):
    """The named entries of one kind: from its arguments, decorators, plugins and installed packages."""

    def __init__(self, kind: str, entries: Mapping[str, str | Callable[..., T]], group: str = "") -> None:
        self.kind = kind
        self._entries: dict[str, Any] = dict(entries)
        self._origins: dict[str, str] = {}
        self._unread_group = group
        registries.append(self)

    def register(self, name: str) -> Callable[[E], E]:
        """Decorator that adds a class or function under ``name``.

        A definition that runs again, such as a notebook cell, replaces the earlier one.

        Args:
            name: The name.

        Returns:
            The decorator, which returns the class or function unchanged.

        Raises:
            UserError: the name is taken by something else, or has characters that a choice cannot hold.
        """
        if not NAME.fullmatch(name):
            rule = "must consist of letters, digits, '_', '-' and '.'"
            raise UserError(f"The name of a {self.kind} {rule}. Got {name!r} instead.")

        def add(entry: E) -> E:
            if name in self._entries and not _is_same(self._entries[name], entry):
                by = f" by {self.origin(name)}" if self.origin(name) else ""
                raise UserError(f"The {self.kind} name {name!r} is already taken{by}; choose another.")
            module = entry.__module__ if hasattr(entry, "__qualname__") else ""
            self._entries[name] = entry
            self._origins[name] = loading.get() or ("" if _is_own(module) else module)
            return entry

        return add

    def names(self) -> list[str]:
        """All names, sorted, with those of installed packages."""
        self._read_group()
        return sorted(self._entries)

    def origin(
        self, name: str
    ) -> str:  # the plugin, package or module; "" for cml's own names, those of a script and unknown ones
        """Tell who registered a name."""
        return self._origins.get(name, "")

    def origins(self) -> Mapping[str, str]:
        """Names to the plugins and packages that registered them."""
        self._read_group()
        return self._origins

    def entry(self, name: str) -> Callable[..., T]:
        """Return the class or function that is registered under a name."""
        if name not in self._entries:
            self._read_group()
        if name not in self._entries:
            hint = did_you_mean(name, self._entries)
            raise UserError(f"Unknown {self.kind} {name!r}.{hint} Known: {', '.join(self.names())}.")
        entry = self._entries[name]
        if isinstance(entry, str):
            imported = self._import(name, entry)
            if self._entries[name] == entry:  # unless the module has just registered it by a decorator
                self._entries[name] = imported
        registered: Callable[..., T] = self._entries[name]
        return registered

    def _import(self, name: str, entry: str) -> Callable[..., T]:
        module, _, attribute = entry.partition(":")
        before = loading.set(self.origin(name))
        try:
            return cast("Callable[..., T]", attrgetter(attribute)(importlib.import_module(module)))
        except (ImportError, AttributeError) as error:
            if not self.origin(name):
                raise
            fault = f"The {self.kind} {name!r} of an installed package cannot be imported from {entry!r}: {error}."
            raise UserError(f"{fault} Mend or uninstall that package.") from error
        finally:
            loading.reset(before)

    def _read_group(self) -> None:
        if not self._unread_group:
            return
        for point in entry_points(group=self._unread_group):
            taken = self._entries.setdefault(point.name, point.value)
            if taken is point.value:
                self._origins[point.name] = "" if _is_own(point.module) else point.module
            elif not _is_same(point.value, taken):
                package, other = point.dist.name if point.dist else point.module, self.origin(point.name) or "cml"
                conflict = f"The installed package {package!r} registers a {self.kind} {point.name!r}"
                raise UserError(f"{conflict}, a name that {other} has taken: uninstall one, or rename it.")
        self._unread_group = ""

    def describe(self, name: str) -> str:
        """Describe an entry by the defaults of its settings and its documentation."""
        entry = self.entry(name)
        words = [
            setting.name if setting.default is setting.empty else f"{setting.name}={setting.default}"
            for setting in inspect.signature(entry).parameters.values()
        ]
        about = (inspect.getdoc(entry) or "").replace("``", "`")
        return f"{name}({', '.join(words)})\n\n{about}".rstrip()

    def get(self, choice: str | Choice, /, **settings: object) -> T:
        """Make what a choice names: ``get("log-ratio(weights=rank)")``, or ``get("log-ratio", weights="rank")``.

        Args:
            choice: The choice, or its text.
            **settings: Further settings, as the signature of the entry has them.

        Returns:
            The object.

        Raises:
            UserError: unknown name or setting, a setting given twice, or a setting's value that the entry refuses.
        """
        choice = choice if isinstance(choice, Choice) else Choice.parse(choice)
        if twice := [key for key in settings if key in choice.settings]:
            again = settings[twice[0]]
            raise UserError(f"The setting {twice[0]!r} is given twice: in {str(choice)!r} and as {again!r}.")
        name, settings = choice.name, {**choice.settings, **settings}
        entry = self.entry(name)
        known = inspect.signature(entry).parameters
        subject = f"The {self.kind} {name!r}"
        if unknown := [key for key in settings if key not in known]:
            raise UserError(f"{subject} has no setting {unknown[0]!r}. It has: {', '.join(known) or 'none'}.")
        for key, parameter in known.items():
            required = parameter.default is parameter.empty and not str(parameter).startswith("*")
            if required and key not in settings:
                raise UserError(f"{subject} needs the setting {key!r}: write {name}({key}=...).")
        if _nested.get() >= _MOST_NESTED:
            raise _nested_error(str(Choice(name, settings)))
        outer = _nested.set(_nested.get() + 1)
        try:
            return entry(**settings)
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            if not settings:
                raise
            text = str(Choice(name, settings))
            raise UserError(f"The {self.kind} {reprlib.repr(text)} cannot be made: {error}.") from error
        finally:
            _nested.reset(outer)

    make = get


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in ("cml", "__main__")


def _is_same(taken: object, entry: object) -> bool:
    """Whether an entry is the one that already has its name: the same object, or the same definition run again."""
    if not isinstance(taken, str):
        words = [(getattr(it, "__module__", ""), getattr(it, "__qualname__", "<")) for it in (taken, entry)]
        return taken is entry or (words[0] == words[1] and "<" not in words[0][1])
    module, _, attribute = taken.partition(":")  # the package may also register it by a decorator
    if entry in (taken, getattr(sys.modules.get(module), attribute, taken)) or loading.get() == module:
        return True
    return module.partition(".")[0] == getattr(entry, "__module__", "").partition(".")[0]


def _count_nested(node: ast.AST) -> int:
    """Number of calls one within another, this one included."""
    deepest = max(map(_count_nested, ast.iter_child_nodes(node)), default=0)
    return deepest + isinstance(node, ast.Call)


def _nested_error(text: str) -> UserError:
    return UserError(f"{reprlib.repr(text)} is nested too deep; choices within choices may be {_MOST_NESTED} deep.")


def _keywords(call: ast.Call, text: str) -> dict[str, Any] | None:
    """The keyword arguments of a call; None if one is unnamed or given twice."""
    named = {word.arg for word in call.keywords}
    if None in named or len(named) < len(call.keywords):
        return None
    return {str(word.arg): _value(word.value, text) for word in call.keywords}


def _parse_weighted(node: ast.expr, text: str) -> str:
    """A part of a sum, as a string: ``cosent`` or ``0.3*cosent``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return f"{_value(node.left, text)}*{_value(node.right, text)}"
    return str(_value(node, text))


def _value(node: ast.expr, text: str) -> Any:  # noqa: ANN401 - any literal
    if isinstance(node, ast.Name):  # a bare word is a string: weights=rank
        return {"true": True, "false": False, "none": None}.get(node.id, node.id)
    if isinstance(node, ast.Call) and not node.args:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "value", None)
        if isinstance(name, str) and (settings := _keywords(node, text)) is not None:
            return str(Choice(name, settings))
    try:
        value = ast.literal_eval(node)
        if _is_plain(value):
            return value
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    fault = f"In {text!r} the value {ast.unparse(node)!r} is not a number, a word, a list or a quoted text."
    raise UserError(fault) from None


_LISTED = {"sum": ("parts", _parse_weighted), "mlp": ("widths", _value)}
"""The choices that may list the values of a setting without its name, as in ``mlp(512, 512)``."""


def _is_plain(value: object) -> bool:
    """Whether a literal holds only finite numbers, strings, true, false, none, lists, and dicts with string keys."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
