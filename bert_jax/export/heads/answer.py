"""The logits of the answer's start and end."""

from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import dense
from bert_jax.hub.exported_names import ANSWER_LOGITS


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    both = dense(scope / "dense", states)
    parts = (scope.add("Gather", both, scope.index(i), axis=-1) for i in range(len(ANSWER_LOGITS)))
    return {name: Output(logits, axes) for name, logits in zip(ANSWER_LOGITS, parts, strict=True)}
