"""How far apart two tokens are."""

from bert_jax.export.graph import Scope, Value
from bert_jax.export.rotary import row_positions


def distances_apart(scope: Scope, length: Value) -> Value:
    """Return how many positions lie between each query and key, in float32 [L, L]."""
    positions = row_positions(scope, length)
    rows, columns = (scope.add("Unsqueeze", positions, scope.integers(axis)) for axis in (1, 0))
    return scope.add("Abs", scope.add("Sub", rows, columns))
