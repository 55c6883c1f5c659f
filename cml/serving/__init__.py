"""``cml serve``: searches of an index by HTTP, for images, texts or vectors (extra ``serve``)."""
