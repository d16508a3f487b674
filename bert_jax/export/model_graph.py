"""The ONNX graph of a whole model, with the inputs and outputs that other programs expect."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from bert_jax.core.errors import BertJaxError
from bert_jax.export.encoder import Encoded, encode
from bert_jax.export.graph import BATCH, LENGTH, Graph, Output, Scope, Value
from bert_jax.export.heads import HEAD_BUILDERS, exported_head
from bert_jax.export.layers import ACTIVATIONS, dense, norm
from bert_jax.export.pooling import normalize, pool, pool_logits
from bert_jax.hub.layout import Layout
from bert_jax.hub.onnx_files import EMBEDDING, HIDDEN_STATES, LOGITS, TOKEN_VECTORS, input_names
from bert_jax.hub.sentence_transformers import PROJECTION, EmbedderSettings, Projection
from bert_jax.models.bert import SMALL
from bert_jax.models.heads import HEADS, Head, has_transform

PAIRS = "pairs"  # the axis of pairs, half as many as the texts of the batch


@dataclass(frozen=True)
class States:
    """The states that heads read: those of tokens, of texts or of pairs of texts."""

    scope: Scope  # of the whole model
    inputs: Mapping[str, Value]
    encoded: Encoded

    def read_by(self, name: str, head: Head) -> Value:
        """Return the states that a head reads: [B, L, D] of tokens, [B, D] of texts or [B / 2, 2 D] of pairs."""
        if head.decoded and self.encoded.decoded is not None:
            return self.encoded.decoded
        if head.transformed and has_transform(self.scope.config, (name,)):
            return self.transformed
        if head.pooler:
            return self.pooled
        if head.each_token:
            return self.encoded.hidden
        part = self.scope / head.reads
        vectors = scale_to_directions(part, self.text_states(head.reads))
        return pair_differences(part, vectors) if head.compares else vectors

    def text_states(self, how: str, of_tokens: Value = "") -> Value:
        states = of_tokens or self.encoded.hidden
        return pool(self.scope / how, states, self.inputs["attention_mask"], how)

    @cached_property
    def pooled(self) -> Value:
        part, pooler = self.scope / "pooler", self.scope.config.pooler
        how = "mean" if pooler.mean else "cls"
        states = dense(part / "dense", self.encoded.hidden if pooler.late else self.text_states(how))
        states = ACTIVATIONS[pooler.activation](part, states)
        states = norm(part / "norm", states) if pooler.norm else states
        return self.text_states(how, states) if pooler.late else states

    @cached_property
    def transformed(self) -> Value:
        part, c = self.scope / "transform", self.scope.config
        states = dense(part / "dense", self.encoded.hidden)
        return norm(part / "norm", ACTIVATIONS[c.mlm_activation or c.hidden_act](part, states))


def shape_of_states(head: Head) -> tuple[str, ...]:
    """Return the axes of the states that a head reads, without the last."""
    if head.each_token:
        return (BATCH, LENGTH)
    return (PAIRS,) if head.compares else (BATCH,)


def scale_to_directions(scope: Scope, vectors: Value) -> Value:
    """Scale vectors [B, D] to a mean square of 1."""
    square = scope.add("ReduceMean", scope.add("Mul", vectors, vectors), axes=[-1], keepdims=1)
    return scope.add("Div", vectors, scope.add("Sqrt", scope.add("Add", square, scope.number(SMALL))))


def pair_differences(scope: Scope, vectors: Value) -> Value:
    """Return the squared and the signed differences of the vectors 0 and 1, 2 and 3, ..., [B / 2, 2 D]."""
    first, second = (
        scope.add("Slice", vectors, scope.integers(start), scope.integers(np.iinfo(np.int64).max),
                  scope.integers(0), scope.integers(2))
        for start in (0, 1)
    )  # fmt: skip
    difference = scope.add("Sub", first, second)
    return scope.add("Concat", scope.add("Mul", difference, difference), difference, axis=-1)


def make_model(layout: Layout, params: Mapping, detects_out_of_scope: bool = False) -> onnx.ModelProto:
    """Return the graph of a model.

    Its outputs are the hidden states and, for an embedder, the embeddings of texts or of tokens; or the logits of a
    head and, for a sparse embedder, the embeddings or, if the model `detects_out_of_scope`, the hidden states, by which
    texts are compared.
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
        if tokens := layout.multi_vector:
            vectors = finished(scope, TOKEN_VECTORS, encoded.hidden, tokens.projection, tokens.normalize)
            outputs[TOKEN_VECTORS] = Output(vectors, (BATCH, LENGTH, layout.vector_size))
    else:
        build = HEAD_BUILDERS[head]
        outputs = build(scope / head, states.read_by(head, HEADS[head]), shape_of_states(HEADS[head]))
        outputs |= hidden if detects_out_of_scope else {}
        if sparse := layout.sparse:
            vectors = pool_logits(scope / EMBEDDING, outputs[LOGITS].value, inputs["attention_mask"], sparse)
            outputs[EMBEDDING] = Output(vectors, (BATCH, layout.vector_size))
    return scope.graph.to_model(list(inputs), outputs)


def embedding(states: States, layout: Layout, embedder: EmbedderSettings) -> Output:
    if embedder.unknown:
        raise BertJaxError(f"this embedder needs {embedder.unknown}, which is not supported")
    pooled = states.text_states(embedder.pooling)
    vectors = finished(states.scope, EMBEDDING, pooled, embedder.projection, embedder.normalize)
    return Output(vectors, (BATCH, layout.vector_size))


def finished(
    scope: Scope, name: str, states: Value, projection: Projection | None, normalized: bool
) -> Value:
    """Return the vectors of pooled states [B, D], or of those of tokens [B, L, D]."""
    if projection:
        states = dense(scope / PROJECTION / "dense", states)
        states = ACTIVATIONS[projection.activation](scope / name, states)
    return normalize(scope / name, states) if normalized else states
