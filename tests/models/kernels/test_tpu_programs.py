"""Kernels compile for a TPU that is not here; the compiler is in the extra `preflight`."""

import json
import os
import subprocess
import sys

import jax
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.models.context import Context
from bert_jax.models.kernels.attention import attend, attend_locally_or_globally
from bert_jax.models.mesh import AXES, ROWS
from bert_jax.models.relative_terms import RelativeTerms
from bert_jax.pod import hlo

B, L, H, K = 8, 512, 12, 64
LONG = 8192
DROPOUT = {"dropout": 0.1}


def compile_on_chip(loss, *shapes, argnums=0):
    """The program of a loss and its gradients; a shape is its type and sides, and whole where it is no rows'."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[:1]
    mesh = jax.make_mesh((1, 1, 1), AXES, devices=devices, axis_types=(AxisType.Auto,) * 3)

    def place(shape):
        dtype, *sides = shape
        spec = ROWS if sides[:1] in ([B], [1]) else PartitionSpec()
        return jax.ShapeDtypeStruct(sides, dtype, sharding=NamedSharding(mesh, spec))

    arguments = jax.tree.map(place, shapes, is_leaf=lambda x: isinstance(x, tuple) and isinstance(x[0], str))
    with jax.set_mesh(mesh):
        return jax.jit(jax.value_and_grad(loss, argnums)).lower(*arguments).compile()


def count_kernels(compiled) -> int:
    return compiled.as_text().count("tpu_custom_call")


TOKENS = ("int32", B, L)
QKV = ("bfloat16", B, L, 3, H * K)


def compile_plain(kernel: str, dropout: dict) -> int:
    dropout = dropout and dropout | {"dropout_key": jax.random.key(0)}

    def loss(qkv, attention_mask, segment_ids):
        out = attend(qkv, Context(attention_mask, segment_ids), heads=H, kernel=kernel, **dropout)
        return out.astype("float32").sum()

    return count_kernels(compile_on_chip(loss, QKV, TOKENS, TOKENS))


def compile_both_sorts() -> list[int]:
    def loss(qkv, attention_mask, segment_ids, is_local):
        context = Context(attention_mask, segment_ids)
        return attend_locally_or_globally(qkv, context, is_local > 0, 64, heads=H).astype("float32").sum()

    tokens = ("int32", 1, LONG)
    compiled = compile_on_chip(loss, ("bfloat16", 1, LONG, 3, H * K), tokens, tokens, ("int32",))
    return [count_kernels(compiled), compiled.memory_analysis().temp_size_in_bytes]


def compile_terms() -> list[list[float]]:
    def loss(qkv, terms, attention_mask, segment_ids, rows):
        relative = RelativeTerms(rows=rows, **terms) if terms else None
        dropout = DROPOUT | {"dropout_key": jax.random.key(0)}
        context = Context(attention_mask, segment_ids, relative=relative)
        return attend(qkv, context, heads=H, kernel="short", **dropout).astype("float32").sum()

    table, found = ("bfloat16", 2 * 256, H, K), []
    for terms in ({}, {"bias": ("float32", H, 2 * L - 1)}, {"keys": table, "queries": table}):
        compiled = compile_on_chip(loss, QKV, terms, TOKENS, TOKENS, ("int32", 2 * L - 1), argnums=(0, 1))
        found.append([count_kernels(compiled), hlo.parse_program(compiled.as_text()).traffic])
    return found


PROGRAMS = {
    "splash": lambda: compile_plain("splash", {}),
    "short": lambda: compile_plain("short", DROPOUT),
    "both sorts": compile_both_sorts,
    "terms": compile_terms,
}


def compiled(name: str):
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    here = {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", __name__, name],
        env=os.environ | here | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


# The short kernel is in the step that tests/pod/test_tpu_step.py compiles.
@pytest.mark.parametrize("kernel", [pytest.param("short", marks=pytest.mark.long), "splash"])
@pytest.mark.slow
def test_kernels_compile_for_a_tpu(kernel):
    assert compiled(kernel) >= 2, "a forward and a backward kernel"


@pytest.mark.long
def test_layers_of_both_sorts_compile_for_a_tpu_without_all_scores():
    kernels, temporaries = compiled("both sorts")
    assert kernels >= 4, "a forward and a backward kernel of each sort"
    # A few arrays of the states' size, where scores are 12 x 8192 x 8192.
    assert temporaries < 20 * LONG * H * K


@pytest.mark.long
def test_relative_terms_move_little_more_than_the_kernel_without_them():
    found = compiled("terms")
    assert all(kernels >= 2 for kernels, _ in found), "a forward and a backward kernel"
    without, *others = [traffic for _, traffic in found]
    assert max(others) <= 2 * without, found


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]]()))
