"""A classifier of the direction of a text's [CLS] state."""

from bert_jax.export.linear_head import build

__all__ = ["build"]
