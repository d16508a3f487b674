"""Blocks: the architectures of a layer, one file each. `config.block` names the block of an encoder.

The `Block` of a file is a Flax module with a field `config`. It maps `(hidden, context, kind, train)` to hidden states.
If its layers are not all of one kind, it has a static method `kinds(config)`, which returns the kind of each layer as a
number. A layer gets its own as `kind`, a traced scalar if layers are scanned. Without that method, `kind` is None. With
`normalizes_last = True`, a LayerNorm follows the last layer.
"""

from bert_jax.models.encoder_config import BLOCKS

__all__ = ["BLOCKS"]
