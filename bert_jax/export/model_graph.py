"""The ONNX graph of a whole model, with the inputs and outputs that other programs expect."""

from collections.abc import Mapping

import onnx

from bert_jax.core.errors import BertJaxError
from bert_jax.export.encoder import encode
from bert_jax.export.graph import BATCH, LENGTH, Graph, Output, Scope
from bert_jax.export.heads import HEAD_BUILDERS, exported_head
from bert_jax.export.layers import ACTIVATIONS, dense
from bert_jax.export.pooling import normalize
from bert_jax.export.states import States, shape_of_states
from bert_jax.hub.exported_names import EMBEDDING, HIDDEN_STATES, input_names
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import PROJECTION, EmbedderSettings
from bert_jax.models.heads import HEADS


def make_model(layout: Layout, params: Mapping, detects_out_of_scope: bool = False) -> onnx.ModelProto:
    """Return the graph of a model.

    Its outputs are the hidden states and, for an embedder, the embeddings; or the logits of a head and, if the model
    `detects_out_of_scope`, the hidden states, by which texts are compared.
    """
    scope = Scope(Graph(), layout.config, params)
    inputs = {name: name for name in input_names(layout)}
    head = exported_head(layout)
    decodes = head is not None and HEADS[head].decoded and layout.config.positions == "decoder"
    encoded = encode(scope / "encoder", inputs, decodes)
    states = States(scope, inputs, encoded)
    hidden = {HIDDEN_STATES: Output(encoded.hidden, (BATCH, LENGTH, layout.config.hidden_size))}
    if head is None:
        outputs = hidden
        if layout.embedder:
            outputs[EMBEDDING] = embedding(states, layout, layout.embedder)
    else:
        build = HEAD_BUILDERS[head]
        outputs = build(scope / head, states.read_by(head, HEADS[head]), shape_of_states(HEADS[head]))
        outputs |= hidden if detects_out_of_scope else {}
    return scope.graph.to_model(list(inputs), outputs)


def embedding(states: States, layout: Layout, embedder: EmbedderSettings) -> Output:
    place = states.scope / EMBEDDING
    if embedder.unknown:
        raise BertJaxError(f"this embedder needs {embedder.unknown}, which is not supported")
    vectors = states.text_states(embedder.pooling)
    if projection := embedder.projection:
        vectors = dense(states.scope / PROJECTION / "dense", vectors)
        vectors = ACTIVATIONS[projection.activation](place, vectors)
    return Output(normalize(place, vectors) if embedder.normalize else vectors, (BATCH, layout.vector_size))
