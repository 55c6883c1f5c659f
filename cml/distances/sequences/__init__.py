"""Label distances of sequences of unequal length: tracks, motions, texts."""
