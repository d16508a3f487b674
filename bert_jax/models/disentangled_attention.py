"""Disentangled attention: one table of distance embeddings for all layers, which each layer projects for itself."""

from collections.abc import Callable
from dataclasses import replace

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from bert_jax.models.dropout import Dropout
from bert_jax.models.einsum import add_bias
from bert_jax.models.elementwise import save_activation
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.kernels.attention import attend
from bert_jax.models.layers import Dense, attend_and_project, default_initializer, norm
from bert_jax.models.relative_terms import RelativeTerms, row_of_distances, row_of_open_distances


class Distances(nn.Module):
    """A length -> what distances add to attention scores: biases, or embeddings that each layer projects."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, length: int) -> RelativeTerms:
        c, r = self.config, self.config.relative
        fixed = isinstance(length, int)  # an export leaves it open
        rows = (
            row_of_distances(r, length)
            if fixed
            else row_of_open_distances(r, length, c.max_position_embeddings)
        )
        if r.is_bias:
            table = self.param("table", default_initializer(c), (r.buckets, c.num_attention_heads))
            return RelativeTerms(bias=table[rows].T)
        table = self.param("table", default_initializer(c), (2 * r.span, c.hidden_size))
        states = table
        if fixed:
            # A short text has few distances. Take only their rows, so that layers do not project the others.
            met, rows = np.unique(rows, return_inverse=True)
            states = table[met]
        if r.normalized:
            states = norm(c)(states)
        return RelativeTerms(states=states, rows=jnp.asarray(rows, jnp.int32))


class DisentangledAttention(nn.Module):
    """Self-attention that also projects the embeddings of distances: to keys, for the queries of tokens, and to
    queries, for the keys of tokens. If `query_states` are given, the queries of tokens come from them."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden, context, train: bool, query_states=None):
        project = self.projection()
        qkv = project(hidden)
        if query_states is not None:
            qkv = jnp.concatenate([project(query_states)[:, :, :1], qkv[:, :, 1:]], axis=2)
        if context.relative is not None:
            context = replace(context, relative=self.projected(context.relative, project, train))
        return attend_and_project(self, attend, save_activation(qkv), context, train)

    def projection(self) -> Callable:
        """Return the function that projects states to query, key and value."""
        c = self.config
        dense = Dense(c, (3, c.num_attention_heads, c.head_size), bias=c.relative.key_bias, name="qkv")
        if c.relative.key_bias:
            return dense
        bias = self.param("bias", nn.initializers.zeros, (2, c.num_attention_heads, c.head_size))
        whole = jnp.stack([bias[0], jnp.zeros_like(bias[0]), bias[1]]).reshape(3, c.hidden_size)
        return lambda states: add_bias(dense(states), whole)

    def projected(self, relative: RelativeTerms, project: Callable, train: bool) -> RelativeTerms:
        c, r = self.config, self.config.relative
        states = Dropout(c.hidden_dropout_prob)(relative.states, None, train)
        if r.shared:
            both = project(states)
            parts = {"queries": both[:, 0], "keys": both[:, 1]}
        else:
            shape = (c.num_attention_heads, c.head_size)
            biased = {"keys": r.key_bias, "queries": True}
            parts = {
                name: Dense(c, shape, bias=biased[name], name=f"distance_{name}")(states) for name in r.terms
            }
        return replace(
            relative,
            **{name: parts[name].reshape(-1, c.num_attention_heads, c.head_size) for name in r.terms},
        )
