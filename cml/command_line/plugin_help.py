"""How the help of every command names the option that loads plugins."""

PLUGIN = "--plugin FILE_OR_MODULE"
PLUGIN_HELP = "load a file or module that registers your own parts; can be repeated, and works with every command"
