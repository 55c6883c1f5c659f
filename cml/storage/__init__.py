"""Files that are never half-written: atomic writes, resumable work, strict JSON and .npy, safe paths."""
