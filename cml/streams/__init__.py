"""Training from streams: data that does not fit into memory, or that can only be read from its start."""
