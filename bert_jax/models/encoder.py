"""The encoder: embeddings, then blocks, as a pure function of (params, batch, rng)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import data_sharded, rotary
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.context import Context
from bert_jax.models.disentangled_attention import Distances
from bert_jax.models.elementwise import SAVED
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import STATES, Convolution, Embeddings, is_requested, norm
from bert_jax.models.relative_terms import alibi_terms
from bert_jax.text.tokenizer import ENCODER_INPUTS


def is_cudnn_attention(primitive, *_, **__) -> bool:
    """Return whether a primitive is cuDNN's attention, whose result cannot be named for a checkpoint policy."""
    return primitive.name.startswith("dot_product_attention_fwd")


REMAT = {
    "none": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.save_only_these_names(SAVED), is_cudnn_attention
    ),
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def dummy_batch() -> dict[str, np.ndarray]:
    """Return a batch of one row with one token, for making initial values and shapes."""
    return {name: np.zeros((1, 1), np.int32) for name in ENCODER_INPUTS}


class Encoder(nn.Module):
    """An encoder: batch -> hidden states [B, L, D].

    If `unrolled`, it takes parameters as `unroll_layers` returns them. A scan would copy the parameters of each
    layer before using them.
    """

    config: EncoderConfig
    unrolled: bool = False

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        if c.relative.terms:
            self.distances = Distances(c)
        if c.convolution.width:
            self.convolution = Convolution(c)
        if self.unrolled:
            self.layers = [TracedOnce(c) for _ in range(c.groups)]
        elif c.groups:
            self.layers = scanned_layers(c)
        self.final_norm = norm(c, name=None) if normalizes_last(c) else None

    def __call__(self, batch, train: bool = False, decodes: bool = False):
        """Return the hidden states; if `decodes`, a pair of them and the states of the enhanced mask decoder."""
        c, types_by_layer = self.config, layer_types(self.config)
        hidden, context = self.embed_batch(batch, train)
        carry = (hidden, hidden) if decodes else hidden
        if is_requested(self, STATES):
            self.sow(STATES, "kept", hidden)
        if self.unrolled:
            for i in range(c.num_hidden_layers):
                layer_type = None if types_by_layer is None else types_by_layer.reshape(-1)[i].item()
                carry, _ = self.layers[i // (c.num_hidden_layers // c.groups)](
                    carry, context, layer_type, train
                )
                if is_requested(self, STATES):
                    self.sow(STATES, "kept", carry)
        elif c.groups:
            scanned = None if types_by_layer is None else jnp.asarray(types_by_layer)
            carry, _ = self.layers(carry, context, scanned, train)
        if decodes:
            hidden, penultimate = carry
            return hidden, self.decode_masked(penultimate, batch, context, train)
        return carry if self.final_norm is None else self.final_norm(carry)

    def embed_batch(self, batch, train: bool):
        """Return (embeddings, context of all layers)."""
        c = self.config
        context = Context.from_batch(batch, rotary.rotary_tables(c, batch["input_ids"].shape[1]))
        hidden = self.embeddings(batch, train)
        if c.relative.terms:
            context = replace(context, relative=self.distances(hidden.shape[1]))
        elif c.positions == "alibi":
            context = replace(context, relative=alibi_terms(c.num_attention_heads, hidden.shape[1]))
        if c.convolution.width:
            context = replace(context, convolved=self.convolution(hidden, context, train))
        return hidden, context

    def layerwise(
        self, batch, train: bool, states: Sequence[int] = (), **attention: Sequence[int]
    ) -> dict[str, list]:
        """Return intermediate results by collection: the hidden states after the layers `states`, where 0 is the
        embeddings, and `qkv` or `scores` of the layers that these keywords name, where 1 is the first layer.

        The scan carries the requested states. The others are computed anew from the states before their layer.
        """
        c, types_by_layer = self.config, layer_types(self.config)
        hidden, context = self.embed_batch(batch, train)
        before = {layer - 1 for layers in attention.values() for layer in layers}
        kept = sorted((before | set(states)) - {c.num_hidden_layers})
        slots = np.array(
            [kept.index(layer) if layer in kept else -1 for layer in range(c.num_hidden_layers)], np.int32
        )
        if c.num_hidden_layers > c.groups:
            slots = slots.reshape(c.groups, -1)
        room = jnp.zeros((len(kept), *hidden.shape), hidden.dtype)
        numbered = jax.tree.map(jnp.asarray, LayerTypeAndSlot(types_by_layer, slots))
        carry, _ = self.layers(KeptStates(hidden, room), context, numbered, train)
        by_layer = dict(zip(kept, carry.states, strict=True))
        last = carry.hidden if self.final_norm is None else self.final_norm(carry.hidden)
        values = {STATES: [(by_layer | {c.num_hidden_layers: last})[layer] for layer in states]}
        for name, layers in attention.items():
            values[name] = [
                self.intermediate_of(name, layer - 1, by_layer[layer - 1], context) for layer in layers
            ]
        return values

    def intermediate_of(self, collection: str, layer: int, hidden, context: Context):
        """Return what a layer, counted from 0, sows into the collection for these input states."""
        c, types_by_layer = self.config, layer_types(self.config)
        layer_type = None if types_by_layer is None else types_by_layer.reshape(-1)[layer].item()
        params = self.params_of(layer // (c.num_hidden_layers // c.groups))
        # The compiler removes everything else that the layer computes.
        _, kept = Layer(c, parent=None).apply(
            {"params": params}, hidden, context, layer_type, False, mutable=collection
        )
        (intermediate,) = jax.tree.leaves(kept)
        return intermediate

    def params_of(self, group: int):
        layers = self.variables["params"]["layers"]
        return data_sharded.to_arrays(jax.tree.map(lambda leaf: leaf[group], layers))

    def decode_masked(self, penultimate, batch, context: Context, train: bool):
        """Return the states of DeBERTa's enhanced mask decoder: it applies the last layer twice more.

        Keys and values come from the states before that layer. Queries come from the same states plus their position
        embeddings, then from the decoder's own first output.
        """
        if self.is_initializing():
            return penultimate
        context = replace(context, convolved=None)
        query_states = (penultimate + self.embeddings.position_embeddings(batch)).astype(penultimate.dtype)
        for _ in range(2):
            query_states = self.last_layer(penultimate, context, train, query_states)
        return query_states

    def last_layer(self, hidden, context: Context, train: bool, query_states):
        if self.unrolled:
            return self.layers[-1].decode(hidden, context, train, query_states)
        params = self.params_of(-1)
        rngs = {"dropout": self.make_rng("dropout")} if self.has_rng("dropout") else {}
        layer = Layer(self.config, parent=None)

        def run(params, hidden, context, query_states, rngs):
            return layer.apply(
                {"params": params}, hidden, context, train, query_states, method="decode", rngs=rngs
            )

        remat = jax.checkpoint(run, policy=REMAT[self.config.remat])
        return remat(params, hidden, context, query_states, rngs)


def unroll_layers(params: dict) -> dict:
    """Return an encoder's parameters with an entry for each group of layers (layers_0, ...), not stacked arrays."""
    leaves, structure = jax.tree.flatten(params.get("layers", {}))
    layers = {
        f"layers_{i}": jax.tree.unflatten(structure, own) for i, own in enumerate(zip(*leaves, strict=True))
    }
    return {name: part for name, part in params.items() if name != "layers"} | layers


def stack_layers(params: dict) -> dict:
    """Stack the parameters of layers again: the inverse of `unroll_layers`."""
    parts = dict(params)
    layers = [parts.pop(f"layers_{i}") for i in range(sum(name.startswith("layers_") for name in params))]
    return parts | ({"layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)} if layers else {})


def scanned_layers(c: EncoderConfig) -> nn.Module:
    """Return one traced layer, scanned, so that a 24-layer model compiles as fast as a 1-layer model.

    Parameters are [G, ...] for G groups of layers, by default one group per layer. The layers of a group share its
    parameters, by a scan within the scan.
    """
    layer = nn.map_variables(Layer, "params", trans_in_fn=data_sharded.to_arrays, init=True)
    layer = nn.remat(layer, policy=REMAT[c.remat], prevent_cse=False, static_argnums=(4,))
    in_axes = (nn.broadcast, 0, nn.broadcast)
    if c.num_hidden_layers > c.groups:
        layer = nn.scan(
            layer,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
            in_axes=in_axes,
            length=c.num_hidden_layers // c.groups,
            unroll=c.num_hidden_layers // c.groups if c.unroll else 1,
        )
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=in_axes,
        length=c.groups,
        unroll=c.groups if c.unroll else 1,
    )(c)


def layer_types(c: EncoderConfig):
    """Return the type of each layer as a number, [N] or [G, N / G]; None if the block has only one type of layer."""
    block = BLOCKS[c.block]
    if not hasattr(block, "layer_types"):
        return None
    each_layer = np.asarray(block.layer_types(c), np.int32)
    return each_layer.reshape(c.groups, -1) if c.num_hidden_layers > c.groups else each_layer


def normalizes_last(c: EncoderConfig) -> bool:
    """Return whether a LayerNorm follows the last layer, because layers do not normalise their outputs."""
    return getattr(BLOCKS[c.block], "normalizes_last", False)


@flax.struct.dataclass
class KeptStates:
    """The hidden states, and copies of the states before some of the layers."""

    hidden: Any  # [B, L, D]
    states: Any  # [slots, B, L, D]

    def store_hidden(self, slot):
        """Return `states` with the hidden states at index `slot`; unchanged if it is -1."""
        index = jnp.maximum(slot, 0)
        own = jnp.where(slot >= 0, self.hidden, self.states[index])
        return jax.lax.dynamic_update_index_in_dim(self.states, own, index, 0)


@flax.struct.dataclass
class LayerTypeAndSlot:
    """A layer's type, and the slot of `KeptStates.states` for the states before it; -1: none."""

    layer_type: Any
    slot: Any


class Layer(nn.Module):
    """The configured block in the (carry, output) form that a scan needs, without an extra level of parameter names."""

    config: EncoderConfig

    def setup(self):
        self.block = BLOCKS[self.config.block](self.config)
        nn.share_scope(self, self.block)

    def __call__(self, carry, context, layer_type, train: bool):
        """`carry` is the hidden states, or a pair of them and the states before the previous layer, or `KeptStates`."""
        if isinstance(carry, KeptStates):
            return KeptStates(
                self.block(carry.hidden, context, layer_type.layer_type, train),
                carry.store_hidden(layer_type.slot),
            ), None
        if not isinstance(carry, tuple):
            return self.block(carry, context, layer_type, train), None
        hidden, _ = carry
        return (self.block(hidden, context, layer_type, train), hidden), None

    def decode(self, hidden, context, train: bool, query_states):
        """Apply the block with other queries, as the enhanced mask decoder does."""
        return self.block(hidden, context, None, train, query_states)


TracedOnce = nn.jit(Layer, static_argnums=(3, 4), methods=["__call__"])  # for all layers of a type
