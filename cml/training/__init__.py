"""Training: options, batches, the loop, run folders."""
