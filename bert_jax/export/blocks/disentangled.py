"""DeBERTa's block: that of BERT with relative attention; the first layer adds a convolution of the embeddings."""

from bert_jax.export.context import GraphContext
from bert_jax.export.disentangled_attention import disentangled_attention
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import feed_forward, norm
from bert_jax.models.blocks.disentangled import FIRST


def build(
    scope: Scope,
    hidden: Value,
    context: GraphContext,
    layer_type: int | None,
    query_states: Value | None = None,
) -> Value:
    attended = disentangled_attention(scope / "attention", hidden, context, query_states)
    query_states = hidden if query_states is None else query_states
    hidden = norm(scope / "attention_norm", scope.add("Add", query_states, attended))
    fed = feed_forward(scope / "feed_forward", hidden)
    hidden = norm(scope / "feed_forward_norm", scope.add("Add", hidden, fed))
    if context.convolved is None or layer_type != FIRST:
        return hidden
    return context.convolved.join(hidden)
