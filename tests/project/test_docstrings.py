"""What users call is documented in full, and internals in one line: the rule is in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from making import docstrings, pages  # noqa: E402

PACKAGES = ("cml", "data_prep", "tasks")
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)
IMPORT = re.compile(r"^(?:>>> )?from (cml[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def _documented() -> Iterator[Any]:
    """What the API pages and the pages of registered parts list, and what pages import: contracts of plugins."""
    for names in pages.INTERFACE.values():
        yield from (getattr(cml, name) for name in names)
    for name in filter(lambda name: inspect.ismodule(getattr(cml, name)), cml.__all__):
        yield from (getattr(getattr(cml, name), member) for member in pages.public(getattr(cml, name)))
    for registry in (cml.losses.registry, *(get() for get, _, _ in pages.KINDS.values())):
        yield from map(registry.entry, registry.names())
    for page in (ROOT / "docs").glob("*/*.md"):
        for module, names in IMPORT.findall(page.read_text("utf-8")):
            yield from (getattr(importlib.import_module(module), name.split()[0], None) for name in names.split(","))


def _place(thing: Any) -> tuple[str, str]:  # noqa: ANN401 - a class, function, method or property
    """File and qualified name."""
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    thing = thing.fget if isinstance(thing, property) else thing
    return str(Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT)), thing.__qualname__


@functools.cache
def _public() -> dict[tuple[str, str], Any]:
    """Public classes, functions and methods by their places; a method that overrides another has its text there."""
    things = [thing for thing in _documented() if pages.is_documented(thing) and thing.__module__.startswith("cml")]
    found = {_place(thing): thing for thing in things}
    for thing in filter(inspect.isclass, things):
        for key, owner in pages.members(thing):
            bases = (base for base in owner.__mro__[1:-1] if key != "forward" or base.__module__.startswith("cml"))
            if not any(key in vars(base) for base in bases):
                found[_place(vars(owner)[key])] = vars(owner)[key]
    return found


@functools.cache
def _made_by_name() -> frozenset[Any]:
    """Sources and backbones, whose pages say how they are written, beside their settings."""
    registries = [pages.KINDS[kind][0]() for kind in ("sources", "backbones")]
    return frozenset(registry.entry(name) for registry in registries for name in registry.names())


@functools.cache
def _definitions(package: str) -> list[tuple[str, str, ast.FunctionDef | ast.ClassDef]]:
    """File, qualified name and tree of all functions and classes of a package."""
    return [
        definition
        for path in sorted((ROOT / package).rglob("*.py"))
        for definition in _definitions_in(ast.parse(path.read_text("utf-8")), str(path.relative_to(ROOT)), "")
    ]


def _definitions_in(tree: ast.AST, file: str, outer: str) -> Iterator[tuple[str, str, Any]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield file, outer + node.name, node
            inner = f"{outer}{node.name}." + ("<locals>." if isinstance(node, ast.FunctionDef) else "")
            yield from _definitions_in(node, file, inner)
        elif isinstance(node, ast.stmt | ast.excepthandler):  # no expression has one inside
            yield from _definitions_in(node, file, outer)


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_internals_have_no_sections(package: str) -> None:
    wrong = [
        f"{file}:{name}"
        for file, name, node in _definitions(package)
        if (file, name) not in _public() and SECTION.search(ast.get_docstring(node) or "")
    ]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_what_users_call_is_documented_in_full(package: str) -> None:
    wrong = {
        f"{file}:{name}": missing
        for file, name, node in _definitions(package)
        if (file, name) in _public() and (missing := _missing(file, name, node))
    }
    assert not wrong


def _first(node: ast.FunctionDef) -> str:
    """The name of the first parameter; "" for none."""
    return node.args.args[0].arg if node.args.args else ""


def _missing(file: str, name: str, node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """What the docstring of a public name lacks; a class gives the example for its methods."""
    thing, (outer, dot, _) = _public()[file, name], name.rpartition(".")
    if isinstance(thing, property) or (dot and (file, outer) not in _public()):
        return []
    texts = [inspect.getdoc(base) or "" for base in (thing.__mro__[:-1] if inspect.isclass(thing) else [thing])]
    parts = [dict(docstrings.sections(text)) for text in texts]
    text = "\n".join(part.get(head, "") for part in parts for head in ("Args", "Attributes"))
    named = {*re.findall(r"^\*{0,2}(\w+)\b[^:\n]*:", text, re.MULTILINE), *docstrings.field_texts(thing)}
    has_example = any({"Example", "Examples"} & {*part} for part in parts)
    is_method = bool(dot) or (isinstance(node, ast.FunctionDef) and _first(node) == "self")  # in a file of its own
    missing = [] if is_method or has_example or thing in _made_by_name() else ["Example"]
    if isinstance(node, ast.ClassDef):
        if inspect.isabstract(thing) or getattr(thing, "_is_protocol", False) or issubclass(thing, BaseException):
            return []
        if "options" in named:  # of TrainConfig, where each has its text
            return missing
        return [*missing, *(name for name in inspect.signature(thing).parameters if name not in named)]
    sections = parts[0]
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    missing += [name for name in names if name not in ("self", "cls") and name not in named]
    if thing in _made_by_name():
        return missing
    returns = node.returns is not None and ast.unparse(node.returns) not in ("None", "NoReturn")
    if returns and names not in (["self"], ["cls"]) and not {"Returns", "Yields"} & {*sections}:
        missing.append("Returns")
    raised = [ast.unparse(one.exc) for one in ast.walk(node) if isinstance(one, ast.Raise) and one.exc is not None]
    if any("NotImplementedError" not in one for one in raised) and "Raises" not in sections:
        missing.append("Raises")
    return missing
