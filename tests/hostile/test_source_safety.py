"""No code of the package reads what can run code, evaluates text, or puts text from outside into markup."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path for package in ("cml", "tasks", "data_prep") for path in (ROOT / package).rglob("*.py"))
PAGES = sorted((ROOT / "cml").rglob("*.j2"))

_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "zipfile", "xml"}
_CALLS = {"eval", "exec", "compile", "__import__"}
_UNPACKING = {"extractall", "unpack_archive", "system", "popen"}


def faults(tree: ast.AST) -> Iterator[str]:
    """What an analysis of one file finds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in _MODULES)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        settings = {word.arg: ast.unparse(word.value) for word in node.keywords}
        owner, _, name = called.rpartition(".")
        if called in _CALLS or name in _UNPACKING or owner == "yaml":
            yield f"calls {called}"
        if called == "torch.load" and settings.get("weights_only") != "True":
            yield "calls torch.load without weights_only=True"
        if name == "load_state_dict_from_url" and settings.get("weights_only") != "True":
            yield f"calls {called} without weights_only=True"
        if called in ("np.load", "numpy.load") and settings.get("allow_pickle") != "False":
            yield "calls np.load without allow_pickle=False"
        if "allow_pickle" in settings and settings["allow_pickle"] != "False":
            yield f"calls {called} with allow_pickle"
        if settings.get("shell") == "True":
            yield f"calls {called} with a shell"
        if name == "Environment" and settings.get("autoescape") != "True":
            yield "makes templates without autoescape=True"
        if called == "Image.open" and "formats" not in settings:
            yield "opens an image of any format"
        if called in ("json.load",):
            yield "reads JSON from a file by json.load; cml.storage.json_file is stricter"


def test_nothing_can_run_code() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {fault}" for path in FILES for fault in faults(ast.parse(path.read_text("utf-8")))
    ]
    # to digest objects, to name the damage of a cached .npz, to name the error that torch raises for a pickle that it
    # refuses, to read YAML by the safe loader, to check the sums of a checkpoint, which torch packs as a zip,
    # to name the error of a data set that cannot be sent to data workers, and to unpack the one archive of a package
    # whose SHA-256 is known, and to refuse arrays and a workbook by the size of what they unpack to
    assert found == [
        "cml/distances/content_hash.py: imports pickle",
        "cml/distances/pair_function.py: imports zipfile",
        "cml/models/backbone_checks.py: imports pickle",
        "cml/models/backbones/torchvision.py: imports pickle",
        "cml/storage/json_file.py: imports yaml",
        "cml/training/checkpoint.py: imports zipfile",
        "cml/training/data_workers.py: imports pickle",
        "cml/word_vectors/sentence_model.py: imports zipfile",
        "cml/word_vectors/sentence_model.py: calls archive.extractall",
        "data_prep/array_files.py: imports zipfile",
        "data_prep/readers/xlsx.py: imports zipfile",
    ]
    assert "digest != _ZIP_SHA256" in (ROOT / "cml/word_vectors/sentence_model.py").read_text("utf-8")
    for name in ("cml/distances/content_hash.py", "cml/models/backbones/torchvision.py"):
        assert "pickle.load" not in (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        *("import pickle", "from yaml import load", "eval('1')", "exec(text)", "torch.load(path)", "np.load(path)"),
        *("torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)", "archive.extractall(out)"),
        *("subprocess.run('x', shell=True)", "jinja2.Environment(loader=x)", "Image.open(path)"),
        *("yaml.load(file)", "np.save(file, array, allow_pickle=True)", "json.load(file)"),
    ],
)
def test_the_analysis_finds(text: str) -> None:
    assert list(faults(ast.parse(text)))


_HANDLERS = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|javascript:|<iframe|<object|<embed"
    r"|\son\w+\s*=\s*[\"']|\sstyle\s*=\s*[\"']"
)


def test_pages_hold_no_script_and_no_handler() -> None:
    assert PAGES
    for path in PAGES:
        text = path.read_text("utf-8")
        assert not re.search(_HANDLERS, text, re.I)
        assert "default-src 'none'" in text
        ours = {"style"}  # our own sheet, bound by its hash
        if path.name == "explorer.html.j2":  # our own scripts, bound likewise, and data that no browser runs
            policy = re.search(r"script-src([^;]*);", text)
            assert policy is not None
            assert policy[1] == "{% for hash in script_hashes %} 'sha256-{{ hash }}'{% endfor %}"
            run = [tag for tag in re.findall(r"<script[^>]*>", text) if 'type="' not in tag]
            assert run == ["<script>"]
            ours |= {"script", "meta", "data", "sheet"}
        else:
            assert "<script" not in text
        assert set(re.findall(r"\{\{\s*(\w+)[^}]*\|\s*safe", text)) == ours, path
    for path in (ROOT / "cml").rglob("*.js"):
        assert not re.search(_HANDLERS + r"|\beval\(|new Function", path.read_text("utf-8"), re.I), path
    for path in FILES:
        assert "Markup(" not in path.read_text("utf-8"), path


def test_html_comes_from_the_templates_alone() -> None:
    tags = re.compile(r"""["']\s*<(html|svg|div|script|img|body)\b""", re.I)
    assert not [str(path) for path in FILES if tags.search(path.read_text("utf-8"))]
