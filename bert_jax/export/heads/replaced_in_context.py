"""DeBERTa-v3's head for replaced tokens: it adds the [CLS] state of the text to the state of each token."""

from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.heads import replaced
from bert_jax.export.layers import norm


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    text_states = scope.add("Slice", states, scope.integers(0), scope.integers(1), scope.integers(1))
    summed = scope.add("Add", states, text_states)
    return replaced.build(scope, norm(scope / "norm", summed), axes)
