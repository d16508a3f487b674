"""The hidden states and the attention of single layers of a scanned encoder."""

from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.context import Context
from bert_jax.models.layer_stack import Carry, Layer, group_of, layer_types, params_of_group, type_of
from bert_jax.models.layers import STATES


def layerwise(
    encoder, batch, train: bool, states: Sequence[int] = (), **attention: Sequence[int]
) -> dict[str, list]:
    """Return intermediate results by collection: the hidden states after the layers `states`, where 0 is the
    embeddings, and `qkv` or `scores` of the layers that these keywords name, where 1 is the first layer.

    The scan carries the requested states. The others are computed anew from the states before their layer.
    """
    c = encoder.config
    hidden, context = encoder.embed_batch(batch, train)
    before = {layer - 1 for layers in attention.values() for layer in layers}
    kept = sorted((before | set(states)) - {c.num_hidden_layers})
    slots = np.array(
        [kept.index(layer) if layer in kept else -1 for layer in range(c.num_hidden_layers)], np.int32
    )
    if c.num_hidden_layers > c.groups:
        slots = slots.reshape(c.groups, -1)
    room = jnp.zeros((len(kept), *hidden.shape), hidden.dtype)
    numbered = jax.tree.map(jnp.asarray, LayerTypeAndSlot(layer_types(c), slots))
    carry, _ = encoder.layers(KeptStates(hidden, room), context, numbered, train)
    by_layer = dict(zip(kept, carry.states, strict=True))
    last = carry.hidden if encoder.final_norm is None else encoder.final_norm(carry.hidden)
    values = {STATES: [(by_layer | {c.num_hidden_layers: last})[layer] for layer in states]}
    for name, layers in attention.items():
        values[name] = [
            intermediate_of(encoder, name, layer - 1, by_layer[layer - 1], context) for layer in layers
        ]
    return values


def intermediate_of(encoder, collection: str, layer: int, hidden, context: Context):
    """Return what a layer, counted from 0, sows into the collection for these input states."""
    c = encoder.config
    params = params_of_group(encoder, group_of(c, layer))
    # The compiler removes everything else that the layer computes.
    _, kept = Layer(c, parent=None).apply(
        {"params": params}, hidden, context, type_of(c, layer), False, mutable=collection
    )
    (intermediate,) = jax.tree.leaves(kept)
    return intermediate


@flax.struct.dataclass
class LayerTypeAndSlot:
    """A layer's type, and the slot of `KeptStates.states` for the states before it; -1: none."""

    layer_type: Any
    slot: Any


@flax.struct.dataclass
class KeptStates(Carry):
    """The hidden states, and copies of the states before some of the layers."""

    hidden: Any  # [B, L, D]
    states: Any  # [slots, B, L, D]

    def after_layer(self, block, context: Context, layer_type: LayerTypeAndSlot, train: bool) -> "KeptStates":
        hidden = block(self.hidden, context, layer_type.layer_type, train)
        return KeptStates(hidden, self.store_hidden(layer_type.slot))

    def store_hidden(self, slot):
        """Return `states` with the hidden states at index `slot`; unchanged if it is -1."""
        index = jnp.maximum(slot, 0)
        own = jnp.where(slot >= 0, self.hidden, self.states[index])
        return jax.lax.dynamic_update_index_in_dim(self.states, own, index, 0)
