"""An attention kernel on the device at hand, beside the definition of attention (values, gradients, dropout's share)
and beside another kernel (time)."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.core.errors import first_line
from bert_jax.models.context import Context
from bert_jax.models.encoder_config import RelativeConfig
from bert_jax.models.kernels.kernel_table import KERNELS, AttentionKernel
from bert_jax.models.kernels.request import (
    GPU,
    AttentionRequest,
    make_attention_mask,
    masked_segment_ids,
    split_qkv,
)
from bert_jax.models.kernels.xla_attention import attention_scores
from bert_jax.models.relative_terms import RelativeTerms, row_of_distances

ROWS = 3
# Tokens of the rows compared: longer ones have more of the same blocks, and the definition has an array of all pairs.
LONGEST = 4096
MANY = 1024  # tokens from which two heads are compared, not all
DISTANCES = RelativeConfig(("keys", "queries"), buckets=16, max_distance=64)
# Of the vector of any token and head, as a share of their root mean square. In bfloat16 the farthest of a kernel that
# is right is 0.01 to 0.03 away. A key that is left out of 10,000 moves the farthest by 0.1.
MAX_DIFFERENCE = 0.08
CALLS, REPEATS = 4, 5  # calls that are timed together; the least time of some repeats is taken
FAILURE = "does not run"
INTERPRETED = 128  # tokens of the cases of a CPU


@dataclass(frozen=True)
class KernelDifference:
    """How far a kernel is from the definition."""

    values: float | None = None  # None: there is none, as where it does not run
    gradients: float | None = None
    kept: float | None = None  # the share of the attention weights that dropout keeps
    fault: str | None = None  # None: it is right


def check_kernel(kernel: AttentionKernel, request: AttentionRequest) -> KernelDifference:
    """Compare a kernel with the definition on a few rows of the request."""
    try:
        return compare_with_definition(kernel, shorten(request))
    except Exception as error:  # whatever a compiler or a device raises: the kernel is not taken
        return KernelDifference(fault=f"it {FAILURE} ({first_line(error)})")


def shorten(request: AttentionRequest) -> AttentionRequest:
    """Return a request of the same sort that the definition has memory for."""
    length, heads = request.length, request.heads
    if length > LONGEST:
        length = LONGEST + length % LONGEST % 512
    return replace(request, length=length, heads=min(heads, 2) if length > MANY else heads, rows=ROWS)


def compare_with_definition(kernel: AttentionKernel, request: AttentionRequest) -> KernelDifference:
    qkv, terms, target = draw_inputs(request)
    context, rate = packed_context(request), request.dropout
    seeds = jax.random.bits(jax.random.key(0), (ROWS, request.heads), jnp.uint32)
    theirs = partial(attend_by_definition, draw_kept=kernel.draw_kept)
    (values, gradients), (expected, expected_gradients) = (
        jax.jit(partial(gradients_of, run, context, request, seeds))(qkv, terms, target)
        for run in (runnable(kernel), theirs)
    )

    def by_head(x):
        return x.reshape(*x.shape[:-1], -1, request.head_size) if x.ndim > 2 else x

    parts = [
        [*jnp.unstack(by_head(d_qkv), axis=2), *map(by_head, d_terms.values())]
        for d_qkv, d_terms in (gradients, expected_gradients)
    ]
    of_values = farthest(by_head(values), by_head(expected))
    of_gradients = max(map(farthest, *parts))
    kept, share = None, None
    if rate:
        draws = [kernel.draw_kept(request.length, seed[None, None], rate) for seed in seeds[0]]
        kept, share = np.stack(draws), float(np.mean(draws))
    if not math.isfinite(of_values + of_gradients):
        return KernelDifference(fault="its values or gradients are not all finite")
    return KernelDifference(of_values, of_gradients, share, find_fault(of_values, of_gradients, kept, rate))


def find_fault(values: float, gradients: float, kept, rate: float) -> str | None:
    for name, distance in (("values", values), ("gradients", gradients)):
        if distance > MAX_DIFFERENCE:
            return f"its {name} differ from the definition's by {distance:.0%}"
    if rate:
        error = 0.002 + 4 * math.sqrt(rate * (1 - rate) / kept.size)
        if abs(kept.mean() - (1 - rate)) > error:
            return f"its dropout keeps {kept.mean():.1%} of the weights, not {1 - rate:.0%}"
        if len(kept) > 1 and (kept[0] == kept[1]).all():
            return "its dropout is the same for each seed"
    return None


def runnable(kernel: AttentionKernel) -> Callable:
    """Return `run` of a kernel, interpreted on a CPU."""
    is_interpreted = kernel.needs_check and jax.default_backend() == "cpu"
    return partial(kernel.run, interpret=True) if is_interpreted else kernel.run


def draw_inputs(request: AttentionRequest) -> tuple:
    """Return random inputs qkv, the relative terms, and what the output is multiplied by for a gradient."""
    random, length = np.random.default_rng(0), request.length
    width = request.heads * request.head_size

    def draw(*shape: int):
        return jnp.asarray(random.standard_normal(shape, np.float32), request.dtype)

    table = 2 * DISTANCES.span, request.heads, request.head_size
    shapes = {"bias": (request.heads, 2 * length - 1), "keys": table, "queries": table}
    terms = {name: draw(*shapes[name]) for name in request.terms}
    return draw(request.rows, length, 3, width), terms, draw(request.rows, length, width)


def packed_context(request: AttentionRequest) -> Context:
    """Return the context of a full row, of a row of two sequences with padding, and of a row of padding alone."""
    position, length = np.arange(request.length), request.length
    halves = np.where(position < length // 3, 1, np.where(position < length // 2, 2, 0))
    segment_ids = jnp.asarray(np.stack([np.ones(length), halves, np.zeros(length)]), jnp.int32)
    return Context((segment_ids > 0).astype(jnp.int32), segment_ids)


def gradients_of(run: Callable, context: Context, request: AttentionRequest, draw, qkv, terms, target):
    """Return the output and its gradients with respect to qkv and the terms."""

    def attend(qkv, terms):
        if not terms:
            return run(qkv, context, request, draw)
        rows = jnp.asarray(row_of_distances(DISTANCES, request.length))
        relative = RelativeTerms(rows=rows, is_fixed=request.is_fixed, **terms)
        return run(qkv, replace(context, relative=relative), request, draw)

    values, backward = jax.vjp(attend, qkv, terms)
    d_qkv, d_terms = backward(target.astype(values.dtype))
    return values, (d_qkv, {} if request.is_fixed else d_terms)


def attend_by_definition(qkv, context: Context, request: AttentionRequest, seeds, draw_kept: Callable):
    """Compute attention in float32, all weights of a row at a time, with the kernel's own choice of dropout."""

    @jax.checkpoint
    def attend_row(row):
        qkv, mask, segment_ids, seeds = jax.tree.map(lambda leaf: leaf[None], row)
        q, k, v = (part.astype(jnp.float32) for part in split_qkv(qkv, request.head_size))
        scores = attention_scores(q, k, Context(mask, relative=context.relative), "float32")
        allow = make_attention_mask(mask, segment_ids, request.window)
        weights = jax.nn.softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
        if request.dropout:
            kept = [draw_kept(request.length, seed[None, None], request.dropout) for seed in seeds[0]]
            weights = jnp.where(jnp.stack(kept), weights / (1 - request.dropout), 0)
        return jnp.einsum("bhlm,bmhk->blhk", weights, v).reshape(*qkv.shape[1:2], -1)

    with jax.default_matmul_precision("highest"):
        out = jax.lax.map(attend_row, (qkv, context.attention_mask, context.segment_ids, seeds))
    return jnp.where(masked_segment_ids(context)[..., None] > 0, out, 0)


def farthest(ours, theirs) -> float:
    """Return the largest difference of two vectors (last axis), as a share of the vectors' root mean square."""
    ours, theirs = (np.asarray(value, np.float32) for value in (ours, theirs))
    norms = np.linalg.norm(ours - theirs, axis=-1)
    return float(norms.max() / np.sqrt(np.square(np.linalg.norm(theirs, axis=-1)).mean()))


def time_kernels(names: list[str], request: AttentionRequest, trains: bool) -> list[float]:
    """Return the seconds of a call of each kernel at the request's shapes, with its gradients if it `trains`."""
    inputs = draw_inputs(request)
    mask = jnp.ones((request.rows, request.length), jnp.int32)
    key = jax.random.key(0)
    seeds = jax.random.bits(key, (request.rows, request.heads), jnp.uint32)
    programs = []
    for kernel in (KERNELS[name] for name in names):
        draw = key if kernel.splits else seeds
        run = partial(gradients_of, runnable(kernel), Context(mask), request, draw)
        # Without gradients among the results, the compiler leaves their computation out.
        programs.append(jax.jit(run if trains else lambda *inputs, run=run: run(*inputs)[0]))
    for program in programs:
        jax.block_until_ready(program(*inputs))
    least = [math.inf] * len(programs)
    for _ in range(REPEATS):
        for number, program in enumerate(programs):
            begun = time.perf_counter()
            jax.block_until_ready([program(*inputs) for _ in range(CALLS)])
            least[number] = min(least[number], (time.perf_counter() - begun) / CALLS)
    return least


# What `bert-jax check --kernels` tries: kernel -> case -> what differs from a plain request.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "short": {
        "dropout": {"dropout": 0.1},
        "a window": {"dropout": 0.1, "window": 40},
        "a bias for each distance": {"length": 128, "dropout": 0.1, "terms": ("bias",)},
        "keys and queries of distances": {"length": 128, "dropout": 0.1, "terms": ("keys", "queries")},
    },
    "splash": {"no dropout": {"length": 1024}, "a window": {"length": 1024, "window": 40}},
    "flash": {
        "dropout": {"dropout": 0.1},
        "a window": {"length": 1000, "dropout": 0.1, "window": 40},
        "a bias for each distance": {"dropout": 0.1, "terms": ("bias",)},
        "keys and queries of distances": {"dropout": 0.1, "terms": ("keys", "queries")},
    },
}
PLAIN = AttentionRequest("", 512, 12, 64, "bfloat16", None, 0.0, rows=32)


def check_kernels() -> dict[str, dict]:
    """Return for each kernel of ours that serves the device at hand, and each case, the differences and the times.

    On a CPU the kernels of all devices are interpreted on shorter rows, which says nothing of times."""
    here, tried = jax.default_backend(), {}
    for name, cases in CASES.items():
        kernel, platform = KERNELS[name], "gpu" if name == "flash" else "tpu"
        for case, changes in cases.items():
            request = replace(PLAIN, platform=platform, **changes)
            if here == "cpu":
                request = replace(request, length=INTERPRETED, heads=2)
            elif platform != here and not {platform, here} <= set(GPU):
                continue
            facts = asdict(check_kernel(kernel, request)) | {"seconds": None, "xla_seconds": None}
            if here != "cpu" and not facts["fault"]:
                facts["seconds"], facts["xla_seconds"] = time_kernels([name, "xla"], request, True)
            tried[f"{name}, {case}"] = facts
    return tried
