"""Attention: one entry point, one file for each kernel."""
