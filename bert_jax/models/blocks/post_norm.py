"""BERT's block: the output of each part is added to its input, and the sum is normalised (post-norm)."""

import flax.linen as nn

from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import save_activation
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import FeedForward, SelfAttention, norm


class Block(nn.Module):
    config: EncoderConfig
    feed_forward_dropout = True

    @nn.compact
    def __call__(self, hidden, context, layer_type, train: bool):
        c, rows = self.config, context.rows
        dropout = Dropout(c.hidden_dropout_prob)
        attended = dropout(SelfAttention(c, name="attention")(hidden, context, train), rows, train)
        hidden = norm(c, "attention_norm")(save_activation(hidden + attended))
        fed = FeedForward(c, name="feed_forward")(hidden)
        if self.feed_forward_dropout:
            fed = dropout(fed, rows, train)
        return norm(c, "feed_forward_norm")(save_activation(hidden + fed))
