"""Carrying a trained embedding on: embeddings of folders, search indexes, ONNX, weights to share, captioning features.

Not for: training and measuring it.
"""
