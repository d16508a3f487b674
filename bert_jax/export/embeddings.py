"""Token + position + segment embeddings, normalised and, if needed, projected to the width of the layers."""

from collections.abc import Mapping

from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import dense, norm
from bert_jax.models.sinusoids import sinusoidal_table


def embed(scope: Scope, inputs: Mapping[str, Value]) -> Value:
    c = scope.config
    states = scope.add("Gather", scope.weight("words"), inputs["input_ids"])
    if c.positions in ("learned", "sinusoidal"):
        states = scope.add("Add", states, position_embeddings(scope, inputs["input_ids"]))
    if c.type_vocab_size == 1:  # every token has the type 0
        states = scope.add("Add", states, scope.weight("token_types"))
    elif c.type_vocab_size:
        types = scope.add("Gather", scope.weight("token_types"), inputs["token_type_ids"])
        states = scope.add("Add", states, types)
    states = norm(scope / "norm", states) if c.embedding_norm else states
    return dense(scope / "projection", states) if c.embedding_size else states


def position_embeddings(scope: Scope, input_ids: Value) -> Value:
    """Return the embeddings of positions 0, 1, 2 ..., [L, D]."""
    c = scope.config
    length = scope.add("Shape", input_ids, start=1, end=2)
    computed = None
    if c.positions == "sinusoidal":
        computed = sinusoidal_table(c.max_position_embeddings, c.embedding_width)
    return scope.add(
        "Slice", scope.weight("positions", computed), scope.integers(0), length, scope.integers(0)
    )
