"""The engines, one file each, found by its name."""
