"""The version of cml, for those who write it into files. Not for: anything else."""

__version__ = "0.1.0"
