"""One kind of backbone a file; ``small_cnn.py`` is a short model to follow for one of your own."""
