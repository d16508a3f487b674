"""The block of ModernBERT and EuroBERT: pre-norm. The first layer reads embeddings that are normalised as they are."""

from bert_jax.export.attention import self_attention
from bert_jax.export.context import GraphContext
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import feed_forward, norm
from bert_jax.models.blocks.local_and_global import FIRST, LOCAL


def build(scope: Scope, hidden: Value, context: GraphContext, layer_type: int | None) -> Value:
    is_local = layer_type == LOCAL
    attended = self_attention(
        scope / "attention",
        hidden if layer_type == FIRST else norm(scope / "attention_norm", hidden),
        context,
        context.nearby if is_local else context.visible,
        rotary_index=int(is_local and bool(scope.config.rotary.local_theta)),
    )
    hidden = scope.add("Add", hidden, attended)
    fed = feed_forward(scope / "feed_forward", norm(scope / "feed_forward_norm", hidden))
    return scope.add("Add", hidden, fed)
