"""A tagger: the logits of the labels of each token."""

from bert_jax.export.linear_head import build

__all__ = ["build"]
