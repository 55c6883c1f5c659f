"""The learners beside gradient descent, a line each: without a line its room could be deleted."""

from cml.registry import loading
from cml.training.learner import learner_class, registry

_before = loading.set("")  # these are cml's own, also where a plugin is the first to import them
registry.register("tune")("cml.tuning.learner:TuneLearner")
loading.reset(_before)

__all__ = ["learner_class"]
