"""Predictions: the kinds of output that a model has for a text, how they are calibrated, scored and shown."""
