"""The layers that blocks and heads consist of, with BERT's initial values instead of Flax's."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from bert_jax.models.adapted_kernel import multiply
from bert_jax.models.dropout import Dropout
from bert_jax.models.einsum import add_bias
from bert_jax.models.elementwise import gelu, normalize, save_activation, scale_by_rms
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels import attention, xla_attention
from bert_jax.models.kernels.request import masked_segment_ids, split_qkv, unstack
from bert_jax.models.mesh import FSDP, TENSOR, device_kind
from bert_jax.models.rotary import rotate

ACTIVATIONS: dict[str, Callable] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}

# Flax collections: hidden states, attention weights, and the qkv and scores that the weights are computed from. A
# program requests them by making a collection mutable. Layers must be unrolled, because a scan keeps nothing of its
# steps; for scanned layers, use `layer_states.layerwise`.
STATES, WEIGHTS, QKV, SCORES = "states", "weights", "qkv", "scores"

# On these chips XLA keeps an array of so many bytes on the chip, beside its gradient; of 50 MB it does not. On a v4 it
# does not either way.
PARTS_ON, ON_CHIP = "TPU v5 lite", 2**25
MOST_PARTS = 4  # into which a larger array is split; more were not tried


def default_initializer(config: EncoderConfig):
    """Return BERT's initialiser: a normal truncated at two standard deviations, uncorrected (0.02 becomes 0.0176)."""
    return nn.initializers.truncated_normal(config.initializer_range)


def residual_initializer(config: EncoderConfig):
    """Return the initialiser of layers that add to hidden states.

    With `scaled_init`, the spread of hidden states does not grow with the number of layers.
    """
    layers = 2 * config.num_hidden_layers if config.scaled_init else 1
    return nn.initializers.truncated_normal(config.initializer_range / layers**0.5)


class LayerNorm(nn.Module):
    """LayerNorm, with the parameter names of Flax."""

    epsilon: float
    dtype: str
    bias: bool = True

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        zeros = nn.initializers.zeros
        bias = self.param("bias", zeros, x.shape[-1:]) if self.bias else jnp.zeros(x.shape[-1:])
        return normalize(x, scale, bias, self.epsilon, self.dtype)


class RMSNorm(nn.Module):
    epsilon: float
    dtype: str

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        return scale_by_rms(x, scale, self.epsilon, self.dtype)


def norm(config: EncoderConfig, name: str | None = "norm") -> nn.Module:
    if config.rms_norm:
        return RMSNorm(config.layer_norm_eps, config.computed_dtype, name=name)
    return LayerNorm(config.layer_norm_eps, config.computed_dtype, config.norm_bias, name=name)


class Dense(nn.Module):
    """A dense layer with a kernel [*inputs, *outputs], for states [..., D].

    Parameters may have an axis of heads. States keep heads side by side in their last axis, because a TPU pads a last
    axis of 64 to 128: the last two of three `outputs` axes are merged in the result.
    """

    config: EncoderConfig
    outputs: tuple[int, ...]
    inputs: tuple[int, ...] = ()  # by default the size of the states
    initial: Callable = default_initializer
    dtype: str = ""  # the type of the result; by default that of the computation
    bias: bool = True

    @nn.compact
    def __call__(self, states):
        c = self.config
        inputs = self.inputs or states.shape[-1:]
        kernel = self.param("kernel", self.initial(c), inputs + self.outputs)
        bias = self.param("bias", nn.initializers.zeros, self.outputs) if self.bias else None
        *outer, last = self.outputs
        merged = (*outer[:-1], outer[-1] * last) if len(outer) > 1 else self.outputs
        out = multiply(states, kernel, merged, c.computed_dtype, self.dtype or c.computed_dtype)
        return out if bias is None else add_bias(out, bias.reshape(merged))


class SelfAttention(nn.Module):
    """Hidden states -> hidden states. A block may pass its own `attend`, such as one with a window.

    `rotary_index` is the index of the layer's rotary table.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, context, train: bool, attend: Callable = attention.attend, rotary_index=0):
        qkv = save_activation(self.project(hidden))
        if context.rotary is not None:
            qkv = rotate(qkv, context.rotary[rotary_index])
        return attend_and_project(self, attend, qkv, context, train)

    def project(self, hidden):
        """Return query, key and value [B, L, 3, H x K]."""
        c = self.config
        if not c.num_key_value_heads:
            # One product for query, key and value reads the activations once, not three times.
            return Dense(c, (3, c.num_attention_heads, c.head_size), bias=c.bias, name="qkv")(hidden)
        query = Dense(c, (1, c.num_attention_heads, c.head_size), bias=c.bias, name="query")(hidden)
        shared = Dense(c, (2, c.num_key_value_heads, c.head_size), bias=c.bias, name="key_value")(hidden)
        return jnp.concatenate([query, repeat_heads(shared, c)], axis=2)


def attend_and_project(module: nn.Module, attend: Callable, qkv, context, train: bool):
    """Return the output of a module's attention, after its last dense layer."""
    c = module.config
    heads = c.num_attention_heads
    sow_attention(module, attend, qkv, context)
    rate = c.attention_probs_dropout_prob if train else 0.0
    key = module.make_rng("dropout") if rate else None
    # Initialisation runs on a row of one token, which not every kernel supports.
    kernel = "xla" if module.is_initializing() else c.attention
    out = attend(qkv, context, heads=heads, dropout=rate, dropout_key=key, kernel=kernel)
    project = Dense(c, (c.hidden_size,), (heads, c.head_size), residual_initializer, bias=c.bias, name="out")
    return project(save_activation(out))


def repeat_heads(shared, c: EncoderConfig):
    """Repeat keys and values [B, L, 2, G x K] for the heads of queries that share them: [B, L, 2, H x K]."""
    B, L, parts, _ = shared.shape
    repeats = c.num_attention_heads // c.num_key_value_heads
    apart = shared.reshape(B, L, parts, c.num_key_value_heads, 1, c.head_size)
    return jnp.repeat(apart, repeats, axis=4).reshape(B, L, parts, c.hidden_size)


def sow_attention(module: nn.Module, attend: Callable, qkv, context) -> None:
    """Sow the attention weights, and the qkv and scores that they are computed from, if requested."""
    c = module.config
    if is_requested(module, QKV):
        module.sow(QKV, "kept", qkv)
    if is_requested(module, SCORES):
        q, k, _ = split_qkv(qkv, c.head_size)
        module.sow(SCORES, "kept", xla_attention.attention_scores(q, k, context, c.computed_dtype))
    if is_requested(module, WEIGHTS):
        exact = partial(attend, context=context, heads=c.num_attention_heads, kernel="xla")
        module.sow(WEIGHTS, "kept", recover_attention_weights(exact, qkv, c.num_attention_heads))


class FeedForward(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        activation = ACTIVATIONS[c.hidden_act]
        outputs, name = ((2, c.intermediate_size), "gated") if c.gated else ((c.intermediate_size,), "in")
        widen = Dense(c, outputs, bias=c.bias and not c.gated, name=name)
        narrow = Dense(c, (c.hidden_size,), initial=residual_initializer, bias=c.bias, name="out")

        def feed(states):
            wide = save_activation(widen(states))
            if not c.gated:
                return narrow(activation(wide))
            activated, gate = unstack(wide)
            return narrow(activation(activated) * gate)

        count = count_parts(hidden.shape, math.prod(outputs), c.computed_dtype)
        if count == 1:
            return feed(hidden)
        # The tokens of a row, not the rows, which a mesh may split.
        return jnp.concatenate([feed(part) for part in jnp.split(hidden, count, axis=1)], axis=1)


def count_parts(shape: tuple[int, ...], width: int, dtype: str) -> int:
    """Return into how many equal parts hidden states [B, L, D] are split along L, so that `width` numbers per token
    stay on the chip between two products, not in HBM."""
    rows, length, _ = shape
    if device_kind() != PARTS_ON or not isinstance(length, int):  # an export leaves the length open
        return 1
    mesh = jax.sharding.get_abstract_mesh()
    shards = 1 if mesh.empty else mesh.shape[FSDP] * mesh.shape[TENSOR]
    count = -(-rows * length * width * jnp.dtype(dtype).itemsize // (shards * ON_CHIP))
    return next((parts for parts in range(max(count, 1), MOST_PARTS + 1) if length % parts == 0), 1)


@flax.struct.dataclass
class Convolved:
    states: Any  # [B, L, D]
    scale: Any
    bias: Any
    epsilon: float = flax.struct.field(pytree_node=False)

    def join(self, hidden):
        return normalize(hidden + self.states, self.scale, self.bias, self.epsilon, str(hidden.dtype))


class Convolution(nn.Module):
    """A convolution of the embeddings over neighbouring tokens of the same text."""

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


def is_requested(module: nn.Module, collection: str) -> bool:
    """Return whether a module should `sow` into the collection."""
    return module.is_mutable_collection(collection) and not module.is_initializing()


def recover_attention_weights(attend: Callable, qkv, heads: int):
    """Return the attention weights [B, H, L, L] of `attend`, a function of qkv [B, L, 3, H x K].

    They are its outputs if the values are the rows of the unit matrix. So this works for any attention, whatever it
    adds to scores or masks.
    """
    B, L, _, width = qkv.shape
    size = width // heads
    parts = []
    for first in range(0, L, size):  # values hold `size` columns of the matrix at a time
        unit = jnp.tile(jnp.eye(L, size, -first, dtype=qkv.dtype), heads)
        values = jnp.broadcast_to(unit[None, :, None], (B, L, 1, width))
        out = attend(jnp.concatenate([qkv[:, :, :2], values], axis=2))
        parts.append(out.reshape(B, L, heads, size))
    return jnp.concatenate(parts, axis=-1)[..., :L].transpose(0, 2, 1, 3)
