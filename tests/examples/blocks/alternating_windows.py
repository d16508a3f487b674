"""A block of two types of layers: every second one has local attention."""

from functools import partial

import flax.linen as nn
import jax

from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels import attention
from bert_jax.models.layers import FeedForward, SelfAttention, norm

WINDOWS = (None, 2)


class Block(nn.Module):
    config: EncoderConfig

    @staticmethod
    def layer_types(config: EncoderConfig) -> list[int]:
        return [layer % 2 for layer in range(config.num_hidden_layers)]

    @nn.compact
    def __call__(self, hidden, context, layer_type, train: bool):
        c = self.config

        def attend(qkv, context, **options):
            branches = [partial(attention.attend, window=window, **options) for window in WINDOWS]
            return jax.lax.switch(layer_type, branches, qkv, context)

        attended = SelfAttention(c, name="attention")(hidden, context, train, attend)
        hidden = norm(c, "attention_norm")(hidden + attended)
        fed = FeedForward(c, name="feed_forward")(hidden)
        return norm(c, "feed_forward_norm")(hidden + fed)
