"""ALBERT's block: that of BERT, without dropout after the feed-forward."""

import flax.linen as nn

from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import save_activation
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import FeedForward, SelfAttention, norm


class Block(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, context, layer_type, train: bool):
        c = self.config
        attended = SelfAttention(c, name="attention")(hidden, context, train)
        attended = Dropout(c.hidden_dropout_prob)(attended, context.rows, train)
        hidden = norm(c, "attention_norm")(save_activation(hidden + attended))
        return norm(c, "feed_forward_norm")(
            save_activation(hidden + FeedForward(c, name="feed_forward")(hidden))
        )
