"""A convolution of the embeddings over neighbouring tokens."""

from dataclasses import dataclass

from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import ACTIVATIONS, norm


@dataclass(frozen=True)
class Convolved:
    scope: Scope
    states: Value  # [B, L, D]

    def join(self, hidden: Value) -> Value:
        return norm(self.scope, self.scope.add("Add", hidden, self.states))


def convolve(scope: Scope, embeddings: Value, attention_mask: Value) -> Convolved:
    """Return the convolved embeddings of tokens. Padding counts as zeros."""
    c, dense = scope.config, scope / "dense"
    mask = scope.to_float(scope.add("Unsqueeze", attention_mask, scope.integers(2)))
    channels = scope.add("Transpose", scope.add("Mul", embeddings, mask), perm=[0, 2, 1])
    kernel = dense.params["kernel"].transpose(2, 1, 0)  # ours is [width, inputs, outputs]
    beside = c.convolution.width // 2
    convolved = dense.add(
        "Conv", channels, dense.weight("kernel", kernel), dense.weight("bias"), pads=[beside, beside]
    )
    states = scope.add("Transpose", convolved, perm=[0, 2, 1])
    return Convolved(scope, ACTIVATIONS[c.convolution.activation](scope, states))
