"""Blocks: one layer of an encoder. A block maps hidden states to hidden states; config.block names it."""

import math

import flax.linen as nn
import jax
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models import attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import KEPT
from bert_jax.models.layers import ACTIVATIONS, dense, initial, norm


class SelfAttention(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, mask, packs, rows, train: bool):
        c = self.config
        # One product for query, key and value reads the activations once instead of three times.
        qkv = Product(c, (c.hidden_size,), (3, c.heads, c.head_size), name="qkv")(hidden)
        qkv = checkpoint_name(qkv, KEPT)
        rate = c.attention_dropout if train else 0.0
        # Initial values are made with a row of one token, on whatever is at hand.
        kernel = "xla" if self.is_initializing() else c.attention
        out = attention.attend(
            qkv, mask, packs, heads=c.heads,
            dropout=rate, dropout_key=self.make_rng("dropout") if rate else None, rows=rows, kernel=kernel,
        )  # fmt: skip
        out = checkpoint_name(out, KEPT)
        return Product(c, (c.heads, c.head_size), (c.hidden_size,), name="out")(out)


class Product(nn.Module):
    """A dense layer whose parameters tell heads apart while the states keep them side by side.

    [B, L, in] -> [B, L, out], or [B, L, 3, out]. A TPU pads a last axis of 64 to 128: states are not given one.
    """

    config: EncoderConfig
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @nn.compact
    def __call__(self, states):
        c = self.config
        kernel = self.param("kernel", initial(c), self.inputs + self.outputs)
        bias = self.param("bias", nn.initializers.zeros, self.outputs)
        together = (*self.outputs[:-2], math.prod(self.outputs[-2:]))
        kernel = kernel.reshape(math.prod(self.inputs), *together).astype(c.dtype)
        out = jax.lax.dot_general(states.astype(c.dtype), kernel, (((2,), (0,)), ((), ())))
        return out + bias.reshape(together).astype(c.dtype)


class FeedForward(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        inner = ACTIVATIONS[c.activation](checkpoint_name(dense(c, c.feed_forward, "in")(hidden), KEPT))
        return dense(c, c.hidden_size, "out")(inner)


class PostNorm(nn.Module):
    """BERT's block: each part is added to its input, and the sum normalised."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, mask, packs, rows, train: bool):
        c = self.config
        dropout = Dropout(c.dropout)
        attended = dropout(SelfAttention(c, name="attention")(hidden, mask, packs, rows, train), rows, train)
        hidden = norm(c, "attention_norm")(checkpoint_name(hidden + attended, KEPT))
        fed = dropout(FeedForward(c, name="feed_forward")(hidden), rows, train)
        return norm(c, "feed_forward_norm")(checkpoint_name(hidden + fed, KEPT))


BLOCKS = {"post_norm": PostNorm}
