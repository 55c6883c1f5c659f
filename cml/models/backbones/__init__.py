"""One kind of backbone per file; ``small_cnn.py`` is a short model for your own."""
