"""The generated pages: losses, label distances, other registered parts, commands and the Python interface.

Their contents come from the registries, docstrings and ``--help-all``, so that each registered part has a page.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "protocols": (lambda: cml.protocols.registry, "Protocols", "--protocol"),
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
        python = f"`cml.losses.{entry.__name__}`"
        lines = [f"# {row.name}\n", f"{row.when}\n", "| | |", "|---|---|", f"| Labels | {row.labels} |"]
        lines += [f"| Cost of a batch | {row.cost} |", f"| Source | {row.source} |"]
        lines += [f"| Command line | `--loss {row.name}` |", f"| Python | {python} |"]
        lines.append(f"| In your own training loop | {training_loop_text(entry)} |\n")
        formula = f"$$\n{FORMULAS[row.name]}\n$$" if row.name in FORMULAS else ""
        symbols = legend(row.name) if formula else ""
        text, arguments, rest = docstrings.markdown(entry, formula=formula, legend=symbols).partition("**Settings**")
        lines += [
            f"## Formula\n\n{text}",
            f"## Gradient\n\n![The gradient of {row.name}](../pictures/{row.name}.svg)\n",
        ]
        lines.append(f"{PICTURE.get(row.labels, '')}\n")
        lines.append(f"## Settings and example\n\n{settings(row.name, entry)}\n\n{rest if arguments else ''}")
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
        "Every command takes `--plugin FILE_OR_MODULE` and `--help`. Where options are many, `--help` lists those that "
        "most people set, and `--help-all` all of them. Exit codes: 0 for success, 2 for a mistake in the "
        "command or the data, 1 for a failure of the machine, 130 after Ctrl-C, SIGTERM or SIGHUP.\n",
    ]
    write(folder / "index.md", "\n".join(lines) + toctree("\n".join(f"cml-{name}" for name in cli.COMMANDS)))


def interface(folder: Path) -> None:
    """Write the pages of the Python interface: one for ``cml`` and one for each of its modules."""
    modules = [name for name in cml.__all__ if inspect.ismodule(getattr(cml, name))]
    lines = ["# Python\n", f"{docstrings.markdown(cml)}\n", "```{py:module} cml\n```\n"]
    lines += ["`cml.__version__` is the installed version.\n", LINKS_FROM_OTHER_PROJECTS]
    lines += document_groups("cml", INTERFACE)
    lines.append("## Modules\n")
    lines += [f"- [`cml.{name}`]({name}.md)" for name in modules]
    write(folder / "index.md", "\n".join(lines) + "\n\n" + toctree("\n".join(modules)))
    for name in modules:
        module = getattr(cml, name)
        text = [f"# cml.{name}\n", f"{docstrings.markdown(module)}\n", f"```{{py:module}} cml.{name}\n```\n"]
        groups: dict[str, list[str]] = {}
        for member in public(module):
            groups.setdefault(group_of(getattr(module, member)), []).append(member)
        text += document_groups(f"cml.{name}", {title: groups[title] for title in sorted(groups, key=GROUPS.index)})
        write(folder / f"{name}.md", "\n".join(text))


INTERFACE = {
    "Train": ["fit", "train", "compare", "TrainConfig", "Callback", "last", "Interrupted"],
    "Use a trained model": ["load", "Model", "open_run", "Run"],
    "Prepare data": [
        "prepare",
        "open_dataset",
        "features",
        "PairJudgements",
        "TripletJudgements",
        "Grades",
        "LabelledStream",
    ],
    "Search": [
        "index",
        "search",
        "Index",
        "EmbeddingFolder",
        "SearchModel",
        "SearchFolder",
        "Ranking",
        "RankingEvaluation",
    ],
    "Plugins and errors": ["load_plugin", "UserError"],
}
LOSSES = {
    "label distances": "Losses over label distances",
    "classes": "Losses over classes",
    "triplets": "Losses over judged triplets",
    "vectors": "Losses over label vectors",
}
GROUPS = ("Functions", *LOSSES.values(), "Classes", "Values")
LINKS_FROM_OTHER_PROJECTS = """The names on these pages are those of `objects.inv`: another project's documentation
links to `cml.fit`, `cml.Model.embed` and the others by [intersphinx](https://www.sphinx-doc.org/en/master/usage/extensions/intersphinx.html).
"""


def group_of(thing: Any) -> str:  # noqa: ANN401 - a class, a function or a value
    """Name the group of a public name of a module."""
    if inspect.isclass(thing):
        is_loss = issubclass(thing, cml.losses.Loss) and not inspect.isabstract(thing)
        return LOSSES.get(thing.labels, "Classes") if is_loss and thing in loss_classes() else "Classes"
    return "Functions" if inspect.isfunction(thing) or inspect.ismethod(thing) else "Values"


def loss_classes() -> list[Any]:
    """List the classes of the registered losses."""
    return [cml.losses.registry.entry(name) for name in cml.losses.names()]


def document_groups(module: str, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the entries of a module's names, in groups that begin with a table of their summaries.

    Args:
        module: The module, such as ``cml.losses``.
        groups: Title of a group to its names.
    """
    home = importlib.import_module(module)
    for title, names in groups.items():
        yield f"## {title}\n\n| name | description |\n|---|---|"
        for name in names:
            yield f"| {{py:obj}}`{name} <{module}.{name}>` | {summary(module, name, getattr(home, name))} |"
        yield ""
        for name in names:
            yield document(module, name, getattr(home, name))


def summary(module: str, name: str, thing: Any) -> str:  # noqa: ANN401 - a class, a function or a value
    """Return the first sentence on a public name, as Markdown."""
    text = docstrings.first_paragraph(thing) if is_documented(thing) else text_below(module, name)
    return docstrings.inline(re.split(r"(?<=\.) (?=[A-Z])", text)[0])


def public(module: Any) -> list[str]:  # noqa: ANN401 - a module
    """List the public names of a module."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return sorted(name for name in set(listed) | ({"get", "names", "register"} & set(vars(module))) if name[:1] != "_")


def is_documented(thing: Any) -> bool:  # noqa: ANN401 - a class, a function or a value
    """Whether the docstring of a public name is its own; that of a plain value is its type's."""
    return inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismethod(thing)


def document(module: str, name: str, thing: Any) -> str:  # noqa: ANN401 - a class, a function or a value
    """Write the entry of a name: its signature, its docstring, and the methods of a class.

    Args:
        module: The module of the page, such as ``cml.losses``, which Sphinx puts before the name.
        name: The name in that module.
        thing: The class, function or value of that name.
    """
    if not is_documented(thing):
        text = docstrings.first_paragraph(thing) if callable(thing) and not text_below(module, name) else ""
        return f"```{{py:data}} {name}\n{docstrings.inline(text or text_below(module, name))}\n```\n"
    kind = "class" if inspect.isclass(thing) else "function"
    body = [docstrings.markdown(thing, args="Arguments")]
    if inspect.isclass(thing):
        body += [document_member(thing, key, owner) for key, owner in members(thing)]
    place = f"{thing.__module__}.{thing.__qualname__}"
    canonical = f":canonical: {place}\n" if kind == "class" and place != f"{module}.{name}" else ""
    return f"`````{{py:{kind}}} {name}{signature(thing)}\n{canonical}\n{chr(10).join(body)}\n`````\n"


def members(thing: type) -> Iterator[tuple[str, type]]:
    """Yield the documented public methods and properties of a class, with the class of cml that defines each.

    Those of a base that is not public come first, as the class rests on it.
    """
    owners: dict[str, type] = {}
    for owner in thing.__mro__:
        if not owner.__module__.startswith("cml."):
            continue  # of torch or of Python, which have their own pages
        for key, value in vars(owner).items():
            is_method = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if key[:1] != "_" and is_method and inspect.getdoc(value):
                owners.setdefault(key, owner)
    yield from sorted(owners.items(), key=lambda one: one[1] is thing or bool(public_place(one[1])))


def document_member(thing: type, key: str, owner: type) -> str:
    """Write the entry of a method or property; one that a public class has described is described in one line.

    Args:
        thing: The class of the entry.
        key: The name of the method or property.
        owner: The class that defines it.
    """
    value, place = vars(owner)[key], public_place(owner)
    if owner is not thing and place:
        text = f"{docstrings.inline(docstrings.first_paragraph(value))} See {{py:obj}}`{place}.{key}`.\n"
    elif isinstance(value, property):
        text = docstrings.markdown(value)
    else:
        text = docstrings.markdown(getattr(thing, key), args="Arguments")
    if isinstance(value, property):
        return f"````{{py:property}} {key}\n\n{text}\n````\n"
    call = signature(getattr(thing, key)).replace("(self, ", "(").replace("(self)", "()")
    option = ":classmethod:\n" if isinstance(value, classmethod) else ""
    return f"````{{py:method}} {key}{call}\n{option}\n{text}\n````\n"


def public_place(thing: type) -> str:
    """Return the public name of a class, such as ``cml.losses.Loss``; "" if it has none."""
    package = ".".join(thing.__module__.split(".")[:2])
    for module in ("cml", package):
        if thing.__name__ in getattr(importlib.import_module(module), "__all__", ()):
            return f"{module}.{thing.__name__}"
    return ""


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
