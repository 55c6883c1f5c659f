"""The learners beside gradient descent, a line each: without a line its room could be deleted."""

from cml.training.learner import learner_class, registry

registry.register("tune")("cml.tuning.learner:TuneLearner")

__all__ = ["learner_class"]
