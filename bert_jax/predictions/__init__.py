"""Predictions: what a model gives for a text, one file for each kind."""
