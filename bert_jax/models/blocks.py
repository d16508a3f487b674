"""Blocks: one layer of an encoder. A block maps hidden states to hidden states; config.block names it."""

import flax.linen as nn

from bert_jax.models import attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.layers import ACTIVATIONS, dense, norm


class SelfAttention(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, mask, packs, rows, train: bool):
        c = self.config
        # One product for query, key and value reads the activations once instead of three times.
        qkv = dense(c, (3, c.heads, c.head_size), "qkv")(hidden)  # [B, L, 3, H, K]
        rate = c.attention_dropout if train else 0.0
        out = attention.attend(
            qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], mask, packs,
            dropout=rate, dropout_key=self.make_rng("dropout") if rate else None, rows=rows, kernel=c.attention,
        )  # fmt: skip
        return dense(c, c.hidden_size, "out", axis=(-2, -1))(out)


class FeedForward(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        inner = ACTIVATIONS[c.activation](dense(c, c.feed_forward, "in")(hidden))
        return dense(c, c.hidden_size, "out")(inner)


class PostNorm(nn.Module):
    """BERT's block: each part is added to its input, and the sum normalised."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, mask, packs, rows, train: bool):
        c = self.config
        dropout = Dropout(c.dropout)
        hidden = norm(c, "attention_norm")(
            hidden
            + dropout(SelfAttention(c, name="attention")(hidden, mask, packs, rows, train), rows, train)
        )
        return norm(c, "feed_forward_norm")(
            hidden + dropout(FeedForward(c, name="feed_forward")(hidden), rows, train)
        )


BLOCKS = {"post_norm": PostNorm}
