"""The logits of the answer's start and end."""

from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import dense


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    both = dense(scope / "dense", states)
    parts = {
        name: scope.add("Gather", both, scope.index(i), axis=-1) for i, name in enumerate(("start", "end"))
    }
    return {f"{name}_logits": Output(logits, axes) for name, logits in parts.items()}
