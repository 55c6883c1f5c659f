"""The tasks, one small module each: everything that a kind of label fixes. ``cml.task`` says what a task is."""

from cml.task import Task, comparisons, get, registry

__all__ = ["Task", "comparisons", "get", "registry"]
