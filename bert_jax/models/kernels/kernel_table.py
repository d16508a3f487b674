"""The attention kernels, and what each can do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bert_jax.models.kernels import (
    banded_attention,
    blocked_attention,
    cudnn_attention,
    flash_attention,
    short_attention,
    splash_attention,
    xla_attention,
)
from bert_jax.models.kernels.flash_tiles import hash_kept_pairs
from bert_jax.models.kernels.request import AttentionRequest


@dataclass(frozen=True)
class AttentionKernel:
    """`run(qkv, context, request, draw)` -> [B, L, H x K].

    If the compiler can split the kernel over a mesh (`splits`), `draw` is the key of dropout. Otherwise each device
    runs the kernel on its own rows and heads, and `draw` is their seeds [B, H].
    """

    run: Callable
    refusal: Callable[[AttentionRequest], str | None]  # why it cannot serve a request; None if it can
    splits: bool = True
    needs_check: bool = False  # "auto" takes it only on a device on which it was compared with the definition
    draw_kept: Any = None  # (length, seed [1, 1], rate) -> the weights that its dropout keeps, [L, L]


# XLA can serve every request.
KERNELS = {
    "short": AttentionKernel(
        short_attention.run, short_attention.refusal, False, True, short_attention.hash_keep_mask
    ),
    "splash": AttentionKernel(splash_attention.run, splash_attention.refusal, False, True),
    "cudnn": AttentionKernel(cudnn_attention.run, cudnn_attention.refusal, False),
    "flash": AttentionKernel(flash_attention.run, flash_attention.refusal, False, True, hash_kept_pairs),
    "banded": AttentionKernel(banded_attention.run, banded_attention.refusal),
    "blocked": AttentionKernel(blocked_attention.run, blocked_attention.refusal),
    "xla": AttentionKernel(xla_attention.run, lambda request: None),
}
