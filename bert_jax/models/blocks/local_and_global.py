"""ModernBERT's block: pre-norm, with local attention in most layers; without a window it is EuroBERT's.

If embeddings are normalised, the attention of the first layer reads them as they are. Its `attention_norm` is unused,
but exists because the parameters of all layers are stacked.
"""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import save_activation
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels import attention
from bert_jax.models.layers import FeedForward, SelfAttention, norm

FIRST, GLOBAL, LOCAL = range(3)


class Block(nn.Module):
    config: EncoderConfig
    normalizes_last = True

    @staticmethod
    def layer_types(config: EncoderConfig) -> list[int]:
        window, every = config.local_attention.window, config.local_attention.every
        return [FIRST if config.embedding_norm else GLOBAL] + [
            LOCAL if window and layer % every else GLOBAL for layer in range(1, config.num_hidden_layers)
        ]

    @nn.compact
    def __call__(self, hidden, context, layer_type, train: bool):
        c, rows, is_local = self.config, context.rows, layer_type == LOCAL
        read = hidden
        if not c.embedding_norm:
            read = norm(c, "attention_norm")(hidden)
        elif c.num_hidden_layers > 1:
            read = jnp.where(layer_type == FIRST, hidden, norm(c, "attention_norm")(hidden))
        attend = attention.attend
        if c.local_attention.window:
            attend = partial(
                attention.attend_locally_or_globally, is_local=is_local, window=c.local_attention.window
            )
        attended = SelfAttention(c, name="attention")(
            read, context, train, attend, rotary_index=rotary_table_index(c, is_local)
        )
        hidden = save_activation(hidden + Dropout(c.attention_probs_dropout_prob)(attended, rows, train))
        fed = FeedForward(c, name="feed_forward")(norm(c, "feed_forward_norm")(hidden))
        return save_activation(hidden + Dropout(c.hidden_dropout_prob)(fed, rows, train))


def rotary_table_index(c: EncoderConfig, is_local):
    """Return the index of the layer's rotary table."""
    if not c.rotary.local_theta:
        return 0
    return int(is_local) if isinstance(is_local, bool) else is_local.astype(jnp.int32)
