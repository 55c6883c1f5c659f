"""The tasks, one small module each: everything that a kind of label fixes. ``cml.task`` says what a task is."""

import runpy
import sys

from cml.task import Task, get, names, register, registry

__all__ = ["Task", "get", "main", "names", "register", "registry"]


def main(name: str) -> None:
    """Train from the task's own module: ``python -m cml.tasks.pose --data DIR --out RUN`` is ``cml train pose ...``."""
    sys.argv[1:1] = ["train", name]
    runpy.run_module("cml", run_name="__main__")
