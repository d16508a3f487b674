"""The head of most models: one dense layer."""

from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import dense
from bert_jax.hub.exported_names import LOGITS


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    labels = scope.params["dense"]["kernel"].shape[-1]
    return {LOGITS: Output(dense(scope / "dense", states), (*axes, labels))}
