"""ALBERT's block, which differs from BERT's only in training."""

from bert_jax.export.blocks.post_norm import build

__all__ = ["build"]
