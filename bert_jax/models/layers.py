"""The layers that blocks and heads are made of, with BERT's initial values rather than Flax's."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models import attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.elementwise import gelu, keep, normalize
from bert_jax.models.product import add_bias, product

ACTIVATIONS: dict[str, Callable] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


def initial(config: EncoderConfig):
    """BERT's: a normal truncated at two standard deviations, without correction (0.0176 where init_stddev is 0.02)."""
    return nn.initializers.truncated_normal(config.init_stddev)


class Norm(nn.Module):
    """LayerNorm, with Flax's names."""

    epsilon: float
    dtype: str

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return normalize(x, scale, bias, self.epsilon, self.dtype)


def norm(config: EncoderConfig, name: str | None = "norm"):
    return Norm(config.norm_epsilon, config.computed_dtype, name=name)


class Dense(nn.Module):
    """A dense layer [..., *inputs] -> [..., *outputs]; its states are [..., D], however its parameters are split.

    Parameters may tell heads apart where states keep them side by side: a TPU pads a last axis of 64 to 128.
    """

    config: EncoderConfig
    outputs: tuple[int, ...]
    inputs: tuple[int, ...] = ()  # by default the states' own size
    initial: Callable = initial
    dtype: str = ""  # of the result; by default the computation's

    @nn.compact
    def __call__(self, states):
        c, rest = self.config, "abc"[: states.ndim - 1]
        inputs = self.inputs or states.shape[-1:]
        kernel = self.param("kernel", self.initial(c), inputs + self.outputs)
        bias = self.param("bias", nn.initializers.zeros, self.outputs)
        merged = (*self.outputs[:-2], math.prod(self.outputs[-2:]))
        columns = "xyz"[: len(merged)]
        kernel = kernel.reshape(math.prod(inputs), *merged)
        dtype = self.dtype or c.computed_dtype
        out = product(f"{rest}d,d{columns}->{rest}{columns}", states, kernel, c.computed_dtype, dtype)
        return add_bias(out, bias.reshape(merged))


class SelfAttention(nn.Module):
    """Hidden states -> hidden states; `attend` is attention's entry, or what a block makes of it (windows, kinds)."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, context, train: bool, attend: Callable = attention.attend):
        c = self.config
        # One product for query, key and value reads the activations once instead of three times.
        qkv = Dense(c, (3, c.heads, c.head_size), name="qkv")(hidden)
        qkv = keep(qkv)
        rate = c.attention_dropout if train else 0.0
        key = self.make_rng("dropout") if rate else None
        # Initialization runs on a row of one token, which not every kernel supports.
        kernel = "xla" if self.is_initializing() else c.attention
        out = attend(qkv, context, heads=c.heads, dropout=rate, dropout_key=key, kernel=kernel)
        return Dense(c, (c.hidden_size,), (c.heads, c.head_size), name="out")(keep(out))


class FeedForward(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        inner = ACTIVATIONS[c.activation](keep(Dense(c, (c.feed_forward,), name="in")(hidden)))
        return Dense(c, (c.hidden_size,), name="out")(inner)


class Embeddings(nn.Module):
    """Token + position + segment embeddings, normalised."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        self.words = self.param("words", initial(c), (c.padded_vocab, c.hidden_size))
        self.positions = self.param("positions", initial(c), (c.max_positions, c.hidden_size))
        self.segments = self.param("segments", initial(c), (c.segment_types, c.hidden_size))
        self.norm = norm(c, name=None)
        self.dropout = Dropout(c.dropout)

    def __call__(self, batch, train: bool):
        # take() turns an id out of range into NaN, which no later check can miss; indexing would clamp it in silence.
        x = jnp.take(self.words, batch["tokens"], axis=0)
        x += jnp.take(self.positions, positions(batch, self.config.max_positions), axis=0)
        x += jnp.take(self.segments, batch["segments"], axis=0)
        return self.dropout(self.norm(x), batch.get("rows"), train)


def positions(batch, count: int):
    """0, 1, 2 ... along each row, starting again where a new pack begins; below `count` on padding, however long.

    >>> batch = {"tokens": jnp.zeros((1, 7)), "mask": jnp.array([[1, 1, 1, 1, 0, 0, 0]])}
    >>> positions(batch | {"packs": jnp.array([[1, 1, 2, 2, 0, 0, 0]])}, count=2).tolist()
    [[0, 1, 0, 1, 0, 1, 1]]
    """
    place = jnp.broadcast_to(jnp.arange(batch["tokens"].shape[1]), batch["tokens"].shape)
    if "packs" in batch:
        packs = batch["packs"]
        begins = jnp.concatenate([jnp.ones_like(packs[:, :1], bool), packs[:, 1:] != packs[:, :-1]], axis=1)
        place -= jax.lax.cummax(jnp.where(begins, place, 0), axis=1)
    # Beyond the table the look-up gives NaN: right for a text that is too long, but padding must say nothing.
    return jnp.where(batch["mask"] > 0, place, jnp.minimum(place, count - 1))
