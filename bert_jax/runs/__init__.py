"""Whole runs: trainings with folds and sweeps around the loop, and the entries to them from Python."""
