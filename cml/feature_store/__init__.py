"""Features that a network computed once for many items, on disk: shards, the list of items and a manifest."""
