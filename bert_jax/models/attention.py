"""Attention: one entry, several kernels, and a table of what each can do.

Shapes: B rows, L tokens, H heads, K numbers a head. Queries, keys and values are one array `qkv [B, L, 3, H x K]`, as
one product makes them. `mask [B, L]` is 1 on real tokens; `packs [B, L]`, where several
sequences share a row, is 1..P inside each and 0 on padding. A query attends to the real tokens of its own pack, and,
with a `window`, only to those at most that many places away. A query that may attend to nothing gets exact zeros.
Kernels agree where `mask` is 1; what stands on padding is theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from bert_jax.errors import BertJaxError, nearest
from bert_jax.models import short_attention
from bert_jax.models.dropout import by_row, drop
from bert_jax.models.elementwise import KEPT, softmax
from bert_jax.models.mesh import FUSED_QKV, HEAD_STATES, SEEDS, STATES, TENSOR, TOKENS

LANES = 128  # of a TPU's vector registers, the unit of splash's blocks


@dataclass(frozen=True)
class Request:
    """What a call asks of a kernel, known while it is traced."""

    platform: str
    length: int
    heads: int  # on a device
    head_size: int
    dtype: str
    packed: bool
    window: int | None
    dropout: float


@dataclass(frozen=True)
class Kernel:
    run: Callable
    refusal: Callable[[Request], str | None]  # why it can't serve a request; None where it can
    splits: bool = True  # the compiler can split it over a mesh
    together: bool = False  # takes qkv as it is, and not apart


def attend(
    qkv, mask, packs=None, *, heads: int, window: int | None = None, dropout: float = 0.0, dropout_key=None,
    rows=None, kernel: str = "auto", platform: str | None = None,
):  # fmt: skip
    """qkv [B, L, 3, H x K] -> [B, L, H x K]; `platform` is what the program will run on, by default the mesh's in
    context or this process's. `rows [B]` are what dropout follows."""
    mesh = jax.sharding.get_abstract_mesh()
    here = mesh.abstract_device.platform if mesh.abstract_device else jax.default_backend()
    B, L, _, width = qkv.shape
    request = Request(
        platform or here,
        L,
        heads // (1 if mesh.empty else mesh.shape[TENSOR]),
        width // heads,
        str(qkv.dtype),
        packs is not None,
        window,
        dropout,
    )
    chosen = KERNELS[choose(kernel, request)]
    if chosen.together:
        seeds = row_seeds(dropout_key if dropout else None, B, heads, rows)
        run: Callable = partial(chosen.run, size=width // heads, window=window, dropout=dropout)
        run = on_each_device(run, mesh, (FUSED_QKV, TOKENS, SEEDS), STATES)
        return run(qkv.transpose(0, 2, 1, 3), segments_of(mask, packs), seeds)
    q, k, v = (qkv[:, :, part].reshape(B, L, heads, -1) for part in range(3))
    if chosen.splits:
        out = chosen.run(
            q, k, v, mask, packs, window=window, dropout=dropout, dropout_key=dropout_key, rows=rows
        )
    else:
        in_specs = (HEAD_STATES, HEAD_STATES, HEAD_STATES, TOKENS, TOKENS)
        run = on_each_device(partial(chosen.run, window=window), mesh, in_specs, HEAD_STATES)
        out = run(q, k, v, mask, packs)
    return out.reshape(B, L, width)


def on_each_device(run: Callable, mesh, in_specs, out_specs) -> Callable:
    """`run` on every device's own rows and heads, for a kernel that the compiler cannot split over `mesh`."""
    if mesh.empty:
        return run
    # The step maps over `data`, so a row here is one of a share's.
    # Pallas kernels do not say over which axes their outputs vary.
    return jax.shard_map(run, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def row_seeds(key, count: int, heads: int, rows):
    """A number for each row and head [B, H], which follows the row; zeros without a key."""
    if key is None:
        return jnp.zeros((count, heads), jnp.uint32)
    if rows is None:
        return jax.random.bits(key, (count, heads), jnp.uint32)
    return by_row(lambda key: jax.random.bits(key, (heads,), jnp.uint32), key, rows)


def segments_of(mask, packs):
    """Padding and packs as one idea: tokens attend within their own segment, and padding is segment 0."""
    return (mask if packs is None else packs * (mask > 0)).astype(jnp.int32)


def choose(kernel: str, request: Request) -> str:
    """The kernel's name for a request: the one asked for, or for "auto" the first that can serve it."""
    if kernel == "auto":
        return next(name for name, candidate in KERNELS.items() if candidate.refusal(request) is None)
    if kernel not in KERNELS:
        raise BertJaxError(f'no attention kernel "{kernel}"; {nearest(kernel, [*KERNELS, "auto"])}')
    if reason := KERNELS[kernel].refusal(request):
        raise BertJaxError(f'attention "{kernel}" {reason}; use attention="auto" or "xla"')
    return kernel


def allowed(mask, packs, window):
    """Which query may see which key, [B, 1, L or 1, L] of bool.

    >>> allowed(jnp.ones((1, 4)), jnp.array([[1, 1, 2, 0]]), None)[0, 0].astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    allow = mask[:, None, None, :] > 0
    if packs is not None:
        allow = allow & (packs[:, None, :, None] == packs[:, None, None, :]) & (packs[:, None, :, None] > 0)
    if window is not None:
        place = jnp.arange(mask.shape[1])
        allow = allow & (jnp.abs(place[:, None] - place[None, :]) <= window)
    return allow


def xla(q, k, v, mask, packs, *, window, dropout, dropout_key, rows=None):
    allow = allowed(mask, packs, window)
    scores = jnp.einsum("blhk,bmhk->bhlm", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    weights = softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
    if dropout:
        weights = drop(weights, dropout, dropout_key, rows)
    out = jnp.einsum("bhlm,bmhk->blhk", weights.astype(v.dtype), v)
    return silence_dead(out, allow)


def silence_dead(out, allow):
    """Zeros for queries that see nothing: there softmax has nothing to choose from and its answer is noise."""
    alive = allow.any(-1)[:, 0, :, None, None]  # [B, L or 1, 1, 1]
    return jnp.where(alive, out, 0)


def cudnn(q, k, v, mask, packs, **_):
    allow = allowed(mask, packs, None)
    allow_all = jnp.broadcast_to(allow, (*allow.shape[:2], q.shape[1], q.shape[1]))
    return silence_dead(jax.nn.dot_product_attention(q, k, v, mask=allow_all, implementation="cudnn"), allow)


def cudnn_refusal(request: Request) -> str | None:
    if request.platform not in ("gpu", "cuda"):
        return f"needs an NVIDIA GPU, and this program is for {request.platform}"
    if request.dtype not in ("bfloat16", "float16"):
        return f'computes in bfloat16, not {request.dtype}: set dtype="bfloat16"'
    if request.dropout:
        return "has no dropout inside: set attention_dropout=0"
    if request.window is not None:
        return "has no two-sided window"
    if request.head_size % 8 or request.head_size > 128:
        return f"takes heads of a multiple of 8 up to 128, not {request.head_size}"
    return None


def splash(q, k, v, mask, packs, *, window, interpret: bool = False, **_):
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask,
    )

    _, L, H, K = q.shape
    one_head = (
        splash_attention_mask.FullMask((L, L))
        if window is None
        else splash_attention_mask.LocalMask((L, L), (window, window), 0)
    )
    block = next(size for size in (512, 384, 256, LANES) if L % size == 0)
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([one_head] * H),
        block_sizes=splash_attention_kernel.BlockSizes(
            block_q=block,
            block_kv=block,
            block_kv_compute=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_kv_dkv_compute=block,
            use_fused_bwd_kernel=True,
        ),  # fmt: skip
        head_shards=1,
        q_seq_shards=1,
        residual_checkpoint_name=KEPT,
        interpret=interpret,
    )
    segments = segments_of(mask, packs)
    heads_first = [x.transpose(0, 2, 1, 3) for x in (q * K**-0.5, k, v)]
    ids = splash_attention_kernel.SegmentIds(q=segments, kv=segments)
    out = jax.vmap(kernel)(*heads_first, segment_ids=ids).transpose(0, 2, 1, 3)
    return jnp.where((segments > 0)[:, :, None, None], out, 0)


def splash_refusal(request: Request) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES:
        return f"takes lengths that are multiples of {LANES}, not {request.length}"
    if request.dropout:
        return "has no dropout inside: set attention_dropout=0"
    return None


def short(qkv, segments, seeds, *, size, window, dropout, interpret: bool = False):
    return short_attention.attention(qkv, segments, seeds, size, window, dropout, interpret)


def short_refusal(request: Request) -> str | None:
    if request.platform != "tpu":
        return f"needs a TPU, and this program is for {request.platform}"
    if request.length % LANES or request.length > short_attention.LONGEST:
        return f"takes lengths that are multiples of {LANES} up to {short_attention.LONGEST}, not {request.length}"
    if not short_attention.heads_together(request.heads, request.head_size):
        return (
            f"takes heads that fill {LANES} lanes together, not {request.heads} of {request.head_size} a chip"
        )
    return None


# In the order in which "auto" asks; XLA serves every request.
KERNELS = {
    "short": Kernel(short, short_refusal, splits=False, together=True),
    "splash": Kernel(splash, splash_refusal, splits=False),
    "cudnn": Kernel(cudnn, cudnn_refusal, splits=False),
    "xla": Kernel(xla, lambda request: None),
}
