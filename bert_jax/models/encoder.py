"""The encoder: embeddings, then blocks, as a pure function of (params, batch, rng)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import rotary, shared
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.config import EncoderConfig
from bert_jax.models.context import Context
from bert_jax.models.convolution import Convolution
from bert_jax.models.disentangled import Distances
from bert_jax.models.elementwise import KEPT
from bert_jax.models.intermediates import STATES, asked
from bert_jax.models.layers import Embeddings, norm


def of_cudnn(primitive, *_, **__) -> bool:
    """What cuDNN's attention gives cannot be named from outside."""
    return primitive.name.startswith("dot_product_attention_fwd")


REMAT = {
    "none": jax.checkpoint_policies.save_from_both_policies(
        jax.checkpoint_policies.save_only_these_names(KEPT), of_cudnn
    ),
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


def dummy_batch() -> dict[str, np.ndarray]:
    """One row of one token: what initial values and shapes are made with."""
    return {name: np.zeros((1, 1), np.int32) for name in ("tokens", "segments", "mask")}


class Encoder(nn.Module):
    """Batch -> hidden states [B, L, D].

    `unrolled`, it takes parameters as `unroll` gives them: a scan would copy those of each layer before it uses them.
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
        self.layers = [Layer(c) for _ in range(c.groups)] if self.unrolled else scanned_layers(c)
        self.final_norm = norm(c, name=None) if normalizes_last(c) else None

    def __call__(self, batch, train: bool = False, decodes: bool = False):
        """With `decodes` a pair: the hidden states, and what the enhanced mask decoder makes for the masked LM."""
        c, of_layers = self.config, kinds(self.config)
        hidden, context = self.embedded(batch, train)
        carry = (hidden, hidden) if decodes else hidden
        if asked(self, STATES):
            self.sow(STATES, "kept", hidden)
        if self.unrolled:
            for i in range(c.layers):
                kind = None if of_layers is None else of_layers.reshape(-1)[i].item()
                carry, _ = self.layers[i // (c.layers // c.groups)](carry, context, kind, train)
                if asked(self, STATES):
                    self.sow(STATES, "kept", carry)
        else:
            scanned = None if of_layers is None else jnp.asarray(of_layers)
            carry, _ = self.layers(carry, context, scanned, train)
        if decodes:
            hidden, before = carry
            return hidden, self.decoded(before, batch, context, train)
        return carry if self.final_norm is None else self.final_norm(carry)

    def embedded(self, batch, train: bool):
        """(the embeddings, what all layers share)"""
        c = self.config
        context = Context.of(batch, rotary.tables(c, batch["tokens"].shape[1]))
        hidden = self.embeddings(batch, train)
        if c.relative.terms:
            context = replace(context, relative=self.distances(hidden.shape[1]))
        if c.convolution.width:
            context = replace(context, convolved=self.convolution(hidden, context, train))
        return hidden, context

    def layerwise(
        self, batch, train: bool, states: Sequence[int] = (), **attention: Sequence[int]
    ) -> dict[str, list]:
        """The hidden states of those layers, 0 being the embeddings, and of what attention is made of (qkv=, scores=)
        that of those layers, 1 being the first.

        The scan carries the states that are asked for. The rest is computed once more, of the states before its layer.
        """
        c, of_layers = self.config, kinds(self.config)
        hidden, context = self.embedded(batch, train)
        before = {layer - 1 for layers in attention.values() for layer in layers}
        kept = sorted((before | set(states)) - {c.layers})
        slots = np.array([kept.index(layer) if layer in kept else -1 for layer in range(c.layers)], np.int32)
        if c.layers > c.groups:
            slots = slots.reshape(c.groups, -1)
        room = jnp.zeros((len(kept), *hidden.shape), hidden.dtype)
        numbered = jax.tree.map(jnp.asarray, Numbered(of_layers, slots))
        carry, _ = self.layers(Picked(hidden, room), context, numbered, train)
        by_layer = dict(zip(kept, carry.states, strict=True))
        last = carry.hidden if self.final_norm is None else self.final_norm(carry.hidden)
        values = {STATES: [(by_layer | {c.layers: last})[layer] for layer in states]}
        for name, layers in attention.items():
            values[name] = [self.noted(name, layer - 1, by_layer[layer - 1], context) for layer in layers]
        return values

    def noted(self, collection: str, layer: int, hidden, context: Context):
        """What a layer, counted from 0, keeps in the collection of these states before it."""
        c, of_layers = self.config, kinds(self.config)
        kind = None if of_layers is None else of_layers.reshape(-1)[layer].item()
        params = self.params_of(layer // (c.layers // c.groups))
        # All that the layer computes beyond it is dead code to the compiler.
        _, kept = Layer(c, parent=None).apply(
            {"params": params}, hidden, context, kind, False, mutable=collection
        )
        (noted,) = jax.tree.leaves(kept)
        return noted

    def params_of(self, group: int):
        layers = self.variables["params"]["layers"]
        return shared.read(jax.tree.map(lambda leaf: leaf[group], layers))

    def decoded(self, before, batch, context: Context, train: bool):
        """DeBERTa's enhanced mask decoder: the last layer twice more, which reads the states before it, and asks with
        those and their positions first, then with its own answer."""
        if self.is_initializing():
            return before
        context = replace(context, convolved=None)
        asking = (before + self.embeddings.places(batch)).astype(before.dtype)
        for _ in range(2):
            asking = self.last_layer(before, context, train, asking)
        return asking

    def last_layer(self, hidden, context: Context, train: bool, asking):
        if self.unrolled:
            return self.layers[-1].ask(hidden, context, train, asking)
        params = self.params_of(-1)
        rngs = {"dropout": self.make_rng("dropout")} if self.has_rng("dropout") else {}
        layer = Layer(self.config, parent=None)

        def run(params, hidden, context, asking, rngs):
            return layer.apply({"params": params}, hidden, context, train, asking, method="ask", rngs=rngs)

        remat = jax.checkpoint(run, policy=REMAT[self.config.remat])
        return remat(params, hidden, context, asking, rngs)


def unroll(params: dict) -> dict:
    """An encoder's parameters with an entry for each group of layers, layers_0 and so on, instead of stacked ones."""
    leaves, structure = jax.tree.flatten(params["layers"])
    layers = {
        f"layers_{i}": jax.tree.unflatten(structure, own) for i, own in enumerate(zip(*leaves, strict=True))
    }
    return {name: part for name, part in params.items() if name != "layers"} | layers


def stack(params: dict) -> dict:
    """The opposite of `unroll`."""
    parts = dict(params)
    layers = [parts.pop(f"layers_{i}") for i in range(sum(name.startswith("layers_") for name in params))]
    return parts | {"layers": jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)}


def scanned_layers(c: EncoderConfig) -> nn.Module:
    """One traced layer, scanned: a 24-layer model compiles as fast as a 1-layer one.

    Parameters are [G, ...] for G groups of layers, by default one group a layer. The layers of a group share its
    parameters: a scan within the scan.
    """
    layer = nn.map_variables(Layer, "params", trans_in_fn=shared.read, init=True)
    layer = nn.remat(layer, policy=REMAT[c.remat], prevent_cse=False, static_argnums=(4,))
    in_axes = (nn.broadcast, 0, nn.broadcast)
    if c.layers > c.groups:
        layer = nn.scan(
            layer,
            variable_broadcast="params",
            split_rngs={"params": False, "dropout": True},
            in_axes=in_axes,
            length=c.layers // c.groups,
            unroll=c.layers // c.groups if c.unroll else 1,
        )
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True, "dropout": True},
        in_axes=in_axes,
        length=c.groups,
        unroll=c.groups if c.unroll else 1,
    )(c)


def kinds(c: EncoderConfig):
    """A number for each layer, [N] or [G, N / G]; None for a block whose layers are all of one kind."""
    block = BLOCKS[c.block]
    if not hasattr(block, "kinds"):
        return None
    each_layer = np.asarray(block.kinds(c), np.int32)
    return each_layer.reshape(c.groups, -1) if c.layers > c.groups else each_layer


def normalizes_last(c: EncoderConfig) -> bool:
    """Whether a LayerNorm follows the last layer, because layers leave their sums as they are."""
    return getattr(BLOCKS[c.block], "normalizes_last", False)


@flax.struct.dataclass
class Picked:
    """The hidden states, and those before some of the layers."""

    hidden: Any  # [B, L, D]
    states: Any  # [picked layers, B, L, D]

    def with_own(self, slot):
        """`states` with the hidden ones in that place; unchanged where it is -1."""
        place = jnp.maximum(slot, 0)
        own = jnp.where(slot >= 0, self.hidden, self.states[place])
        return jax.lax.dynamic_update_index_in_dim(self.states, own, place, 0)


@flax.struct.dataclass
class Numbered:
    """A layer's kind, and its place among those that are picked."""

    kind: Any
    slot: Any


class Layer(nn.Module):
    """The configured block in the (carry, output) form that a scan takes; it adds no level of names."""

    config: EncoderConfig

    def setup(self):
        self.block = BLOCKS[self.config.block](self.config)
        nn.share_scope(self, self.block)

    def __call__(self, carry, context, kind, train: bool):
        """`carry` is the hidden states, or they and those before the layer that made them, or `Picked`."""
        if isinstance(carry, Picked):
            return Picked(
                self.block(carry.hidden, context, kind.kind, train), carry.with_own(kind.slot)
            ), None
        if not isinstance(carry, tuple):
            return self.block(carry, context, kind, train), None
        hidden, _ = carry
        return (self.block(hidden, context, kind, train), hidden), None

    def ask(self, hidden, context, train: bool, asking):
        return self.block(hidden, context, None, train, asking)
