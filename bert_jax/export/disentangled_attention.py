"""Disentangled attention: queries and keys also meet the projected embeddings of distances."""

from bert_jax.export.attention import attend, project_parameters, split_heads
from bert_jax.export.context import GraphContext
from bert_jax.export.graph import Scope, Value
from bert_jax.export.layers import dense, linear
from bert_jax.export.relative_terms import DistanceStates, multiply_by_distance

OWN_BIAS = ("query", "value")  # of attention without a bias for keys


def disentangled_attention(
    scope: Scope, hidden: Value, context: GraphContext, query_states: Value | None = None
) -> Value:
    """Return the output of attention. If `query_states` are given, the queries of tokens come from them."""
    c, terms = scope.config, scope.config.relative.terms
    scale = scope.number(((1 + len(terms)) * c.head_size) ** -0.5)
    sources = {"query": hidden if query_states is None else query_states, "key": hidden, "value": hidden}
    query, key, value = (
        split_heads(scope / name, project(scope, states, name)) for name, states in sources.items()
    )
    query = scope.add("Mul", query, scale)
    scores = scope.add("MatMul", query, scope.add("Transpose", key, perm=[0, 1, 3, 2]))
    distances = context.distances
    if distances is not None and "keys" in terms:
        keys = project_distances(scope, distances, "keys")
        part = scope / "distance_keys"
        gained = multiply_by_distance(part, query, keys, distances.rows, distances)
        scores = scope.add("Add", scores, gained)
    if distances is not None and "queries" in terms:
        part = scope / "distance_queries"
        queries = part.add("Mul", project_distances(scope, distances, "queries"), scale)
        gained = multiply_by_distance(part, key, queries, distances.reversed_rows, distances)
        scores = scope.add("Add", scores, part.add("Transpose", gained, perm=[0, 1, 3, 2]))
    return attend(scope, scores, value, context.visible)


def project(scope: Scope, states: Value, name: str) -> Value:
    kernel, bias = project_parameters(scope, name)
    if not scope.config.relative.key_bias and name in OWN_BIAS:
        bias = scope.params["bias"][OWN_BIAS.index(name)].reshape(-1)
    return linear(scope / name, states, kernel, bias)


def project_distances(scope: Scope, distances: DistanceStates, term: str) -> Value:
    """Return the "keys" or "queries" of distances, [H, R, K]. They are constant: programs compute them at the start."""
    part = scope / f"distance_{term}"
    if scope.config.relative.shared:
        name = {"keys": "key", "queries": "query"}[term]
        projected = project(scope, distances.states, name)
    else:
        projected = dense(part, distances.states)
    c = scope.config
    parts = part.add("Reshape", projected, scope.integers(-1, c.num_attention_heads, c.head_size))
    return part.add("Transpose", parts, perm=[1, 0, 2])
