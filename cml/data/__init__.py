"""Prepared datasets: reading, checking and writing them, and what turns their images into batches.

Raw formats of public datasets are not known here; they live in data_prep.
"""
