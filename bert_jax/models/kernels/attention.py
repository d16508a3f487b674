"""Attention: one entry point, several kernels, and a table of what each kernel can do.

Shapes: B rows, L tokens, H heads, K numbers per head. Queries, keys and values are one array `qkv [B, L, 3, H x K]`, as
one product computes them. A query attends to the real tokens of its own sequence (context.attention_mask and
context.segment_ids) and, with a `window`, only to tokens at most that many positions away. A query that may attend to
nothing gets exact zeros. Kernels agree where the mask is 1; on padding they may differ.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.dropout import draw_by_row
from bert_jax.models.kernels.kernel_choice import choose_kernel
from bert_jax.models.kernels.kernel_table import KERNELS
from bert_jax.models.kernels.request import AttentionRequest
from bert_jax.models.mesh import FSDP, FUSED_QKV, SEEDS, SHARD_ROWS, STATES, TENSOR, TOKENS, platform


def attend(
    qkv, context: Context, *, heads: int, window: Any = None, dropout: float = 0.0, dropout_key=None,
    kernel: str = "auto",
):  # fmt: skip
    """Compute attention: qkv [B, L, 3, H x K] -> [B, L, H x K].

    `kernel` is the name of a kernel, or "auto" for one that can serve the call on the mesh in context or on this
    process's devices (see `choose_kernel`).
    """
    request = request_of(qkv, context, heads, window, dropout)
    chosen = KERNELS[choose_kernel(kernel, request)]
    if chosen.splits:
        return chosen.run(qkv, context, request, dropout_key)
    seeds = row_seeds(dropout_key if dropout else None, len(qkv), heads, context.rows)
    context, mesh = context.kernel_context, jax.sharding.get_abstract_mesh()

    def run(qkv, context, seeds):
        return chosen.run(qkv, context, request, seeds)

    if not mesh.empty:
        # check_vma=False: Pallas kernels do not say over which axes their outputs vary.
        terms = context.relative
        term_specs = terms and replace(relative_terms.SPECS, is_fixed=terms.is_fixed)
        in_specs = (FUSED_QKV, Context(TOKENS, TOKENS, SHARD_ROWS, term_specs), SEEDS)
        run = jax.shard_map(run, in_specs=in_specs, out_specs=STATES, check_vma=False)
    return run(qkv, context, seeds)


def attend_locally_or_globally(
    qkv, context: Context, is_local, window: int, *, heads: int, kernel: str = "auto", **dropout
):
    """Compute attention in a layer that sees all tokens or, if `is_local`, the tokens in the window.

    `is_local` is a bool, or a traced boolean if one program serves all layers.
    """
    if isinstance(is_local, bool):
        return attend(
            qkv, context, heads=heads, window=window if is_local else None, kernel=kernel, **dropout
        )
    rate = dropout.get("dropout", 0.0)
    global_kernel, local_kernel = (
        choose_kernel(kernel, request_of(qkv, context, heads, reach, rate)) for reach in (None, window)
    )
    if global_kernel == local_kernel == "xla":  # they differ only in a mask
        reach = jnp.where(is_local, window, qkv.shape[1])
        return attend(qkv, context, heads=heads, window=reach, kernel="xla", **dropout)

    def branch(kernel: str, reach: int | None):
        run = partial(attend, heads=heads, window=reach, kernel=kernel, **dropout)
        # Recompute scores, which are large: what one branch keeps for the backward pass takes memory in the other, too.
        return jax.checkpoint(run) if KERNELS[kernel].splits else run

    return jax.lax.cond(is_local, branch(local_kernel, window), branch(global_kernel, None), qkv, context)


def request_of(qkv, context: Context, heads: int, window: int | None, dropout: float) -> AttentionRequest:
    mesh, terms = jax.sharding.get_abstract_mesh(), context.relative
    names = [name for name in ("bias", "keys", "queries") if getattr(terms, name, None) is not None]
    return AttentionRequest(
        platform=platform(),
        length=qkv.shape[1],
        heads=heads // (1 if mesh.empty else mesh.shape[TENSOR]),
        head_size=qkv.shape[3] // heads,
        dtype=str(qkv.dtype),
        window=window,
        dropout=dropout,
        terms=tuple(names),
        is_fixed=terms is not None and terms.is_fixed,
        rows=qkv.shape[0] // (1 if mesh.empty else mesh.shape[FSDP]),
    )


def row_seeds(key, count: int, heads: int, rows):
    """Return a seed for each row and head [B, H], which depends on `rows` if given; zeros without a key."""
    if key is None:
        return jnp.zeros((count, heads), jnp.uint32)
    if rows is None:
        return jax.random.bits(key, (count, heads), jnp.uint32)
    return draw_by_row(lambda key: jax.random.bits(key, (heads,), jnp.uint32), key, rows)
