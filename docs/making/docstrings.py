"""Docstrings of the code as Markdown: sections, lists of arguments, formulas, examples."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from textwrap import dedent

HEADS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Examples", "Reference", "Source")
NAMED = re.compile(r"(?P<name>\*{0,2}[\w.\[\]]+): (?P<text>.*)")


def markdown(documented: object, args: str = "Settings") -> str:
    """The docstring of something as Markdown; its list of arguments is called ``args``."""
    lines = []
    for head, text in sections(inspect.getdoc(documented) or ""):
        if head:
            lines.append(f"**{args if head == 'Args' else head}**\n")
        lines.append(section(head, with_imports(text, documented) if head == "Example" else text))
    return "\n".join(lines).strip() + "\n"


def with_imports(example: str, documented: object) -> str:
    """An example that runs as it is pasted: it begins with imports of the names that its module has and it has not."""
    tree = ast.parse("".join(one.source for one in doctest.DocTestParser().get_examples(example)))
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    known = {node.id for node in named if not isinstance(node.ctx, ast.Load)}
    known |= {
        one.asname or one.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
    }
    home = vars(sys.modules[getattr(documented, "__module__", "builtins")])
    lines = set()
    for name in {node.id for node in named} - known:
        if name == "cml" or inspect.ismodule(home.get(name)):
            module = "cml" if name == "cml" else home[name].__name__
            lines.add(f"import {module}" if module == name else f"import {module} as {name}")
        elif name in home and name not in vars(builtins):
            lines.add(f"from {public_home(name, home)} import {name}")
    return "\n".join([*(f">>> {line}" for line in sorted(lines, reverse=True)), example])


def public_home(name: str, home: dict[str, object]) -> str:
    """The module that a name is imported from: ``cml.losses`` before ``cml.losses.log_ratio``."""
    module = str(getattr(home[name], "__module__", home["__name__"]))
    package = ".".join(module.split(".")[:2])
    return package if name in getattr(importlib.import_module(package), "__all__", ()) else module


def first_paragraph(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a docstring: ("", text before the first section), ("Args", text), .."""
    found = list(re.finditer(rf"^({'|'.join(HEADS)}):\n", text, re.MULTILINE))
    yield "", text[: found[0].start()] if found else text
    for place, one in enumerate(found, start=1):
        body = text[one.end() : found[place].start() if place < len(found) else len(text)]
        inside, outside = re.match(r"((?:[ \t]+[^\n]*\n?|\n)*)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        yield one[1], dedent(inside).strip(chr(10))
        if outside.strip():  # a paragraph after the section, which belongs to none
            yield "", outside


def section(head: str, text: str) -> str:
    """One part as Markdown."""
    if head in ("Example", "Examples"):
        return f"```pycon\n{text.strip()}\n```\n"
    if head in ("Args", "Attributes", "Raises"):
        return "\n".join(items(text)) + "\n"
    return blocks(text)


def items(text: str) -> Iterator[str]:
    """A list of named things, each with its indented text."""
    entry: list[str] = []
    for line in [*text.splitlines(), None]:
        if line is None or (line and not line[0].isspace()):
            if entry:
                yield item(" ".join(word.strip() for word in entry))
            entry = []
        if line is not None and line.strip():
            entry.append(line)


def item(text: str) -> str:
    """One entry of a list."""
    named = NAMED.fullmatch(text)
    return f"- `{named['name']}`: {inline(named['text'])}" if named else f"- {inline(text)}"


def blocks(text: str) -> str:
    """Paragraphs, where indented ones are formulas or code."""
    made = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        if paragraph.startswith("    "):
            made.append(f"```text\n{dedent(paragraph)}\n```\n")
        elif ">>>" in paragraph:
            made.append(f"```pycon\n{paragraph}\n```\n")
        else:
            made.append(inline(paragraph) + "\n")
    return "\n".join(made)


def inline(text: str) -> str:
    """Text whose code is between single backticks and whose other characters mean nothing to Markdown."""
    words = re.split(r"(``.*?``|`[^`]+`)", text, flags=re.DOTALL)
    return "".join(
        "`" + " ".join(word.strip("`").split()) + "`" if odd % 2 else re.sub(r"([*_\\<>\[\]$~|{}])", r"\\\1", word)
        for odd, word in enumerate(words)
    )
