"""Sparse pooling (SPLADE): a weight for each entry of the vocabulary from the masked LM's logits at a text's tokens.

The logits of all tokens for all entries would take gigabytes, so they are computed for a part of the entries at a time.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from bert_jax.models.bert import MaskedLMHead
from bert_jax.models.einsum import mixed_einsum, mixed_einsum_backward
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.mesh import platform

LOGITS_AT_ONCE = 1 << 23  # 32 MB
PRODUCTS_AT_ONCE = 1 << 11  # a quarter and four times as many take as long
LANES = 128  # the size of a part is a multiple of it
PRODUCT = "te,ve->tv"
# Functions of logits that are at least 0.
ACTIVATIONS: dict[str, Callable] = {
    "relu": jnp.log1p,
    "log1p_relu": lambda logits: jnp.log1p(jnp.log1p(logits)),
}


def sparse_vectors(config: EncoderConfig, params: dict, states, mask, pooling: str, activation: str):
    """Return the vectors of texts, [B, V] or [B, P, V], from the states that the masked LM's head reads, [B, L, D], and
    the masks of their tokens, [B, L] or [B, P, L]. No token gives zeros, and no token is in two texts."""
    mlm, V = params["mlm"], config.vocab_size
    states = MaskedLMHead(config, 0).apply({"params": mlm}, states, {}, None, False)
    words = mlm.get("decoder", params["encoder"]["embeddings"].get("words"))[:V]
    bias = mlm["bias"][:V] if "bias" in mlm else jnp.zeros(V)
    of_rows = mask.reshape(len(mask), -1, mask.shape[-1])
    texts = of_rows.shape[0] * of_rows.shape[1]
    numbers = jnp.arange(texts).reshape(of_rows.shape[:2])[..., None]
    # The text of each token; `texts` for tokens of none.
    numbers = jnp.where(of_rows > 0, numbers, texts).min(1)
    activate, dtype = ACTIVATIONS[activation], config.computed_dtype
    states, numbers = states.reshape(-1, states.shape[-1]), numbers.reshape(-1)

    @jax.checkpoint
    def sum_of_part(part):
        words, bias = part
        weights = activate(jax.nn.relu(mixed_einsum(PRODUCT, states, words, dtype, "float32") + bias))
        return jax.ops.segment_sum(weights, numbers, texts)

    def max_of_part(part):
        # The activation rises with the logit, so that of the maximum is the maximum.
        return activate(jax.nn.relu(max_logits(states, *part, numbers, texts, dtype)))

    size = LANES * -(-LOGITS_AT_ONCE // (LANES * len(states)))
    size = min(size, V)
    padding = -V % size
    parts = (
        jnp.pad(words, ((0, padding), (0, 0))).reshape(-1, size, words.shape[1]),
        jnp.pad(bias, (0, padding)).reshape(-1, size),
    )
    vectors = jax.lax.map(max_of_part if pooling == "max" else sum_of_part, parts)
    return jnp.moveaxis(vectors, 0, 1).reshape(*mask.shape[:-1], -1)[..., :V]


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def max_logits(states, words, bias, numbers, texts: int, dtype: str):
    """Return the highest logits [N, V] of the tokens of each text, given the states of tokens [T, E] and the numbers of
    their texts [T]; -inf for a text without tokens.

    The gradient reads which token has the maximum, so that no logit is kept or computed again for it."""
    return find_max_logits(states, words, bias, numbers, texts, dtype)[0]


def find_max_logits(states, words, bias, numbers, texts: int, dtype: str):
    logits = mixed_einsum(PRODUCT, states, words, dtype, "float32") + bias
    highest = jax.ops.segment_max(logits, numbers, texts)
    tokens = jnp.where(logits == highest[numbers], jnp.arange(len(states))[:, None], -1)
    return highest, (states, words, numbers, jax.ops.segment_max(tokens, numbers, texts))


def max_logits_backward(texts: int, dtype: str, residuals, gradient):
    states, words, numbers, tokens = residuals
    if platform() == "cpu":  # measured there alone
        of_operands = add_outer_products(states, words, tokens, gradient, dtype)
    else:
        is_max = tokens[numbers] == jnp.arange(len(states))[:, None]
        slopes = jnp.where(is_max, gradient[numbers], 0)
        of_operands = mixed_einsum_backward(PRODUCT, dtype, "float32", (states, words), slopes)
    return *of_operands, gradient.sum(0), None


def add_outer_products(states, words, tokens, gradient, dtype: str):
    """Return the gradients of states [T, E] and words [V, E] from those of the highest logits [N, V], which stand at
    `tokens` [N, V]. Few gradients are not 0, since most logits are below 0: only these are computed, some at a time."""
    states, words = (operand.astype(dtype).astype(jnp.float32) for operand in (states, words))
    slopes = gradient.ravel()
    numbers = jnp.cumsum(slopes != 0)

    def add_some(n, sums):
        some = jnp.searchsorted(numbers, n * PRODUCTS_AT_ONCE + 1 + jnp.arange(PRODUCTS_AT_ONCE))
        slope = slopes.at[some].get(mode="fill", fill_value=0)[:, None]
        token, word = tokens.ravel()[some], some % len(words)
        of_states, of_words = sums
        return of_states.at[token].add(slope * words[word]), of_words.at[word].add(slope * states[token])

    times = (numbers[-1] + PRODUCTS_AT_ONCE - 1) // PRODUCTS_AT_ONCE
    return jax.lax.fori_loop(0, times, add_some, (jnp.zeros_like(states), jnp.zeros_like(words)))


max_logits.defvjp(find_max_logits, max_logits_backward)


def binary_vectors(input_ids, mask, entries: int):
    """Return 1 for each entry of the vocabulary that occurs among the tokens [B, L] of a text, else 0: [B, P, V], given
    the masks of the texts [B, P, L]."""
    occurrences = jnp.zeros((*mask.shape[:2], entries))
    rows, texts = jnp.arange(len(mask))[:, None, None], jnp.arange(mask.shape[1])[:, None]
    return occurrences.at[rows, texts, input_ids[:, None]].max(mask.astype(jnp.float32))
