"""Sentence order."""

from bert_jax.export.linear_head import build

__all__ = ["build"]
