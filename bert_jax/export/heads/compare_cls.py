"""A classifier of the [CLS] states of the two texts of a pair."""

from bert_jax.export.linear_head import build

__all__ = ["build"]
