"""The version of cml, and the name of its distribution on the package index, where ``cml`` is another project."""

DISTRIBUTION = "continuous-metric-learning"
__version__ = "0.1.0"
