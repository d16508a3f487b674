"""The encoder: embeddings, then blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax

from bert_jax.core.errors import BertJaxError
from bert_jax.core.registry import Registry
from bert_jax.export.context import GraphContext, make_context
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import convolve, embed, norm, position_embeddings
from bert_jax.models.layer_stack import layer_types, normalizes_last

# Name of a block -> the function that writes it: (scope, hidden, context, layer_type) -> hidden.
BLOCK_BUILDERS = Registry("bert_jax.export.blocks", "ONNX export of the block", "build")


@dataclass(frozen=True)
class Encoded:
    hidden: Value  # [B, L, D]
    decoded: Value | None = None  # the states of the enhanced mask decoder


def find_builder(block: str) -> Callable:
    if block not in BLOCK_BUILDERS and block not in BLOCK_BUILDERS.names():
        raise BertJaxError(
            f"the block {block} has no ONNX form; add bert_jax/export/blocks/{block}.py with a function "
            f'"{BLOCK_BUILDERS.attribute}"'
        )
    return BLOCK_BUILDERS[block]


def encode(scope: Scope, inputs: Mapping[str, Value], decodes: bool = False) -> Encoded:
    c, types = scope.config, layer_types(scope.config)
    build = find_builder(c.block)
    hidden = embed(scope / "embeddings", inputs)
    context = make_context(scope, inputs["attention_mask"])
    if c.convolution.width:
        convolved = convolve(scope / "convolution", hidden, inputs["attention_mask"])
        context = replace(context, convolved=convolved)
    penultimate = hidden
    for layer in range(c.num_hidden_layers):
        penultimate = hidden
        layer_type = None if types is None else types.reshape(-1)[layer].item()
        hidden = build(layer_scope(scope, layer), hidden, context, layer_type)
    if decodes:
        return Encoded(hidden, decode_masked(scope, penultimate, inputs["input_ids"], context, build))
    return Encoded(norm(scope / "final_norm", hidden) if normalizes_last(c) else hidden)


def layer_scope(scope: Scope, layer: int, name: str = "layers") -> Scope:
    """Return the place of a layer, with the parameters of its group."""
    group = layer // (scope.config.num_hidden_layers // scope.config.groups)
    params = jax.tree.map(lambda leaf: leaf[group], scope.params["layers"])
    return replace(
        scope / f"{name}.{layer}", params=params, weight_path=f"{scope.weight_path}/layers.{group}"
    )


def decode_masked(
    scope: Scope, penultimate: Value, input_ids: Value, context: GraphContext, build: Callable
) -> Value:
    """Return the states of DeBERTa's enhanced mask decoder: see models/mask_decoder.py."""
    last = layer_scope(scope, scope.config.num_hidden_layers - 1, "decoder")
    positions = position_embeddings(scope / "embeddings", input_ids)
    queries, context = scope.add("Add", penultimate, positions), replace(context, convolved=None)
    for _ in range(2):
        queries = build(last, penultimate, context, None, queries)
    return queries
