"""The examples of the pages as files, and registries that forget them: a page is followed as if in a new process."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import page_commands
import pytest

from cml import data_prep, distances, losses, models, plugins, protocols, sampling, tasks, trackers
from cml.retrieval import metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"
REGISTRIES = [
    tasks.registry,
    *(each.registry for each in (data_prep, distances, losses, metrics, models, protocols, sampling, trackers)),
]  # fmt: skip


def read_files(page: str) -> dict[str, str]:
    """The files that a page of ``docs`` shows, by name."""
    blocks = page_commands.read_blocks((DOCS / page).read_text(encoding="utf-8"))
    return {block.file_name: block.text for block in blocks if block.file_name}


def forget_plugins(patch: pytest.MonkeyPatch) -> None:
    """Undo, when ``patch`` ends, all that is registered from now on; plugins loaded before are loaded anew."""
    for registry in REGISTRIES:
        for name in ("_entries", "_origins", "_unread_group"):
            patch.setattr(registry, name, copy.copy(getattr(registry, name)))
    patch.setattr(plugins, "_loaded", {})
    patch.setattr(plugins, "_sources", {})


def forget_modules() -> None:
    """Remove the modules of plugin files from ``sys.modules``."""
    for name in [name for name in sys.modules if name.startswith("cml_plugin_")]:
        del sys.modules[name]
