"""The data sources, a file each; what they share stands beside this folder, and drawn ones are in ``synthetic``."""
