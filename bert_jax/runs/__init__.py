"""Whole runs: training with folds and sweeps around the loop, and their Python entry points."""
