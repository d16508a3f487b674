"""Blocks: the architectures of a layer, one file each. `config.block` names the block of an encoder.

The `Block` of a file is a Flax module with a field `config`. It maps `(hidden, context, layer_type, train)` to hidden
states. If its layers differ, it has a static method `layer_types(config)`, which returns the type of each layer as a
number. A layer gets its own as `layer_type`, a traced scalar if layers are scanned. Without that method, `layer_type`
is None. With `normalizes_last = True`, a LayerNorm follows the last layer.
"""

from bert_jax.models.encoder_config import BLOCKS

__all__ = ["BLOCKS"]
