"""Whole runs: the training loop with folds and sweeps around it, and the public functions that do what commands do."""
