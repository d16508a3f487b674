"""The vectors of a text's tokens, which late interaction compares."""

import jax.numpy as jnp

from bert_jax.models.pooling import l2_normalize, project

ATTENDED = "attended"  # the number of a row's first tokens that others attend to, [B]


def vectors_of_tokens(hidden, layer: dict | None, activation: str, normalize: bool):
    """Return the vectors [B, L, D] from the hidden states, by a dense layer if there is one."""
    vectors = hidden.astype(jnp.float32)
    if layer:
        vectors = project(vectors, layer, activation)
    return l2_normalize(vectors) if normalize else vectors


def limit_attention(batch: dict) -> dict:
    """Return a batch in which tokens attend to the first `attended` ones of their row alone; the states of the others,
    which lengthen a query, are computed all the same."""
    first = jnp.arange(batch["input_ids"].shape[1]) < batch[ATTENDED][:, None]
    rest = {name: array for name, array in batch.items() if name != ATTENDED}
    return rest | {"attention_mask": first.astype(jnp.int32)}
