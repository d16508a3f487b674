"""DeBERTa's block: that of BERT with relative attention; the first layer adds a convolution of the embeddings."""

import flax.linen as nn
import jax

from bert_jax.models.disentangled_attention import DisentangledAttention
from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import save_activation
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import FeedForward, norm

FIRST = 1


class Block(nn.Module):
    config: EncoderConfig

    @staticmethod
    def layer_types(config: EncoderConfig) -> list[int]:
        return [FIRST] + [0] * (config.num_hidden_layers - 1)

    @nn.compact
    def __call__(self, hidden, context, layer_type, train: bool, query_states=None):
        c, rows = self.config, context.rows
        dropout = Dropout(c.hidden_dropout_prob)
        attended = DisentangledAttention(c, name="attention")(hidden, context, train, query_states)
        query_states = hidden if query_states is None else query_states
        hidden = norm(c, "attention_norm")(save_activation(query_states + dropout(attended, rows, train)))
        fed = dropout(FeedForward(c, name="feed_forward")(hidden), rows, train)
        hidden = norm(c, "feed_forward_norm")(save_activation(hidden + fed))
        if context.convolved is None:
            return hidden
        return jax.lax.cond(layer_type == FIRST, context.convolved.join, lambda states: states, hidden)
