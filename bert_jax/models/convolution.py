"""A convolution of the embeddings over neighbouring tokens of the same text."""

from typing import Any

import flax.linen as nn
import flax.struct
import jax.numpy as jnp

from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import normalize
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels.request import masked_segment_ids
from bert_jax.models.layers import ACTIVATIONS, Dense


@flax.struct.dataclass
class Convolved:
    states: Any  # [B, L, D]
    scale: Any
    bias: Any
    epsilon: float = flax.struct.field(pytree_node=False)

    def join(self, hidden):
        return normalize(hidden + self.states, self.scale, self.bias, self.epsilon, str(hidden.dtype))


class Convolution(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, embeddings, context, train: bool) -> Convolved:
        c, width = self.config, self.config.convolution.width
        near = [
            neighbour(embeddings, masked_segment_ids(context), column - width // 2) for column in range(width)
        ]
        states = Dense(c, (c.hidden_size,), (width, c.hidden_size), name="dense")(jnp.concatenate(near, -1))
        states = ACTIVATIONS[c.convolution.activation](
            Dropout(c.hidden_dropout_prob)(states, context.rows, train)
        )
        scale = self.param("scale", nn.initializers.ones, (c.hidden_size,))
        bias = self.param("bias", nn.initializers.zeros, (c.hidden_size,))
        return Convolved(states, scale, bias, c.layer_norm_eps)


def neighbour(states, segment_ids, offset: int):
    """Shift states [B, L, D]: each token gets the state `offset` positions after it, or zeros outside its text.

    >>> neighbour(jnp.array([[[1], [2], [3], [4]]]), jnp.array([[1, 1, 2, 0]]), 1)[0, :, 0].tolist()
    [2, 0, 0, 0]
    """
    position = jnp.arange(states.shape[1]) + offset
    inside = (position >= 0) & (position < states.shape[1])
    same = inside & (segment_ids > 0) & (jnp.roll(segment_ids, -offset, axis=1) == segment_ids)
    return jnp.where(same[..., None], jnp.roll(states, -offset, axis=1), 0)
