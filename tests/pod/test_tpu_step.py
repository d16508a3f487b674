"""The step that runs here, compiled for slices of TPU chips that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.models.cost import layer_flops
from bert_jax.pod import preflight
from bert_jax.pod.topology import parse_slice
from tests.support.pretraining_runs import make_corpus
from tests.support.project import ROOT
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER

pytestmark = pytest.mark.long

CONFIG = str(ROOT / "configs/pretrain.py")
PACKED = ["data.sentence_objective=none", "data.lengths=512", "data.length_ratios=1"]


def compiled(name: str, topology: str, *overrides: str) -> dict:
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    (phase,) = preflight.compile_in_subprocess(
        f"{CONFIG}:{name}", [*PACKED, *overrides], parse_slice(topology)
    )["phases"]
    return phase


@pytest.fixture(scope="module", params=["mini", "base"])
def step(request):
    """With four microbatches."""
    return compiled(request.param, "v5e:4x4", "data.batch_size=1024", "mesh.gradient_accumulation_steps=4")


def test_it_runs_on_16_chips_with_the_kernel_and_packed_rows(step):
    assert step["mesh"] == {"data": 16, "fsdp": 1, "tensor": 1}
    assert step["kernels"] == ["short_attention", "short_attention_backward"]
    assert step["memory"]["temporaries"] < 4 * preflight.GiB
    assert sum(step["memory"].values()) < parse_slice("v5e:4x4").chip.memory


def test_parameters_and_gradients_cross_once_a_step_and_nothing_else_does(step):
    large = [collective for collective in step["collectives"] if collective["bytes"] > 4000]
    # On a square slice the compiler makes a sum over all chips and a slice of it from a sum that is sent to parts.
    assert {collective["opcode"] for collective in large} == {"all-gather", "all-reduce"}
    assert {collective["axes"] for collective in step["collectives"]} == {"data"}
    assert {collective["trips"] for collective in step["collectives"]} == {1}, (
        "nothing crosses within a microbatch"
    )
    # With four microbatches, the sums make up the parameters, four bytes each. What is measured, a
    # dozen numbers, goes with them.
    sums = sum(collective["bytes"] for collective in large if collective["opcode"] == "all-reduce")
    assert 0 <= sums - 4 * step["parameters"] < 80
    assert step["memory"]["optimizer"] < 2 * 4 * step["parameters"] / 15, "each chip holds a sixteenth"


def test_the_compiled_program_has_the_products_that_were_traced(step, request):
    layers, width = {"mini": (4, 256), "base": (12, 768)}[request.node.callspec.params["step"]]
    # The TPU's text and the trace are counted apart: without the kernels, whose text is not XLA's, they agree.
    by_hand = (
        1024 * layers * (4 + 10) * 512 * 512 * width
    )  # scores and their use, 2 products forward and 5 backward
    assert step["products"] * 16 + by_hand == pytest.approx(step["flops"], rel=0.001)


def test_an_embedder_s_batch_in_parts(tmp_path):
    """All vectors, then each part again with their slopes."""
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    encoder = ENCODER_CONFIG.replace(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    layout = Layout(encoder, heads=("mlm",), pooler=False)
    shapes = jax.eval_shape(layout.init, jax.random.key(0))
    hub.save_model(
        tmp_path, layout, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes), TOKENIZER
    )
    given = [
        f"init={tmp_path}",
        "data.batch_size=256",
        "data.max_length=64",
        "mesh.gradient_accumulation_steps=4",
    ]
    N, L, D = 256, 2 * 64, encoder.hidden_size
    spec = str(Path(CONFIG).with_name("embed.py"))
    (phase,) = preflight.compile_in_subprocess(spec, [*given, "model.attention=xla"], parse_slice("v5e:2x2"))[
        "phases"
    ]
    # Forward twice, backward once; pooling, N L 2 D, and the scores, N N D, have no parameters to differentiate.
    layers = 2 * layer_flops(encoder, N * L, L)
    assert phase["model_flops"] == 3 * layers
    by_hand = 4 * layers + 3 * 2 * N * L * 2 * D + 3 * 2 * N * N * D
    assert phase["flops"] == pytest.approx(by_hand, rel=0.001)
    assert phase["products"] * 4 == pytest.approx(phase["flops"], rel=0.001), (
        "on no chip what another computes"
    )
    # Gradients cross once a step, not with every part; what else does is less than the vectors of the batch.
    assert {collective["trips"] for collective in phase["collectives"]} == {1}
    crossed = sum(collective["bytes"] for collective in phase["collectives"])
    assert 0 <= crossed - 4 * phase["parameters"] < 4 * N * 2 * D


def test_large_fits_on_64_chips():
    result = compiled("large", "v5e:8x8", "data.batch_size=256")
    assert result["mesh"]["data"] == 64
    assert "short_attention" in result["kernels"]
    assert sum(result["memory"].values()) < parse_slice("v5e:8x8").chip.memory
    # Each layer's gradients are sent within the scan. Some small parameters are gathered as sums, too.
    sums = [collective for collective in result["collectives"] if collective["opcode"] == "all-reduce"]
    assert {collective["trips"] for collective in sums} == {1, 24}
    sent = sum(collective["bytes"] * collective["trips"] for collective in sums)
    assert 4 * result["parameters"] <= sent < 1.01 * 4 * result["parameters"]


@pytest.mark.parametrize("topology", ["v4:2x2x4", "v5p:2x2x4", "v6e:4x4", "tpu7x:2x2x2"])
def test_other_chips_compile_too(topology):
    result = compiled("base", topology)
    assert result["mesh"]["data"] == 16
    assert "short_attention" in result["kernels"]
    sent = sum(collective["bytes"] * collective["trips"] for collective in result["collectives"])
    assert sent >= 4 * result["parameters"]


def test_training_takes_the_program_that_was_checked(tmp_path):
    """What `train` would lower on such devices, with the corpus' task, against what preflight lowers."""
    corpus = make_corpus(tmp_path)
    overrides = [
        *PACKED[:1],
        f"data.corpora={corpus}",
        "data.lengths=128",
        "data.length_ratios=1",
        "data.batch_size=16",
    ]
    script = """
import json, sys
from bert_jax.tasks import load_config
from bert_jax.pod.compile import outline_on_slice, trace_step
from bert_jax.pod.topology import parse_slice
from bert_jax.tasks import pretrain
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.training.step import make_step
spec, overrides, where = sys.argv[1], json.loads(sys.argv[2]), parse_slice("v5e:4x4")
task, data, config = pretrain.open(load_config(spec, overrides, "tpu")[1], ModelDirectories())
mesh = make_mesh(config.mesh, where.devices())
features = task.features(data.rows_per_step, data.row_length(0))
state, batch = abstract_state(task, config, mesh), abstract_batch(features, config, mesh)
trained = make_step(task, config, mesh).lower(state, batch, abstract_constants(task, config, mesh))
outline, mesh = outline_on_slice(load_config(spec, overrides, "tpu")[1], where)
checked = trace_step(outline, outline.phases[0], mesh)[-1].lower()
print("SAME", trained.as_text() == checked.as_text())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, f"{CONFIG}:tiny", json.dumps(overrides)],
        env=os.environ | preflight.ENVIRONMENT, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "SAME True" in ran.stdout
