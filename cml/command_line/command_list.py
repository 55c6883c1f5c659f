"""The subcommands of ``cml``, a module of that name in ``cml.commands`` each, and what all of them take."""

GROUPS = {  # as ``cml --help`` lists them
    "First": {
        "demo": "train with two losses on drawn people, rooms, scenes or heads and compare them, in three minutes",
        "prepare": "convert raw files to a prepared dataset",
        "train": "train an embedding",
        "evaluate": "evaluate a trained embedding against the oracle, a random ranking and frozen features",
        "search": "search an index for the items that are nearest to query images, texts or vectors",
    },
    "Data and labels": {
        "check": "check a prepared dataset for problems",
        "distances": "compute all label distances or nearest neighbours, or summarise them",
        "features": "compute the features of a frozen network once, for training many heads",
        "audit": "list the labels that disagree with those of similar items and may be wrong",
        "propose": "list the items of a pool that are worth labelling next",
    },
    "Losses and papers": {
        "compare": "train with several losses, with the same budget and seeds, and compare the results in a table",
        "losses": "list all losses, with the labels that they need, their cost, their source and when to use them",
        "bench": "run the benchmark of losses for continuous labels, and check and compare results",
        "reproduce": "repeat the experiments of a paper, and compare the results with the published ones",
    },
    "Using a model": {
        "embed": "embed images, vectors or texts with a trained run",
        "index": "build a search index of images, vectors or texts, or add items to it",
        "serve": "answer searches of an index over HTTP",
        "predict": "predict the labels of new items from those of the nearest training items",
        "calibrate": "learn which label distance to expect for an embedding distance, with an interval",
        "report": "write a report of the images that a trained embedding retrieves",
        "explore": "write an interactive page for exploring an embedding",
        "export": "export a trained run as an ONNX graph, as a model to share, or as captioning features",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

HELP_ALL = "--help-all"  # of a command with many options, whose --help shows those that most people set
HELP = {"--help", "-h", HELP_ALL}
PLUGIN = "--plugin FILE_OR_MODULE"
PLUGIN_HELP = "load a file or module that registers your own parts; can be repeated, and works with every command"
