"""Predictions: what a model outputs for a text, how it is calibrated and scored, and which kinds there are."""
