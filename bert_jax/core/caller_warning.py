"""Warnings for whoever called into the package."""

import sys
import warnings


def warn_caller(message: str) -> None:
    """Warn, and name the line outside of the package that called into it."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("bert_jax."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)
