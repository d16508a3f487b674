"""Predictions: what a model says of a text, one file for each kind."""
