"""Whole runs: the training loop with folds and sweeps around it, and the entry points from Python."""
