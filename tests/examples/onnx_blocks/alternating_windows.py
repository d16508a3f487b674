"""The block of tests/examples/blocks as ONNX nodes."""

from bert_jax.export.attention import self_attention
from bert_jax.export.context import nearby_bias
from bert_jax.export.layers import feed_forward, norm
from tests.examples.blocks.alternating_windows import WINDOWS


def build(scope, hidden, context, layer_type):
    window = WINDOWS[layer_type]
    visible = (
        context.visible if window is None else nearby_bias(scope, context.visible, context.length, window)
    )
    attended = self_attention(scope / "attention", hidden, context, visible)
    hidden = norm(scope / "attention_norm", scope.add("Add", hidden, attended))
    fed = feed_forward(scope / "feed_forward", hidden)
    return norm(scope / "feed_forward_norm", scope.add("Add", hidden, fed))
