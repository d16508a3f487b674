"""Inputs and outputs in shards: files that are read and written one by one, by whoever is free."""
