"""Texts found by their vectors."""
