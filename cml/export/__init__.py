"""A trained model as other programs read it: ONNX graphs, shared weights, captioning features."""
