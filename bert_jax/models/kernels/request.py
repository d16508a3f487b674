"""What is asked of an attention kernel, and its inputs in the forms that kernels read."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.models import relative_terms
from bert_jax.models.context import Context

GPU = ("gpu", "cuda")  # names of the platform


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
    # The relative terms: a "bias" for each distance, or "keys", "queries" of distances.
    terms: tuple[str, ...] = ()
    is_fixed: bool = False  # the bias is not trained
    # A kernel is chosen for any number of rows alike, and timed with those of the first call.
    rows: int = field(default=1, compare=False, repr=False)  # per device

    @property
    def relative(self) -> bool:
        return bool(self.terms)

    @property
    def has_bias(self) -> bool:
        return "bias" in self.terms


@dataclass(frozen=True)
class KernelOptions:
    """The static arguments of a Pallas kernel."""

    head_size: int
    scale: float  # of the products of queries and keys
    window: int | None = None
    rate: float = 0.0  # the rate of dropout
    interpret: bool = False  # run in Pallas's interpreter, on a CPU
    trains_bias: bool = True  # a bias for each distance has a gradient; that of a fixed one is left at zero


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


def scale_of(head_size: int, terms: relative_terms.RelativeTerms | None) -> float:
    return ((terms.products if terms else 1) * head_size) ** -0.5


def zero_dead(out, allow):
    """Set the output of queries that see no key to zero: the softmax over no keys gives noise."""
    alive = allow.any(-1)[:, 0, :, None, None]  # [B, L or 1, 1, 1]
    return jnp.where(alive, out, 0)


def gpu_refusal(request: AttentionRequest) -> str | None:
    if request.platform not in GPU:
        return f"needs an NVIDIA GPU, and this program is for {request.platform}"
    if request.dtype not in ("bfloat16", "float16"):
        return f'computes in bfloat16, not {request.dtype}: set dtype="bfloat16"'
    return None
