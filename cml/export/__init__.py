"""Using a trained embedding: embeddings of folders, search indexes, ONNX, shared weights, captioning features."""
