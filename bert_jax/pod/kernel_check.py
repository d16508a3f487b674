"""The attention kernels of TPUs on a device, beside the definition of attention: values, gradients, rate of dropout."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.context import Context
from bert_jax.models.encoder_config import RelativeConfig
from bert_jax.models.kernels import short_attention, splash_attention
from bert_jax.models.kernels.request import (
    AttentionRequest,
    make_attention_mask,
    masked_segment_ids,
    split_qkv,
)
from bert_jax.models.kernels.xla_attention import attention_scores
from bert_jax.models.relative_terms import RelativeTerms, row_of_distances

ROWS, HEADS, HEAD_SIZE, DTYPE = 3, 2, 64, "bfloat16"
DISTANCES = RelativeConfig(("keys", "queries"), buckets=16, max_distance=64)


@dataclass(frozen=True)
class KernelCase:
    run: Callable
    length: int
    dropout: float = 0.0
    terms: tuple[str, ...] = ()  # relative terms

    @property
    def request(self) -> AttentionRequest:
        return AttentionRequest(
            "tpu", self.length, HEADS, HEAD_SIZE, DTYPE, None, self.dropout, bool(self.terms)
        )


CASES = {
    "short, 128 tokens": KernelCase(short_attention.run, 128, 0.1),
    "short, 512 tokens": KernelCase(short_attention.run, 512, 0.1),
    "short, a bias for each distance": KernelCase(short_attention.run, 128, 0.1, ("bias",)),
    "short, keys and queries of distances": KernelCase(short_attention.run, 128, 0.1, ("keys", "queries")),
    "splash, 1,024 tokens": KernelCase(splash_attention.run, 1024),
}


@dataclass(frozen=True)
class KernelDifference:
    """How far a kernel is from the definition: norms of differences as shares of the norms of the definition's."""

    values: float
    gradients: float
    kept: float | None  # the share of the attention weights that dropout keeps


def check_kernels() -> dict[str, dict]:
    """Return the differences of all cases on the first device of this process, interpreted if that is no TPU."""
    interpret = jax.local_devices()[0].platform != "tpu"
    return {name: asdict(check_kernel(case, interpret)) for name, case in CASES.items()}


def check_kernel(case: KernelCase, interpret: bool) -> KernelDifference:
    qkv, terms, target, context, seeds = make_inputs(case)

    def ours(qkv, terms):
        return case.run(qkv, with_terms(context, terms), case.request, seeds, interpret=interpret)

    def draw_kept(request, seed):
        return short_attention.hash_keep_mask(request.length, seed[None, None], request.dropout)

    def theirs(qkv, terms):
        with jax.default_matmul_precision("highest"):
            return attend_by_definition(qkv, with_terms(context, terms), case.request, seeds, draw_kept)

    (our_values, our_gradients), (values, gradients) = (
        jax.jit(partial(gradients_of, run))(qkv, terms, target) for run in (ours, theirs)
    )
    return KernelDifference(
        difference(our_values, values),
        max(jax.tree.leaves(jax.tree.map(difference, our_gradients, gradients))),
        share_kept(case, ours, terms) if case.dropout else None,
    )


def make_inputs(case: KernelCase):
    """Return random inputs: a full row, a row of two sequences with padding, and a row of padding alone."""
    random, length, width = np.random.default_rng(0), case.length, HEADS * HEAD_SIZE

    def draw(*shape: int):
        return jnp.asarray(random.standard_normal(shape), DTYPE)

    place = np.arange(length)
    halves = np.where(place < length // 3, 1, np.where(place < length // 2, 2, 0))
    segment_ids = jnp.asarray(np.stack([np.ones(length), halves, np.zeros(length)]), jnp.int32)
    shapes = {"bias": (HEADS, 2 * length - 1)} | dict.fromkeys(
        ("keys", "queries"), (2 * DISTANCES.span, HEADS, HEAD_SIZE)
    )
    terms = {name: draw(*shapes[name]) for name in case.terms}
    seeds = jax.random.bits(jax.random.key(0), (ROWS, HEADS), jnp.uint32)
    context = Context((segment_ids > 0).astype(jnp.int32), segment_ids)
    return draw(ROWS, length, 3, width), terms, draw(ROWS, length, width), context, seeds


def with_terms(context: Context, terms: dict) -> Context:
    if not terms:
        return context
    length = context.attention_mask.shape[1]
    rows = jnp.asarray(row_of_distances(DISTANCES, length))
    return replace(context, relative=RelativeTerms(rows=rows, **terms))


def gradients_of(run: Callable, qkv, terms, target):
    values, backward = jax.vjp(run, qkv, terms)
    return values, backward(target.astype(values.dtype))


def attend_by_definition(qkv, context: Context, request: AttentionRequest, seeds, draw_kept: Callable):
    """Compute attention in float32, one array of all weights at a time, with the kernel's own choice of dropout."""
    q, k, v = (part.astype(jnp.float32) for part in split_qkv(qkv, request.head_size))
    scores = attention_scores(q, k, context, "float32")
    allow = make_attention_mask(context.attention_mask, context.segment_ids, request.window)
    weights = jax.nn.softmax(jnp.where(allow, scores, jnp.finfo(jnp.float32).min))
    if request.dropout:
        kept = jax.vmap(jax.vmap(lambda seed: draw_kept(request, seed)))(seeds)
        weights = jnp.where(kept, weights / (1 - request.dropout), 0)
    out = jnp.einsum("bhlm,bmhk->blhk", weights, v).reshape(*qkv.shape[:2], -1)
    return jnp.where(masked_segment_ids(context)[..., None] > 0, out, 0)


def share_kept(case: KernelCase, run: Callable, terms: dict) -> float:
    """Return the share of weights that dropout keeps: with equal scores and values of 1 it is what a query gets."""
    width = HEADS * HEAD_SIZE
    parts = jnp.zeros((ROWS, case.length, 2, width)), jnp.ones((ROWS, case.length, 1, width))
    no_terms = jax.tree.map(jnp.zeros_like, terms)
    out = jax.jit(run)(jnp.concatenate(parts, axis=2).astype(DTYPE), no_terms)
    return float(out[0].astype(jnp.float32).mean()) * (1 - case.dropout)


def difference(ours, theirs) -> float:
    ours, theirs = (np.asarray(value, np.float32) for value in (ours, theirs))
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
