"""The encoder: embeddings, then blocks, as a pure function of (params, batch, rng)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import shared
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.config import EncoderConfig
from bert_jax.models.context import Context
from bert_jax.models.elementwise import KEPT
from bert_jax.models.layers import Embeddings


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
        self.layers = [Layer(c) for _ in range(c.groups)] if self.unrolled else scanned_layers(c)

    def __call__(self, batch, train: bool = False):
        c, context = self.config, Context.of(batch)
        hidden = self.embeddings(batch, train)
        if not self.unrolled:
            return self.layers(hidden, context, kinds(c), train)[0]
        of_layers = kinds(c)
        for i in range(c.layers):
            kind = None if of_layers is None else of_layers.reshape(-1)[i]
            hidden, _ = self.layers[i // (c.layers // c.groups)](hidden, context, kind, train)
        return hidden


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
    each_layer = jnp.asarray(block.kinds(c), jnp.int32)
    return each_layer.reshape(c.groups, -1) if c.layers > c.groups else each_layer


class Layer(nn.Module):
    """The configured block in the (carry, output) form that a scan takes; it adds no level of names."""

    config: EncoderConfig

    def setup(self):
        self.block = BLOCKS[self.config.block](self.config)
        nn.share_scope(self, self.block)

    def __call__(self, hidden, context, kind, train: bool):
        return self.block(hidden, context, kind, train), None
