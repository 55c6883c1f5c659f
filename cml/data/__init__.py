"""Prepared datasets: reading, checking and writing them, and turning their images into batches."""
