"""`--profile`: every moment of a call is dealt out once, to the part that it belongs to."""

import json
from collections import defaultdict
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from bert_jax.bench.profile import name_operations
from bert_jax.bench.program_parts import read_parts
from bert_jax.bench.timing import Turn
from bert_jax.bench.trace import DISPATCH, EXECUTE, IDLE, PYTHON, TraceEvent, read_spans, shares, traced
from bert_jax.command.main import main
from bert_jax.models.encoder_config import EncoderConfig
from tests.support.project import ROOT
from tests.support.small_models import write_model

pytestmark = pytest.mark.optimized


def test_each_moment_belongs_to_what_runs_at_it():
    def ran(start, end, name):
        return TraceEvent(start, end, name, ("jit_f", name))

    spans = [
        TraceEvent(0, 20, PYTHON), TraceEvent(1, 4, DISPATCH), TraceEvent(3, 12, IDLE),
        ran(4, 8, "a"), ran(6, 10, "b"), ran(11, 12, "a"),
    ]  # fmt: skip
    call = shares(spans, Turn(20, 0))
    assert call.operations == {("jit_f", "a"): 2 + 1 + 1, ("jit_f", "b"): 1 + 2}
    assert call.host == {PYTHON: 1 + 8, DISPATCH: 2, IDLE: 1 + 1}
    assert call.runs[("jit_f", "a")] == 2
    assert sum(call.operations.values()) + sum(call.host.values()) == call.seconds == 20


def test_an_operation_is_not_charged_with_what_its_thread_executes_before_it_says_that_it_ended():
    begun_here = [operation("a", 1, 2), event("end: b", 6, 6), operation("c", 9, 10)]
    ended_there = [
        event(EXECUTE, 3, 8), operation("b", 3, 5), event("end: a", 8.00001, 8.00001), event("end: c", 12, 12),
    ]  # fmt: skip
    assert ends_of(begun_here, ended_there) == {"a": [3], "b": [6], "c": [12]}


def test_what_a_thread_executed_before_an_operation_began_does_not_move_its_end():
    runs = [
        event(EXECUTE, 1, 2), operation("a", 2.00001, 2.00002), event("end: a", 2.00002, 2.00002),
        event(EXECUTE, 6, 8), operation("a", 8.00001, 8.00002), event("end: a", 8.00002, 8.00002),
    ]  # fmt: skip
    assert ends_of(runs) == {"a": [2.00002, 8.00002]}


def event(name, start, end, **stats):
    return SimpleNamespace(name=name, start_ns=start * 1e9, end_ns=end * 1e9, stats=stats.items())


def operation(name, start, end):
    return event(name, start, end, hlo_module="jit_f", hlo_op=name)


def ends_of(*threads):
    lines = [SimpleNamespace(events=events) for events in threads]
    ends = defaultdict(list)
    for span in read_spans(SimpleNamespace(planes=[SimpleNamespace(lines=lines)])):
        if span.operation:
            ends[span.label].append(span.end)
    return ends


@pytest.fixture
def named():
    name_operations()
    yield
    jax.config.update("jax_compilation_cache_include_metadata_in_key", False)


@pytest.mark.slow
def test_operations_are_traced_and_known(named):
    """The products of a layer and its gradients: their directions, their FLOPs, and that they ran."""
    rows, width, out = 96, 64, 32

    def loss(kernel, states):
        with jax.named_scope("layer"):
            return jnp.square(states @ kernel).sum()

    step = jax.jit(jax.grad(loss, (0, 1)))
    kernel, states = jnp.ones((width, out)), jnp.ones((rows, width))
    parts = read_parts(step.lower(kernel, states).compile().as_text())
    products = sorted((part.direction, part.flops) for part in parts.values() if part.flops)
    flops = 2 * rows * width * out
    assert products == [("backward", flops), ("backward", flops), ("forward", flops)]
    (call,) = traced(lambda: jax.block_until_ready(step(kernel, states)), 1)
    ran = {name for _, name in call.operations}
    assert {name for name, part in parts.items() if part.flops} <= ran <= parts.keys()


FLASH_PROGRAM = """
ENTRY %main (qkv: bf16[64,512,3,768], ids: s32[64,512]) -> bf16[64,512,3,768] {
  %qkv = bf16[64,512,3,768]{3,2,1,0} parameter(0)
  %ids = s32[64,512]{1,0} parameter(1)
  %pallas_call.1 = (bf16[64,512,768]{2,1,0}, f32[64,12,512]{2,1,0}) custom-call(%qkv, %ids), custom_call_target="__gpu$xla.gpu.triton", metadata={op_name="jit(step)/jvp(Bert)/encoder/layers/block/attention/flash_attention/pallas_call"}
  %out = bf16[64,512,768]{2,1,0} get-tuple-element(%pallas_call.1), index=0
  ROOT %pallas_call.2 = bf16[64,512,3,768]{3,2,1,0} custom-call(%qkv, %ids, %out), custom_call_target="__gpu$xla.gpu.triton", metadata={op_name="jit(step)/transpose(jvp(Bert))/encoder/layers/block/attention/flash_attention_backward/pallas_call"}
}
"""  # noqa: E501


def test_our_kernel_for_gpus_is_a_part():
    parts = read_parts(FLASH_PROGRAM)
    product = 2 * 64 * 512 * 512 * 768
    kernels = {name: parts[f"pallas_call.{number}"] for number, name in ((1, "forward"), (2, "backward"))}
    assert {part.name for part in kernels.values()} == {"attention kernel"}
    assert {name: part.direction for name, part in kernels.items()} == {name: name for name in kernels}
    assert {name: part.flops for name, part in kernels.items()} == {
        "forward": 2 * product,
        "backward": 7 * product,
    }


@pytest.mark.long
def test_the_parts_of_a_step_add_up_to_it(named, tmp_path, capsys):
    picture = tmp_path / "step.png"
    settings = ["data.batch_size=2", "data.lengths=32", "data.length_ratios=1"]
    flags = ["--config", f"{ROOT}/configs/pretrain.py:tiny", *(f"--config.{s}" for s in settings)]
    assert main(["bench", "train", *flags, "--profile", str(picture), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    parts = result["parts"]
    seconds = {name: sum(time[d] for d in ("forward", "backward", "neither")) for name, time in parts.items()}
    assert sum(seconds.values()) == pytest.approx(result["seconds"], rel=0.01)
    assert set(seconds) >= {
        "dense products", "attention products", "softmax", "normalisation", "GELU and biases",
        "dropout: random numbers", "optimizer", "embeddings", "head and loss", "host: dispatch",
    }  # fmt: skip
    assert "operations of unknown programs" not in seconds
    # All dense products of the layers, forward and backward, and nothing else.
    c = EncoderConfig.from_size("tiny")
    flops = (
        3 * c.num_hidden_layers * 2 * 64 * (4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size)
    )
    assert parts["dense products"]["flops"] == pytest.approx(flops)
    assert picture.stat().st_size > 10_000


@pytest.mark.long
def test_the_parts_of_a_text_add_up_to_it(named, tmp_path, capsys):
    write_model(tmp_path / "model", heads=("mlm",))
    (tmp_path / "lines.txt").write_text("the cat sat on the mat\n" * 20)
    flags = ["--model", str(tmp_path / "model"), "--input", str(tmp_path / "lines.txt")]
    assert main(["bench", "embed", *flags, "--profile", str(tmp_path / "text.png"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    seconds = [time["forward"] + time["backward"] + time["neither"] for time in result["parts"].values()]
    assert sum(seconds) == pytest.approx(result["seconds"], rel=0.01)
    assert set(result["parts"]) >= {"dense products", "host: tokenize", "host: Python", "host: dispatch"}
    assert "operations of unknown programs" not in result["parts"]
