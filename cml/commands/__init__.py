"""The subcommands of ``cml``: thin functions over the Python API. Each module has ``run(arguments)``."""
