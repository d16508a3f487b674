"""BERT's block: the output of each part is added to its input, and the sum is normalised."""

from bert_jax.export.attention import self_attention
from bert_jax.export.context import GraphContext
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import feed_forward, norm


def build(scope: Scope, hidden: Value, context: GraphContext, layer_type: int | None) -> Value:
    attended = self_attention(scope / "attention", hidden, context)
    hidden = norm(scope / "attention_norm", scope.add("Add", hidden, attended))
    fed = feed_forward(scope / "feed_forward", hidden)
    return norm(scope / "feed_forward_norm", scope.add("Add", hidden, fed))
