"""The logits of ELECTRA's discriminator, above 0 where a token looks replaced."""

from bert_jax.export.activations import ACTIVATIONS
from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import dense
from bert_jax.hub.exported_names import LOGITS


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    transformed = dense(scope / "transform", states)
    activated = ACTIVATIONS[scope.config.hidden_act](scope / "transform", transformed)
    logits = dense(scope / "dense", activated)
    return {LOGITS: Output(scope.add("Squeeze", logits, scope.integers(-1)), axes)}
