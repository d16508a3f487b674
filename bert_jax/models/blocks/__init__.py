"""Blocks: one layer of an encoder, a file each; config.block names it.

A file's `Block` is a Flax module with a field `config` that maps `(hidden, context, kind, train)` to hidden states. A
block of several sorts of layers has a static method `kinds(config)`, a number for each layer: a layer's own comes as
`kind`, a traced scalar where layers are scanned. Without that method `kind` is None. With `normalizes_last = True` a
LayerNorm follows the last layer.
"""

from bert_jax.models.config import BLOCKS

__all__ = ["BLOCKS"]
