"""JAX's splash kernel for TPUs, for rows of any length."""

import jax
import jax.numpy as jnp

from bert_jax.models.context import Context
from bert_jax.models.elementwise import SAVED
from bert_jax.models.kernels.request import AttentionRequest, masked_segment_ids, split_qkv
from bert_jax.models.kernels.short_attention import LANES

FUSED = 2048  # the longest row, without a window, for which the backward pass is one kernel


def run(qkv, context: Context, request: AttentionRequest, seeds, interpret: bool = False):
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


def refusal(request: AttentionRequest) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES:
        return f"needs a length that is a multiple of {LANES}, not {request.length}"
    if request.dropout:
        return "does not support attention dropout: set attention_probs_dropout_prob=0"
    if request.relative:
        return "does not support relative positions"
    return None
