"""ALiBi: attention scores fall linearly with the distance."""

import numpy as np

from bert_jax.export.distances import distances_apart
from bert_jax.export.graph import Scope, Value
from bert_jax.models.relative_terms import head_slopes


def alibi_bias(scope: Scope, length: Value) -> Value:
    """Return what is added to the scores of each head, [1, H, L, L]."""
    slopes = np.asarray(-head_slopes(scope.config.num_attention_heads), np.float32)
    falling = scope.weight("slopes", slopes[None, :, None, None])
    return scope.add("Mul", falling, distances_apart(scope, length))
