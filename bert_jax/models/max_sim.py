"""MaxSim, the score of late interaction: for each token of a query, the highest inner product with a token of the
document; these maxima are summed.

The products of all tokens of queries with all tokens of documents would take gigabytes, so they are computed for some
documents at a time. The gradient reads which token had the maximum, so that no product is kept or computed again.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

PRODUCTS_AT_ONCE = 1 << 21  # 8 MB; a quarter and twice as many take as long on a CPU
EMPTY_SCORE = -1e9  # of a document without any scored token
OF_ALL, OF_OWN = "qsd,ntd->nqst", "qsd,nqtd->nqst"  # queries and documents -> products of their tokens


def max_sim(queries, query_mask, documents, document_mask, mean: bool = False):
    """Return the scores [Q, N] of documents [N, T, D] for queries [Q, S, D], given the masks of the tokens that are
    scored, [Q, S] and [N, T]. If `mean`, a score is divided by the number of the query's tokens."""
    mask = document_mask[:, None] > 0

    def score(queries, query_mask):
        return sum_maxima(OF_ALL, queries, query_mask > 0, documents, mask).T

    scores = map_queries(score, (queries, query_mask), documents.shape[-2])
    return scores / token_counts(query_mask) if mean else scores


def max_sim_of_own(queries, query_mask, documents, document_mask, mean: bool = False):
    """Return the scores [Q, C] if each query has documents of its own, [Q, C, T, D], with the masks [Q, C, T]."""

    def score(queries, query_mask, documents, mask):
        documents, mask = jnp.moveaxis(documents, 1, 0), jnp.moveaxis(mask, 1, 0)
        return sum_maxima(OF_OWN, queries, query_mask > 0, documents, mask > 0).T

    sides = queries, query_mask, documents, document_mask
    scores = map_queries(score, sides, documents.shape[-2])
    return scores / token_counts(query_mask) if mean else scores


def token_counts(mask):
    return jnp.maximum((mask > 0).sum(-1, keepdims=True), 1)


def map_queries(score: Callable, sides: tuple, tokens: int):
    """Return the scores [Q, N] by a function of the arrays of queries, [Q, ...], for as many queries at a time as have
    few enough products with one document of so many tokens."""
    count, per_query = sides[0].shape[0], sides[0].shape[1] * tokens
    blocks = count_blocks(count, per_query)
    if blocks == 1:
        return score(*sides)
    # Queries are dealt out in turn, so that each device has a part of each block.
    dealt = (pad_to_multiple(side, blocks).reshape(-1, blocks, *side.shape[1:]) for side in sides)
    parts = tuple(jnp.moveaxis(side, 1, 0) for side in dealt)
    scores = jax.lax.map(lambda part: jax.checkpoint(score)(*part), parts)
    return jnp.moveaxis(scores, 0, 1).reshape(-1, scores.shape[-1])[:count]


def count_blocks(count: int, products: int) -> int:
    """Return the number of blocks of `count` texts with so many products each."""
    return -(-count // max(PRODUCTS_AT_ONCE // products, 1))


def pad_to_multiple(x, size: int):
    return jnp.pad(x, [(0, -len(x) % size)] + [(0, 0)] * (x.ndim - 1))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def sum_maxima(product: str, queries, query_mask, documents, mask):
    """Return the scores [N, Q] of documents, [N, T, D] or [N, Q, T, D] by the product, for queries [Q, S, D]; the
    masks of their tokens are [N, 1, T] or [N, Q, T], and [Q, S]."""
    return find_maxima(product, queries, query_mask, documents, mask)[0]


def find_maxima(product: str, queries, query_mask, documents, mask):
    (Q, S, _), (T, _) = queries.shape, documents.shape[-2:]

    def score_block(block):
        documents, mask = block
        products = jnp.einsum(product, queries, documents)
        products = jnp.where(mask[:, :, None], products, jnp.finfo(products.dtype).min)
        sums = jnp.where(query_mask, products.max(-1).astype(jnp.float32), 0).sum(-1)
        # Of equal maxima the first counts, also in the gradient.
        return jnp.where(mask.any(-1), sums, EMPTY_SCORE), products.argmax(-1).astype(
            np.min_scalar_type(T - 1)
        )

    split = partial(split_documents, products=Q * S * T)
    scores, best = jax.lax.map(score_block, (split(documents), split(mask)))
    return scores.reshape(-1, Q)[: len(documents)], (queries, query_mask, documents, mask, best)


def split_documents(x, products: int):
    """Split an array of documents, [N, ...] -> [blocks, N / blocks, ...]; each of them has so many `products`."""
    blocks = count_blocks(len(x), products)
    x = pad_to_multiple(x, blocks)
    return x.reshape(blocks, -1, *x.shape[1:])


def sum_maxima_backward(product: str, kept, slopes):
    queries, query_mask, documents, mask, best = kept
    (Q, S, _), (T, _) = queries.shape, documents.shape[-2:]
    slopes = jnp.where(mask.any(-1), slopes, 0)
    split = partial(split_documents, products=Q * S * T)

    def add_block(of_queries, block):
        documents, best, slopes = block
        is_best = query_mask[..., None] & (best[..., None] == jnp.arange(T))
        factors = jnp.where(is_best, slopes[..., None, None], 0)
        products, transpose = jax.vjp(partial(jnp.einsum, product), queries, documents)
        more, of_documents = transpose(factors.astype(products.dtype))
        return of_queries + more, of_documents

    zeros = jnp.zeros_like(queries)
    of_queries, of_documents = jax.lax.scan(add_block, zeros, (split(documents), best, split(slopes)))
    return of_queries, None, of_documents.reshape(-1, *documents.shape[1:])[: len(documents)], None


sum_maxima.defvjp(find_maxima, sum_maxima_backward)
