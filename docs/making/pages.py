"""The generated pages: losses, label distances, other registered parts, commands and the Python interface.

Their contents come from the registries, docstrings and ``--help``, so that each registered part has a page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cml
from cml import cli, data_prep, tasks
from cml.losses.loss_table import loss_rows, markdown_table
from cml.registry import Registry
from making import docstrings, help
from making.formulas import FORMULAS, legend

KINDS: dict[str, tuple[Callable[[], Registry[Any]], str, str]] = {
    "distances": (lambda: cml.distances.registry, "Label distances", "--label-distance"),
    "samplers": (lambda: cml.sampling.registry, "Samplers", "--sampler"),
    "backbones": (lambda: cml.models.registry, "Backbones", "--backbone"),
    "sources": (lambda: data_prep.registry, "Data sources", "cml prepare"),
    "trackers": (lambda: cml.trackers.registry, "Trackers", "--tracker"),
}
SYNTAX = {"backbones": {"timm": "timm/MODEL", "torchvision": "MODEL"}}  # parts that are not called by their own name
DEFAULT_VALUE_LENGTH = 40


def generate(folder: Path) -> None:
    """Write all generated pages below ``folder``."""
    losses(folder / "losses")
    for name in KINDS:
        parts(name, folder / name)
    tasks_page(folder / "tasks.md")
    commands(folder / "commands")
    interface(folder / "api")


def losses(folder: Path) -> None:
    """Write the table of losses and a page for each loss."""
    rows = loss_rows()
    names = "\n".join(row.name for row in rows)
    write(folder / "index.md", f"{ABOUT_LOSSES}\n{markdown_table(rows)}\n\n{toctree(names)}")
    for row in rows:
        entry: Any = cml.losses.registry.entry(row.name)
        function = f"{row.name.replace('-', '_')}_loss"
        python = f"`cml.losses.{entry.__name__}`"
        if function in cml.losses.__all__:
            python += f"; as a function, `cml.losses.{function}`"
        lines = [f"# {row.name}\n", f"{row.when}\n", "| | |", "|---|---|", f"| Labels | {row.labels} |"]
        lines += [f"| Cost of a batch | {row.cost} |", f"| Source | {row.source} |"]
        lines += [f"| Command line | `--loss {row.name}` |", f"| Python | {python} |"]
        lines.append(f"| In your own training loop | {training_loop_text(entry)} |\n")
        if row.name in FORMULAS:
            lines.append(f"## Formula\n\n$$\n{FORMULAS[row.name]}\n$$\n\n{legend(row.name)}\n")
        lines.append(f"## Gradient\n\n![The gradient of {row.name}](../pictures/{row.name}.svg)\n")
        lines.append(f"{PICTURE.get(row.labels, '')}\n")
        lines.append(f"## Description\n\n{settings(row.name, entry)}\n\n{docstrings.markdown(entry)}")
        write(folder / f"{row.name}.md", "\n".join(lines))


def training_loop_text(entry: Any) -> str:  # noqa: ANN401 - a class
    """Describe the calls that a loss needs in a training loop of the user: before the loop and in each step."""
    if entry.labels == "vectors":
        return "first `loss.prepare(labels, dimension=V)` with label vectors (N, V); then `loss(embeddings, labels)`"
    if entry.labels == "triplets":
        rows = "rows of anchor, nearer and farther item and a count, (T, 4) int64"
        return f"neither `fit` nor `prepare`; `loss(embeddings, triplets)`, with {rows}"
    if entry.labels == "classes":
        call = "`loss(embeddings, classes)`, with class numbers (B,) int64"
        if entry.prepare is cml.losses.Loss.prepare:
            return f"neither `fit` nor `prepare`; {call}"
        names = ", names=names" if entry.__name__ == "LanguageGuidanceLoss" else ""
        return f"first `loss.prepare(classes, dimension=D{names})`, before the optimiser is made; then {call}"
    call = "`loss(embeddings, label_distances)`, with label distances (A, B)"
    if not entry.constant_names and not hasattr(entry, "part_losses"):
        return f"neither `fit` nor `prepare`; {call}"
    if entry.constant_names == ("distance",):
        return f"first `loss.fit(distance, labels)` if the rule has a quantile; {call}"
    needed = " if one of its parts needs it" if hasattr(entry, "part_losses") else ""
    return f"first `loss.fit(distance, labels)`{needed}, with the labels of the training set; then {call}"


ABOUT_LOSSES = """# Losses

This is the table that `cml losses` prints. A, B and C are the numbers of anchors, items and classes of a batch.
[Choosing a loss](../../choose/loss.md) says where to start.
"""
PICTURE = {
    "label distances": "One anchor and 60 items at random places. The arrows show where a gradient step moves each "
    "item along the circle: towards the anchor or away from it. Their lengths are square roots of the gradient's.",
    "classes": "Items of three classes (by colour) on the circle: the arrows show where a gradient step moves them.",
    "triplets": "One anchor and the two items of each of 30 triplets, at random places on the circle: the item that "
    "was judged to be nearer is pulled to the anchor, the other one pushed away. Lengths are square roots.",
    "vectors": "Predictions of a network before it is trained: the arrows show where a gradient step moves them.",
}


def parts(kind: str, folder: Path) -> None:
    """Write the list of the parts of one kind and a page for each part."""
    get_registry, title, option = KINDS[kind]
    registry = get_registry()
    names = registry.names()
    lines = [f"# {title}\n", "| name | description |", "|---|---|"]
    for name in names:
        entry = registry.entry(name)
        lines.append(f"| [`{name}`]({name}.md) | {docstrings.inline(docstrings.first_paragraph(entry))} |")
        module = inspect.getdoc(importlib.import_module(entry.__module__)) or ""
        advice = "" if kind in ("trackers", "sources") else not_for(module)
        syntax = SYNTAX.get(kind, {}).get(name, name)
        write(
            folder / f"{name}.md",
            f"# {name}\n\nWritten `{option} {syntax}`.\n\n{'' if kind == 'sources' else settings(name, entry)}\n\n"
            f"{docstrings.markdown(entry)}\n{advice}",
        )
    write(folder / "index.md", "\n".join(lines) + "\n\n" + toctree("\n".join(names)))


def not_for(module: str) -> str:
    """Return the paragraph "Not for:" of a module's docstring."""
    _, heading, rest = module.partition("Not for:")
    return f"**Not for**: {docstrings.inline(' '.join(rest.partition(chr(10) * 2)[0].split()))}\n" if heading else ""


def settings(name: str, entry: Any) -> str:  # noqa: ANN401 - any registered thing
    """Write the settings of a part with their defaults, in the syntax of the command line."""
    words = []
    for parameter in inspect.signature(entry).parameters.values():
        is_required = parameter.default is parameter.empty
        words.append(parameter.name if is_required else f"{parameter.name}={parameter.default}")
    return f"```text\n{name}({', '.join(words)})\n```"


def tasks_page(path: Path) -> None:
    """Write the page of all tasks with the variants of their recipes."""
    lines = [
        "# Tasks\n",
        "A task defines how cml treats one kind of label: label distance, training recipe, drawing.\n",
    ]
    for name in tasks.names():
        task = tasks.get(name)
        lines += [f"## {name}\n", f"{task.summary[:1].upper()}{task.summary[1:]}.\n"]
        lines += ["| row of `cml compare` | changed options |", "|---|---|"]
        for variant, changes in task.variants.items():
            text = ", ".join(f"`{key}={value}`" for key, value in changes.items()) or "none: the recipe"
            lines.append(f"| {variant} | {text} |")
        lines.append("")
    write(path, "\n".join(lines))


def commands(folder: Path) -> None:
    """Write a page for each command from its help."""
    lines = ["# Commands\n", "| command | description |", "|---|---|"]
    for name, about in cli.COMMANDS.items():
        lines.append(f"| [`cml {name}`](cml-{name}.md) | {docstrings.inline(about)} |")
        write(folder / f"cml-{name}.md", help.page(about, list(help.commands(name))))
    lines += [
        "",
        "Every command takes `--plugin FILE_OR_MODULE` and `--help`. Exit codes: 0 for success, 2 for a mistake in the "
        "command or the data, 1 for a failure of the machine, 130 after Ctrl-C, SIGTERM or SIGHUP.\n",
    ]
    write(folder / "index.md", "\n".join(lines) + toctree("\n".join(f"cml-{name}" for name in cli.COMMANDS)))


def interface(folder: Path) -> None:
    """Write the pages of the Python interface: one for ``cml`` and one for each of its modules."""
    modules = [name for name in cml.__all__ if inspect.ismodule(getattr(cml, name))]
    names = [name for name in cml.__all__ if name not in modules]
    lines = ["# Python\n", f"{docstrings.markdown(cml)}\n", "```{py:module} cml\n```\n"]
    lines.append("`cml.__version__` is the installed version.\n")
    lines += [document("cml", name, getattr(cml, name)) for name in names if name != "__version__"]
    lines.append("## Modules\n")
    lines += [f"- [`cml.{name}`]({name}.md)" for name in modules]
    write(folder / "index.md", "\n".join(lines) + "\n\n" + toctree("\n".join(modules)))
    for name in modules:
        module = getattr(cml, name)
        text = [f"# cml.{name}\n", f"{docstrings.markdown(module)}\n", f"```{{py:module}} cml.{name}\n```\n"]
        text += [document(f"cml.{name}", member, getattr(module, member)) for member in public(module)]
        write(folder / f"{name}.md", "\n".join(text))


def public(module: Any) -> list[str]:  # noqa: ANN401 - a module
    """List the public names of a module."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return sorted(name for name in set(listed) | ({"get", "names", "register"} & set(vars(module))) if name[:1] != "_")


def document(module: str, name: str, thing: Any) -> str:  # noqa: ANN401 - a class, a function or a value
    """Write the entry of a name: its signature, its docstring, and the methods of a class.

    Args:
        module: The module that the entry names, such as ``cml.losses``.
        name: The name in that module.
        thing: The class, function or value of that name.
    """
    if not callable(thing):
        return f"```{{py:data}} {module}.{name}\n{docstrings.first_paragraph(thing)}\n```\n"
    if not inspect.isclass(thing) and not inspect.isfunction(thing) and not inspect.ismethod(thing):
        return f"```{{py:data}} {module}.{name}\n{docstrings.inline(text_below(module, name))}\n```\n"
    kind = "class" if inspect.isclass(thing) else "function"
    body = [docstrings.markdown(thing, args="Arguments")]
    if inspect.isclass(thing):
        for key, value in vars(thing).items():
            if key[:1] == "_" or not inspect.getdoc(value):
                continue
            if isinstance(value, property):
                body.append(f"**{key}**: {docstrings.inline(docstrings.first_paragraph(value))}\n")
            elif inspect.isfunction(value) or isinstance(value, classmethod):
                call = signature(getattr(thing, key))
                call = call.replace("(self, ", "(").replace("(self)", "()")
                text = docstrings.markdown(getattr(thing, key), args="Arguments")
                body.append(f"````{{py:method}} {key}{call}\n\n{text}\n````\n")
        members = vars(importlib.import_module(module))
        bases = [base.__name__ for base in thing.__mro__[1:] if members.get(base.__name__) is base]
        if bases:
            body.insert(1, f"It also has the methods of {', '.join(f'`{base}`' for base in bases)}.\n")
    return f"`````{{py:{kind}}} {module}.{name}{signature(thing)}\n\n{chr(10).join(body)}\n`````\n"


def text_below(module: str, name: str) -> str:
    """Return the text below the assignment of a value, in a file of the package."""
    for path in sorted(Path(importlib.import_module(module).__file__).parent.glob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for line, below in itertools.pairwise(body):
            is_assignment = isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == name
            if is_assignment and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return " ".join(str(below.value.value).split())
    return ""


def signature(thing: Any) -> str:  # noqa: ANN401 - a class or function
    """Write the arguments with their defaults and without types."""
    try:
        complete = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    plain = []
    for parameter in complete.parameters.values():
        default = parameter.default
        if default is not parameter.empty and (not is_plain(default) or len(repr(default)) > DEFAULT_VALUE_LENGTH):
            default = ...
        plain.append(parameter.replace(annotation=parameter.empty, default=default))
    return str(complete.replace(parameters=plain, return_annotation=complete.empty)).replace("Ellipsis", "...")


def is_plain(value: object) -> bool:
    """Whether ``repr`` of a value is readable in a signature."""
    return isinstance(value, bool | int | float | str | tuple | type(None))


def toctree(names: str) -> str:
    """Write a hidden table of contents."""
    return f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def write(path: Path, text: str) -> None:
    """Write a page and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
