"""cuDNN's kernel for NVIDIA GPUs."""

import jax
import jax.numpy as jnp

from bert_jax.models.context import Context
from bert_jax.models.kernels.request import (
    AttentionRequest,
    gpu_refusal,
    make_attention_mask,
    split_qkv,
    zero_dead,
)


def run(qkv, context: Context, request: AttentionRequest, seeds):
    q, k, v = split_qkv(qkv, request.head_size)
    allow = make_attention_mask(context.attention_mask, context.segment_ids, None)
    allow_all = jnp.broadcast_to(allow, (*allow.shape[:2], q.shape[1], q.shape[1]))
    out = jax.nn.dot_product_attention(q, k, v, mask=allow_all, implementation="cudnn")
    return zero_dead(out, allow).reshape(*qkv.shape[:2], -1)


def refusal(request: AttentionRequest) -> str | None:
    if reason := gpu_refusal(request):
        return reason
    if request.dropout:
        return "does not support attention dropout: set attention_probs_dropout_prob=0"
    if request.window is not None:
        return "does not support local attention"
    if request.head_size % 8 or request.head_size > 128:
        return f"needs a head size that is a multiple of 8 up to 128, not {request.head_size}"
    if request.relative:
        return "does not support relative positions"
    return None
