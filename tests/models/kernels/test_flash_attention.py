"""The kernel for NVIDIA GPUs, interpreted on a CPU, and lowered to Triton's code for a GPU that is not here."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from bert_jax.core.errors import BertJaxError
from bert_jax.models.context import Context
from bert_jax.models.encoder_config import RelativeConfig
from bert_jax.models.kernels import flash_attention
from bert_jax.models.kernels.attention import KERNELS, attend, choose_kernel
from bert_jax.models.kernels.flash_attention import visited_blocks
from bert_jax.models.kernels.flash_tiles import BLOCK, hash_kept_pairs
from bert_jax.models.kernels.kernel_check import attend_by_definition
from bert_jax.models.kernels.request import AttentionRequest, make_attention_mask
from bert_jax.models.mesh import AXES
from bert_jax.models.relative_terms import RelativeTerms, alibi_terms, row_of_distances
from tests.support.cases import long_except

B, H = 4, 2
DISTANCES = RelativeConfig(("keys", "queries"), buckets=16, max_distance=64)
GPU = AttentionRequest("gpu", 512, 12, 64, "bfloat16", window=None, dropout=0.0)


@dataclass(frozen=True)
class Case:
    length: int
    head_size: int = 32
    packed: bool = False
    window: int | None = None
    dropout: float = 0.0
    terms: str = ""
    dtype: str = "float32"

    @property
    def request(self) -> AttentionRequest:
        return AttentionRequest("gpu", self.length, H, self.head_size, self.dtype, self.window, self.dropout)


CASES = {
    "packs, dropout": Case(200, packed=True, dropout=0.3),
    "padding, dropout, bfloat16": Case(130, head_size=128, dropout=0.1, dtype="bfloat16"),
    "window, packs, dropout": Case(257, packed=True, window=40, dropout=0.3),
    "a bias, dropout": Case(150, packed=True, dropout=0.3, terms="bias"),
    "ALiBi": Case(129, terms="alibi"),
    "window, packs, dropout, bfloat16": Case(257, 64, True, 40, 0.1, dtype="bfloat16"),
    "keys and queries of distances, bfloat16": Case(136, 64, True, None, 0.1, "keys and queries", "bfloat16"),
    "keys and queries of distances": Case(136, packed=True, dropout=0.3, terms="keys and queries"),
}


def draw_terms(case: Case, random) -> dict:
    shapes = {
        "bias": {"bias": (H, 2 * case.length - 1)},
        "keys and queries": dict.fromkeys(("keys", "queries"), (2 * DISTANCES.span, H, case.head_size)),
    }
    chosen = shapes.get(case.terms, {})
    return {name: jnp.asarray(random.standard_normal(shape), jnp.float32) for name, shape in chosen.items()}


def relative_terms(case: Case, terms: dict) -> RelativeTerms | None:
    if case.terms == "alibi":
        return alibi_terms(H, case.length)
    rows = jnp.asarray(row_of_distances(DISTANCES, case.length))
    return RelativeTerms(rows=rows, **terms) if terms else None


def draw_segments(case: Case, random) -> np.ndarray:
    """Rows of random sequences, or of one sequence, with padding; the last row is padding alone."""
    segment_ids = np.zeros((B, case.length), np.int32)
    for row in segment_ids[:-1]:
        count = random.integers(2, 6) if case.packed else 1
        ends = np.sort(random.choice(np.arange(1, case.length), count, replace=False))
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            row[start:end] = number + 1
    return segment_ids


def difference(ours, theirs) -> float:
    ours, theirs = (np.asarray(value, np.float32) for value in (ours, theirs))
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("name", long_except(CASES, ["window, packs, dropout", "a bias, dropout"]))
@pytest.mark.slow
def test_it_is_the_definition_forward_and_gradient(name):
    case, random = CASES[name], np.random.default_rng(0)
    segment_ids = jnp.asarray(draw_segments(case, random))
    shape, terms = (B, case.length, H * case.head_size), draw_terms(case, random)
    qkv = jnp.asarray(random.standard_normal((*shape[:2], 3, shape[2])), case.dtype)
    target = jnp.asarray(random.standard_normal(shape), case.dtype)
    seeds = jax.random.bits(jax.random.key(0), (B, H), jnp.uint32)

    def results(attention):
        def run(qkv, terms):
            context = Context(jnp.sign(segment_ids), segment_ids, relative=relative_terms(case, terms))
            return attention(qkv, context, case.request, seeds)

        out, backward = jax.vjp(jax.jit(run), qkv, terms)
        return out, backward(target.astype(out.dtype))

    ours = results(partial(flash_attention.run, interpret=True))
    expected = results(partial(attend_by_definition, draw_kept=hash_kept_pairs))
    tolerance = 1e-5 if case.dtype == "float32" else 0.01
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert difference(a, b) < tolerance
    assert (ours[0][-1] == 0).all(), "a row with no real token yields exact zeros"


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 1, 70])
def test_every_pair_that_the_mask_allows_is_visited(window):
    random = np.random.default_rng(1)
    for case in (Case(1024, packed=True), Case(1024)):
        segment_ids = draw_segments(case, random)
        allow = np.asarray(make_attention_mask(segment_ids > 0, segment_ids, window))[:, 0]
        count = case.length // BLOCK
        tiles = allow.reshape(B, count, BLOCK, count, BLOCK).any((2, 4))
        first, last = np.moveaxis(np.asarray(visited_blocks(jnp.asarray(segment_ids), window)), -1, 0)
        numbers = np.arange(count)
        visited = (numbers >= first[..., None]) & (numbers < last[..., None])
        assert not (tiles & ~visited).any()
        # A span has no more than the blocks between the first and the last that a block needs.
        assert visited.sum() <= 1.5 * tiles.sum()


def lowered(case: Case, heads: int = 12, rows: int = 8) -> str:
    """The program of a value and its gradients for an H200."""
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    mesh = AbstractMesh((1, 1, 1), AXES, axis_types=(AxisType.Auto,) * 3, abstract_device=device)
    dropout = {"dropout": case.dropout, "dropout_key": jax.random.key(0)} if case.dropout else {}

    def loss(qkv, segment_ids, terms):
        context = Context(jnp.sign(segment_ids), segment_ids, relative=relative_terms(case, terms))
        out = attend(qkv, context, heads=heads, window=case.window, kernel="flash", **dropout)
        return out.astype(jnp.float32).sum()

    arguments = [
        jax.ShapeDtypeStruct((rows, case.length, 3, heads * case.head_size), case.dtype),
        jax.ShapeDtypeStruct((rows, case.length), jnp.int32),
        draw_terms(case, np.random.default_rng(0)),
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(jax.value_and_grad(loss, argnums=(0, 2))).trace(*arguments)
        return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.slow
@pytest.mark.parametrize(("terms", "kernels"), [("", 2), ("bias", 3), ("alibi", 2), ("keys and queries", 2)])
def test_it_lowers_to_triton_s_code(terms, kernels):
    case = Case(
        500, 64, packed=True, window=None if terms else 64, dropout=0.1, terms=terms, dtype="bfloat16"
    )
    assert lowered(case, heads=H).count("__gpu$xla.gpu.triton") == kernels


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (replace(GPU, platform="tpu"), "NVIDIA"),
        (replace(GPU, dtype="float32"), 'dtype="bfloat16"'),
        (replace(GPU, head_size=80), "not 80"),
        (replace(GPU, length=96), "not 96"),
    ],
)
def test_what_it_cannot_do_it_refuses(request_, message):
    with pytest.raises(BertJaxError) as error:
        choose_kernel("flash", request_)
    assert message in str(error.value)
    assert choose_kernel("auto", request_) != "flash"


def test_auto_takes_it_where_cudnn_s_kernel_cannot_serve():
    assert choose_kernel("auto", GPU) == "cudnn"
    for change in (
        {"dropout": 0.1},
        {"window": 64},
        {"terms": ("keys",)},
        {"terms": ("bias",)},
    ):
        assert choose_kernel("auto", replace(GPU, **change)) == "flash"
    assert not KERNELS["flash"].splits
