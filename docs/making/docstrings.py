"""Conversion of docstrings to Markdown: sections, lists of arguments, formulas, examples."""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from textwrap import dedent

HEADS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Examples", "Reference", "Source")
FORMULA, LEGEND = "@formula@", "@legend@"  # stand for what is put in when everything else is Markdown
SYMBOLS = (
    (r"\bD\(f\\_(\w), ?f\\_(\w)\)", r"$D(f_\1, f_\2)$"),
    (r"\bD\\_y\((\w), ?(\w)\)", r"$\\delta_{\1\2}$"),
    (r"\bD\\_y\((\w)\)", r"$\\delta_\1$"),
    (r"\bD\\_y", r"$\\delta$"),
    (r"\bcos\\_(\w{2})\b", r"$\\cos_{\1}$"),
    (r"\b(mean|min|max)\\_(\w)\b", r"$\\mathrm{\1}_\2$"),
    (r"\b([A-Za-z])\\_([A-Za-z]{1,2})(?![\w\\(])", r"$\1_{\2}$"),
)  # in escaped Markdown
NAMED = re.compile(r"(?P<name>\*{0,2}[\w.\[\]]+): (?P<text>.*)")


def markdown(documented: object, args: str = "Settings", formula: str = "", legend: str = "") -> str:
    """Convert a docstring to Markdown.

    The fields of a dataclass are listed with the texts below them, unless its docstring lists them.

    Args:
        documented: A module, class or function.
        args: The heading of the list of arguments or fields.
        formula: Markdown that replaces the formula of the docstring; "" keeps the one that it has.
        legend: Markdown that explains the formula, to follow its sentence.
    """
    parts = list(sections(inspect.getdoc(documented) or ""))
    if formula:
        parts[0] = ("", mark_formula(parts[0][1]))
    if not {"Args", "Attributes"} & {head for head, _ in parts} and (texts := field_texts(documented)):
        parts.insert(1, ("Args", "\n".join(f"{name}: {text}" for name, text in texts.items())))
    lines = []
    for head, text in parts:
        if head:
            lines.append(f"**{args if head == 'Args' else head}**\n")
        lines.append(section(head, with_imports(text, documented) if head == "Example" else text))
    text = "\n".join(lines).strip() + "\n"
    return write_symbols(text).replace(FORMULA, formula).replace(LEGEND, legend) if formula else text


def mark_formula(text: str) -> str:
    """Put a mark in place of the indented formula of a docstring and of the unfinished sentence that leads to it.

    Where a docstring has no such formula, the mark follows its first paragraph.
    """
    paragraphs = re.split(r"\n[ \t]*\n", text.strip("\n"))
    place = next((place for place, paragraph in enumerate(paragraphs) if paragraph.startswith("    ")), None)
    if place is None:
        return "\n\n".join([paragraphs[0], f"The loss is\n\n{FORMULA}\n\n{LEGEND}", *paragraphs[1:]])
    finished = re.match(r"(.*\.)\s", paragraphs[place - 1], re.DOTALL)  # without its last sentence
    before = f"{finished[1]} The loss is" if finished else "The loss is"
    following = paragraphs[place + 1 :]
    rest = 1 if following[0][0].islower() else 0  # the end of the sentence that has the formula
    return "\n\n".join([*paragraphs[: place - 1], before, FORMULA, *following[:rest], LEGEND, *following[rest:]])


def write_symbols(text: str) -> str:
    r"""Write the symbols in a Markdown text as formulas have them: ``w\_i`` and ``D\_y(a,i)`` become LaTeX."""
    words = re.split(r"(```.*?```|`[^`]+`)", text, flags=re.DOTALL)  # code stays as it is
    for number, word in enumerate(words[::2]):
        for pattern, symbol in SYMBOLS:
            word = re.sub(pattern, symbol, word)
        words[2 * number] = word
    return "".join(words)


def field_texts(documented: object) -> dict[str, str]:
    """The texts below the fields of a dataclass and of its bases; empty for anything else."""
    texts: dict[str, str] = {}
    if not (inspect.isclass(documented) and is_dataclass(documented)):
        return texts
    for base in reversed(documented.__mro__):
        if not is_dataclass(base):
            continue
        body = ast.parse(dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for line, below in itertools.pairwise(body):
            is_field = isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            if is_field and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts[line.target.id] = " ".join(str(below.value.value).split())
    return texts


def with_imports(example: str, documented: object) -> str:
    """Add the imports that an example needs to run when it is pasted: names of its module that it does not import."""
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
    """The shortest public module that has a name: ``cml.losses`` rather than ``cml.losses.log_ratio``."""
    module = str(getattr(home[name], "__module__", home["__name__"]))
    package = ".".join(module.split(".")[:2])
    return package if name in getattr(importlib.import_module(package), "__all__", ()) else module


def first_paragraph(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Split a docstring into its parts: ("", text before the first section), ("Args", text), ..."""
    heads = list(re.finditer(rf"^({'|'.join(HEADS)}):\n", text, re.MULTILINE))
    yield "", text[: heads[0].start()] if heads else text
    for following, head in enumerate(heads, start=1):
        body = text[head.end() : heads[following].start() if following < len(heads) else len(text)]
        inside, outside = re.match(r"((?:[ \t]+[^\n]*\n?|\n)*)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        yield head[1], dedent(inside).strip(chr(10))
        if outside.strip():  # a paragraph after the section, which belongs to none
            yield "", outside


def section(head: str, text: str) -> str:
    """Convert one part of a docstring to Markdown."""
    if head in ("Example", "Examples"):
        return f"```pycon\n{text.strip()}\n```\n"
    if head in ("Args", "Attributes", "Raises"):
        return "\n".join(items(text)) + "\n"
    return blocks(text)


def items(text: str) -> Iterator[str]:
    """Convert a list of arguments or exceptions to the lines of a Markdown list."""
    entry: list[str] = []
    for line in [*text.splitlines(), None]:
        if line is None or (line and not line[0].isspace()):
            if entry:
                yield item(" ".join(word.strip() for word in entry))
            entry = []
        if line is not None and line.strip():
            entry.append(line)


def item(text: str) -> str:
    """Convert one entry of such a list to Markdown."""
    named = NAMED.fullmatch(text)
    return f"- `{named['name']}`: {inline(named['text'])}" if named else f"- {inline(text)}"


def blocks(text: str) -> str:
    """Convert paragraphs to Markdown; indented ones are formulas or code."""
    converted = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        if paragraph.startswith("    "):
            converted.append(f"```text\n{dedent(paragraph)}\n```\n")
        elif ">>>" in paragraph:
            converted.append(f"```pycon\n{paragraph}\n```\n")
        else:
            converted.append(inline(paragraph) + "\n")
    return "\n".join(converted)


def inline(text: str) -> str:
    """Put code between single backticks, and escape all other characters that mean something in Markdown."""
    words = re.split(r"(``.*?``|`[^`]+`)", text, flags=re.DOTALL)
    return "".join(
        "`" + " ".join(word.strip("`").split()) + "`" if odd % 2 else re.sub(r"([*_\\<>\[\]$~|{}])", r"\\\1", word)
        for odd, word in enumerate(words)
    )
