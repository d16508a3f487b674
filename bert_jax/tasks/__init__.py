"""Tasks: one file each, with what it makes of a model's outputs."""
