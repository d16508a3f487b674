"""The layers of an encoder: run by one scan, or one after another.

A scan traces one layer, so that a 24-layer model compiles as fast as a 1-layer model. Its parameters are stacked:
[G, ...] for G groups of layers, by default one group per layer. But it copies the parameters of each layer before it
uses them; unrolled layers have parameters of their own (`unroll_layers`).
"""

from abc import ABC, abstractmethod

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import data_sharded
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.context import Context
from bert_jax.models.elementwise import SAVED
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layers import STATES, is_requested


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


@flax.struct.dataclass
class Carry(ABC):
    """What is carried from layer to layer, where that is more than the hidden states."""

    @abstractmethod
    def after_layer(self, block: nn.Module, context: Context, layer_type, train: bool) -> "Carry": ...


class Layer(nn.Module):
    """The configured block in the (carry, output) form that a scan needs, without an extra level of parameter names."""

    config: EncoderConfig

    def setup(self):
        self.block = BLOCKS[self.config.block](self.config)
        nn.share_scope(self, self.block)

    def __call__(self, carry, context, layer_type, train: bool):
        """`carry` is the hidden states, or a `Carry`."""
        if isinstance(carry, Carry):
            return carry.after_layer(self.block, context, layer_type, train), None
        return self.block(carry, context, layer_type, train), None

    def decode(self, hidden, context, train: bool, query_states):
        """Apply the block with other queries, as the enhanced mask decoder does."""
        return self.block(hidden, context, None, train, query_states)


TracedOnce = nn.jit(Layer, static_argnums=(3, 4), methods=["__call__"])  # for all layers of a type


def make_layers(c: EncoderConfig, unrolled: bool) -> nn.Module | list[nn.Module] | None:
    """Return a scan over all layers, or if `unrolled` the module of each group; None: there are no layers."""
    if unrolled:
        return [TracedOnce(c) for _ in range(c.groups)]
    return scanned_layers(c) if c.groups else None


def scanned_layers(c: EncoderConfig) -> nn.Module:
    """Return one traced layer, scanned. The layers of a group share its parameters, by a scan within the scan."""
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


def run_layers(encoder, carry, context: Context, train: bool):
    """Run the layers that `make_layers` made for an encoder, and return the carry after the last one."""
    c, types = encoder.config, layer_types(encoder.config)
    if not encoder.unrolled:
        types = None if types is None else jnp.asarray(types)
        return encoder.layers(carry, context, types, train)[0] if c.groups else carry
    for layer in range(c.num_hidden_layers):
        carry, _ = encoder.layers[group_of(c, layer)](carry, context, type_of(c, layer), train)
        if is_requested(encoder, STATES):
            encoder.sow(STATES, "kept", carry)
    return carry


def layer_types(c: EncoderConfig):
    """Return the type of each layer as a number, [N] or [G, N / G]; None if the block has only one type of layer."""
    block = BLOCKS[c.block]
    if not hasattr(block, "layer_types"):
        return None
    each_layer = np.asarray(block.layer_types(c), np.int32)
    return each_layer.reshape(c.groups, -1) if c.num_hidden_layers > c.groups else each_layer


def type_of(c: EncoderConfig, layer: int) -> int | None:
    """Return the type of one layer, counted from 0."""
    types = layer_types(c)
    return None if types is None else types.reshape(-1)[layer].item()


def group_of(c: EncoderConfig, layer: int) -> int:
    """Return the group whose parameters a layer has, both counted from 0."""
    return layer // (c.num_hidden_layers // c.groups)


def normalizes_last(c: EncoderConfig) -> bool:
    """Return whether a LayerNorm follows the last layer, because layers do not normalise their outputs."""
    return getattr(BLOCKS[c.block], "normalizes_last", False)


def params_of_group(encoder, group: int):
    """Return the parameters of the layers of a group of a scanned encoder."""
    layers = encoder.variables["params"]["layers"]
    return data_sharded.to_arrays(jax.tree.map(lambda leaf: leaf[group], layers))


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
