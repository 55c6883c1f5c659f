"""Runs: train a task, open what was trained, evaluate, compare and draw it."""
