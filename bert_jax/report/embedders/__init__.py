"""Evaluate embedders: one file for each kind of evaluation data, and the report page."""
