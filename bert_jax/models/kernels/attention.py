"""Attention: one entry point, several kernels, and a table of what each kernel can do.

Shapes: B rows, L tokens, H heads, K numbers per head. Queries, keys and values are one array `qkv [B, L, 3, H x K]`, as
one product computes them. A query attends to the real tokens of its own sequence (context.attention_mask and
context.segment_ids) and, with a `window`, only to tokens at most that many positions away. A query that may attend to
nothing gets exact zeros. Kernels agree where the mask is 1; on padding they may differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.models import relative_terms
from bert_jax.models.context import Context
from bert_jax.models.dropout import apply_dropout, draw_by_row
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.elementwise import SAVED, softmax
from bert_jax.models.kernels import banded_attention, blocked_attention, relative_attention, short_attention
from bert_jax.models.mesh import FUSED_QKV, SEEDS, SHARD_ROWS, STATES, TENSOR, TOKENS, platform

LANES = 128  # lanes of a TPU's vector registers; splash's blocks are multiples of it
FUSED = 2048  # the longest row, without a window, for which splash's backward pass is one kernel


@dataclass(frozen=True)
class AttentionRequest:
    """The requirements of a call to attention, known at trace time."""

    platform: str
    length: int
    heads: int  # per device
    head_size: int
    dtype: str
    window: Any  # None: all tokens; a traced number if one program serves layers with and without a window
    dropout: float
    relative: bool = False
    has_bias: bool = False  # the relative terms are a bias for each head and distance


@dataclass(frozen=True)
class AttentionKernel:
    """`run(qkv, context, request, draw)` -> [B, L, H x K].

    If the compiler can split the kernel over a mesh (`splits`), `draw` is the key of dropout. Otherwise each device
    runs the kernel on its own rows and heads, and `draw` is their seeds [B, H].
    """

    run: Callable
    refusal: Callable[[AttentionRequest], str | None]  # why it cannot serve a request; None if it can
    splits: bool = True


def attend(
    qkv, context: Context, *, heads: int, window: Any = None, dropout: float = 0.0, dropout_key=None,
    kernel: str = "auto",
):  # fmt: skip
    """Compute attention: qkv [B, L, 3, H x K] -> [B, L, H x K].

    `kernel` is the name of a kernel, or "auto" for the first one that can serve the call on the mesh in context or on
    this process's devices.
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
    mesh = jax.sharding.get_abstract_mesh()
    return AttentionRequest(
        platform=platform(),
        length=qkv.shape[1],
        heads=heads // (1 if mesh.empty else mesh.shape[TENSOR]),
        head_size=qkv.shape[3] // heads,
        dtype=str(qkv.dtype),
        window=window,
        dropout=dropout,
        relative=context.relative is not None,
        has_bias=context.relative is not None and context.relative.bias is not None,
    )


def row_seeds(key, count: int, heads: int, rows):
    """Return a seed for each row and head [B, H], which depends on `rows` if given; zeros without a key."""
    if key is None:
        return jnp.zeros((count, heads), jnp.uint32)
    if rows is None:
        return jax.random.bits(key, (count, heads), jnp.uint32)
    return draw_by_row(lambda key: jax.random.bits(key, (heads,), jnp.uint32), key, rows)


def split_qkv(qkv, head_size: int):
    """Split qkv [B, L, 3, H x K] into queries, keys and values [B, L, H, K]."""
    B, L, _, width = qkv.shape
    return (part.reshape(B, L, width // head_size, head_size) for part in unstack(qkv))


@jax.custom_vjp
def unstack(qkv):
    """Split the third axis. JAX's own backward rule would add up as many arrays of the full size as there are parts."""
    return tuple(qkv[:, :, part] for part in range(qkv.shape[2]))


unstack.defvjp(lambda qkv: (unstack(qkv), None), lambda _, parts: (jnp.stack(parts, axis=2),))


def masked_segment_ids(context: Context):
    """Return the mask and the segment ids as one array: tokens attend to those of equal id; 0 is padding."""
    attention_mask, segment_ids = context.attention_mask, context.segment_ids
    return (attention_mask if segment_ids is None else segment_ids * (attention_mask > 0)).astype(jnp.int32)


def choose_kernel(kernel: str, request: AttentionRequest) -> str:
    """Return the name of the kernel for a request: `kernel` itself or, for "auto", the first that can serve it."""
    if kernel == "auto":
        return next(name for name, candidate in KERNELS.items() if candidate.refusal(request) is None)
    if kernel not in KERNELS:
        raise BertJaxError(f'no attention kernel "{kernel}"; {suggest_name(kernel, [*KERNELS, "auto"])}')
    if reason := KERNELS[kernel].refusal(request):
        raise BertJaxError(f'attention "{kernel}" {reason}; use attention="auto" or "xla"')
    return kernel


def make_attention_mask(attention_mask, segment_ids, window):
    """Return which query may see which key, [B, 1, L or 1, L] of bool.

    >>> make_attention_mask(jnp.ones((1, 4)), jnp.array([[1, 1, 2, 0]]), None)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    allow = attention_mask[:, None, None, :] > 0
    if segment_ids is not None:
        allow = (
            allow
            & (segment_ids[:, None, :, None] == segment_ids[:, None, None, :])
            & (segment_ids[:, None, :, None] > 0)
        )
    if window is not None:
        position = jnp.arange(attention_mask.shape[1])
        allow = allow & (jnp.abs(position[:, None] - position[None, :]) <= window)
    return allow


def run_xla(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    allow = make_attention_mask(context.attention_mask, context.segment_ids, request.window)
    scores = attention_scores(q, k, context, request.dtype)
    weights = softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
    if request.dropout:
        weights = apply_dropout(weights, request.dropout, key, context.rows)
    out = mixed_einsum("bhlm,bmhk->blhk", weights, v, request.dtype, request.dtype)
    return zero_dead(out, allow).reshape(*qkv.shape[:2], -1)


def attention_scores(q, k, context: Context, dtype: str):
    """Return the float32 scores [B, H, L, L] of queries and keys [B, L, H, K]."""
    scale = scale_of(q.shape[-1], context.relative)
    scores = mixed_einsum("blhk,bmhk->bhlm", q * scale, k, dtype, "float32")
    if context.relative is None:
        return scores
    return scores + relative_terms.relative_scores(context.relative, q * scale, k, scale, dtype)


def scale_of(head_size: int, terms: relative_terms.RelativeTerms | None) -> float:
    return ((terms.products if terms else 1) * head_size) ** -0.5


def run_banded(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    dropped = request.dropout, key, context.rows
    out = banded_attention.banded_attention(q, k, v, masked_segment_ids(context), request.window, dropped)
    return out.reshape(*qkv.shape[:2], -1)


def banded_refusal(request: AttentionRequest) -> str | None:
    if request.window is None:
        return "needs a window, and this layer sees all tokens"
    if request.relative:
        return "does not support relative positions"
    if not banded_attention.is_worthwhile(request.length, request.window):
        return f"needs rows many times as long as the window of {request.window}, not {request.length} tokens"
    return None


def run_blocked(qkv, context: Context, request: AttentionRequest, key):
    q, k, v = split_qkv(qkv, request.head_size)
    dropped, bias = (request.dropout, key, context.rows), context.relative.bias
    out = blocked_attention.blocked_attention(q, k, v, masked_segment_ids(context), bias, dropped)
    return out.reshape(*qkv.shape[:2], -1)


def blocked_refusal(request: AttentionRequest) -> str | None:
    if not request.has_bias:
        return "needs a bias for each distance, and this model has none"
    if request.window is not None:
        return "does not support local attention"
    if request.length <= blocked_attention.MIN_LENGTH:
        return f"needs rows of more than {blocked_attention.MIN_LENGTH} tokens, not {request.length}"
    return None


def zero_dead(out, allow):
    """Set the output of queries that see no key to zero: the softmax over no keys gives noise."""
    alive = allow.any(-1)[:, 0, :, None, None]  # [B, L or 1, 1, 1]
    return jnp.where(alive, out, 0)


def run_cudnn(qkv, context: Context, request: AttentionRequest, seeds):
    q, k, v = split_qkv(qkv, request.head_size)
    allow = make_attention_mask(context.attention_mask, context.segment_ids, None)
    allow_all = jnp.broadcast_to(allow, (*allow.shape[:2], q.shape[1], q.shape[1]))
    out = jax.nn.dot_product_attention(q, k, v, mask=allow_all, implementation="cudnn")
    return zero_dead(out, allow).reshape(*qkv.shape[:2], -1)


def cudnn_refusal(request: AttentionRequest) -> str | None:
    if request.platform not in ("gpu", "cuda"):
        return f"needs an NVIDIA GPU, and this program is for {request.platform}"
    if request.dtype not in ("bfloat16", "float16"):
        return f'computes in bfloat16, not {request.dtype}: set dtype="bfloat16"'
    if request.dropout:
        return "does not support attention dropout: set attention_probs_dropout_prob=0"
    if request.window is not None:
        return "does not support local attention"
    if request.head_size % 8 or request.head_size > 128:
        return f"needs a head size that is a multiple of 8 up to 128, not {request.head_size}"
    if request.relative:
        return "does not support relative positions"
    return None


def run_splash(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    q, k, v = split_qkv(qkv, request.head_size)
    window = request.window
    _, L, H, K = q.shape
    one_head = (
        splash_attention_mask.FullMask((L, L))
        if window is None
        else splash_attention_mask.LocalMask((L, L), (window, window), 0)
    )
    block = next(size for size in (512, 384, 256, LANES) if L % size == 0)
    # The fused backward kernel stores a gradient of all queries for each block of keys.
    fused = window is None and L <= FUSED
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([one_head] * H),
        block_sizes=splash_attention_kernel.BlockSizes(
            block_q=block,
            block_kv=block,
            block_kv_compute=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_kv_dkv_compute=block,
            block_q_dq=None if fused else block,
            block_kv_dq=None if fused else block,
            use_fused_bwd_kernel=fused,
        ),  # fmt: skip
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=SAVED,
        interpret=interpret,
    )
    segment_ids = masked_segment_ids(context)
    heads_first = [x.transpose(0, 2, 1, 3) for x in (q * K**-0.5, k, v)]
    ids = splash_attention_kernel.SegmentIds(q=segment_ids, kv=segment_ids)
    out = jax.vmap(kernel)(*heads_first, segment_ids=ids).transpose(0, 2, 1, 3)
    return jnp.where((segment_ids > 0)[:, :, None, None], out, 0).reshape(*qkv.shape[:2], -1)


def splash_refusal(request: AttentionRequest) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES:
        return f"needs a length that is a multiple of {LANES}, not {request.length}"
    if request.dropout:
        return "does not support attention dropout: set attention_probs_dropout_prob=0"
    if request.relative:
        return "does not support relative positions"
    return None


def run_short(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
    options = short_attention.KernelOptions(request.head_size, request.window, request.dropout, interpret)
    parts_first, segment_ids = qkv.transpose(0, 2, 1, 3), masked_segment_ids(context)
    if context.relative is None:
        return short_attention.short_attention(parts_first, segment_ids, seeds, options)
    scale = scale_of(request.head_size, context.relative)
    tables = relative_terms.kernel_tables(context.relative, scale, request.dtype)
    options = replace(options, trains_bias=not context.relative.is_fixed)
    return relative_attention.relative_attention(parts_first, segment_ids, seeds, tables, options)


def short_refusal(request: AttentionRequest) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES or request.length > short_attention.MAX_LENGTH:
        return f"needs a length that is a multiple of {LANES} up to {short_attention.MAX_LENGTH}, not {request.length}"
    if not short_attention.heads_per_program(request.heads, request.head_size):
        return f"needs heads that fill {LANES} lanes together, not {request.heads} heads of {request.head_size} a chip"
    return None


# "auto" takes the first kernel that can serve a request; XLA can serve every request.
KERNELS = {
    "short": AttentionKernel(run_short, short_refusal, splits=False),
    "splash": AttentionKernel(run_splash, splash_refusal, splits=False),
    "cudnn": AttentionKernel(run_cudnn, cudnn_refusal, splits=False),
    "banded": AttentionKernel(run_banded, banded_refusal),
    "blocked": AttentionKernel(run_blocked, blocked_refusal),
    "xla": AttentionKernel(run_xla, lambda request: None),
}
