"""A model as a StableHLO program: a function of (weights by name, inputs by name), for batches of any size and length.

The weights are arguments. As constants of the program, each shape of batch would be compiled with a copy of them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.export.exported_head import exported_head
from bert_jax.hub.exported_names import ANSWER_LOGITS, EMBEDDING, HIDDEN_STATES, LOGITS, input_names
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import PROJECTION
from bert_jax.models.bert import (
    HEAD_MODULES,
    Bert,
    cls_states,
    mean_states,
    pair_differences,
    scale_to_directions,
)
from bert_jax.models.encoder import Encoder, unroll_layers
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS
from bert_jax.models.pooling import l2_normalize, pool, project

PLATFORMS = ("cpu", "cuda", "tpu")
LOCATIONS = "jax_traceback_in_locations_limit"


def flatten_weights(params: Mapping) -> dict[str, np.ndarray]:
    """Return parameters by name, those of each layer in arrays of their own."""
    unrolled = {**params, "encoder": unroll_layers(params["encoder"])}
    return {name: np.asarray(value) for name, value in flatten_dict(unrolled, sep="/").items()}


def export_program(
    layout: Layout, weights: Mapping[str, np.ndarray]
) -> tuple[jax.export.Exported, dict[str, np.ndarray]]:
    """Return the program and the weights that it reads."""
    head = exported_head(layout)
    rows, length = jax.export.symbolic_shape(
        "2*pairs, length" if head and HEADS[head].compares else "batch, length",
        constraints=[f"length <= {layout.config.max_position_embeddings}"],
    )
    shapes = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in weights.items()}
    # JAX tells which arguments are read only if the shape of the batch is known. They are ordered by name.
    kept = trace_program(layout, shapes, {}, (2, 1)).module_kept_var_idx
    read = {name: shapes[name] for i, name in enumerate(sorted(shapes)) if i in kept}
    unread = {name: shape for name, shape in shapes.items() if name not in read}
    return trace_program(layout, read, unread, (rows, length)), {name: weights[name] for name in read}


def trace_program(layout: Layout, read: dict, unread: dict, batch_shape: tuple) -> jax.export.Exported:
    inputs = {name: jax.ShapeDtypeStruct(batch_shape, jnp.int32) for name in input_names(layout)}
    with no_source_locations():
        return jax.export.export(jax.jit(model_function(layout, unread)), platforms=PLATFORMS)(read, inputs)


@contextmanager
def no_source_locations() -> Iterator[None]:
    """Keep the paths of this machine's source files out of programs."""
    limit = getattr(jax.config, LOCATIONS)
    jax.config.update(LOCATIONS, 0)
    try:
        yield
    finally:
        jax.config.update(LOCATIONS, limit)


def output_names(layout: Layout) -> tuple[str, ...]:
    head = exported_head(layout)
    if head is None:
        return (HIDDEN_STATES, *[EMBEDDING] * (layout.embedder is not None))
    return ANSWER_LOGITS if head == "answer" else (LOGITS,)


def model_function(layout: Layout, unread: dict) -> Callable[[dict, dict], dict]:
    """Return the model as a function of (weights, inputs); Flax wants the `unread` weights to have a value, too."""
    head, config = exported_head(layout), layout.config.replace(attention="xla")

    def model(weights: dict, inputs: dict) -> dict:
        absent = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in unread.items()}
        batch = {"token_type_ids": jnp.zeros_like(inputs["input_ids"])} | inputs
        params = unflatten_dict(weights | absent, sep="/")
        if head is None:
            values = encode(config, layout, params, batch)
        else:
            values = (compare if HEADS[head].compares else apply_head)(config, layout, head, params, batch)
        return dict(zip(output_names(layout), values, strict=True))

    return model


def encode(config: EncoderConfig, layout: Layout, params: dict, batch: dict) -> tuple:
    """Return the hidden states and, for an embedder, the embeddings."""
    states: Any = Encoder(config, unrolled=True).apply({"params": params["encoder"]}, batch)
    hidden = states.astype(jnp.float32)
    if not (embedder := layout.embedder):
        return (hidden,)
    vectors = pool(hidden, batch["attention_mask"], embedder.pooling, normalize=False)
    if projection := embedder.projection:
        vectors = project(vectors, params[PROJECTION]["dense"], projection.activation)
    return hidden, l2_normalize(vectors) if embedder.normalize else vectors


def apply_head(config: EncoderConfig, layout: Layout, head: str, params: dict, batch: dict) -> tuple:
    module = Bert(config, (head,), len(layout.labels), HEADS[head].pooler, unrolled=True)
    outputs: Any = module.apply({"params": params}, batch)
    logits = outputs[head]
    return (logits,) if len(output_names(layout)) == 1 else tuple(jnp.moveaxis(logits, -1, 0))


def compare(config: EncoderConfig, layout: Layout, head: str, params: dict, batch: dict) -> tuple:
    """Return the logits of pairs; the texts of a pair are two rows, one after the other."""
    hidden = Encoder(config, unrolled=True).apply({"params": params["encoder"]}, batch)
    vectors = scale_to_directions((mean_states if HEADS[head].reads == "mean" else cls_states)(hidden, batch))
    states = pair_differences(vectors.reshape(-1, 2, vectors.shape[-1]))
    module = HEAD_MODULES[head](config, len(layout.labels))
    return (module.apply({"params": params[head]}, states, batch, None, False),)
