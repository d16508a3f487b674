"""ALBERT's block: that of BERT, without dropout after the feed-forward."""

from bert_jax.models.blocks.post_norm import Block as PostNorm


class Block(PostNorm):
    feed_forward_dropout = False
