"""Word vectors from packages and files: GloVe, word2vec, gensim."""
