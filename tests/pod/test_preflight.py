# ruff: noqa: E501  (XLA's lines are as long as they are)
"""What preflight counts, against counts by hand; what it refuses, and what it tells to do. Nothing is compiled here."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from bert_jax import tasks
from bert_jax.command.main import main
from bert_jax.core import config as configs
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.models.kernels import short_attention
from bert_jax.models.mesh import AXES
from bert_jax.pod import flops, hlo, preflight, preflight_checks
from bert_jax.pod.compile import bytes_per_device
from bert_jax.pod.roofline import make_roofline
from bert_jax.pod.topology import parse_slice
from bert_jax.tasks import pretrain
from bert_jax.tasks.pretrain import Config, PretrainTask
from bert_jax.training.chips import GiB, find_tpu
from bert_jax.training.run_config import CheckpointConfig, RunConfig
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_batch, abstract_constants, abstract_state
from bert_jax.training.step import make_step
from tests.support.pretraining_runs import make_corpus
from tests.support.project import ROOT
from tests.support.texts import random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER

CONFIG = str(ROOT / "configs/pretrain.py")
HERE = parse_slice("v5e:4x4")


def settings(*overrides: str, name: str = "base") -> Config:
    return configs.load_config_file(f"{CONFIG}:{name}", overrides, Config)


# Parameters: words, positions and token types; of each layer 4 D^2 + 2 D F, their biases 4 D + F + D and two norms; the
# embeddings' norm; pooler; the masked LM's transform, norm and bias; next sentence.
PARAMETERS = {"base": 110_106_428, "large": 336_226_108}
# A step of 256 x 512 with 77 targets, times 3 for the backward pass: each layer's 2 (4 D^2 + 2 D F) a token and its
# scores' 4 L D, then the heads.
#   base:  12 x 131,072 x (14,155,776 + 1,572,864) = 24.7397e12; heads 0.9471e12
#   large: 24 x 131,072 x (25,165,824 + 2,097,152) = 85.7622e12; heads 1.2738e12
STEP = {"base": 3 * (24.7397e12 + 0.9471e12), "large": 3 * (85.7622e12 + 1.2738e12)}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["base", "large"])
def test_flops_and_bytes_are_those_by_hand(size):
    config = settings("model.attention=xla", name=size)
    task, mesh = PretrainTask.of(config), make_mesh(config.mesh)
    state, batch = abstract_state(task, config, mesh), abstract_batch(task.features(256, 512), config, mesh)
    assert bytes_per_device(state.params) == 4 * PARAMETERS[size]
    assert bytes_per_device(state.optimizer) == pytest.approx(8 * PARAMETERS[size], rel=1e-6)
    # input_ids, token_type_ids and attention_mask; positions, words and weights of 77 targets; a label and its weight
    assert bytes_per_device(batch) == 256 * 4 * (3 * 512 + 3 * 77 + 2)
    traced = make_step(task, config, mesh).trace(state, batch, abstract_constants(task, mesh))
    counted, kernels = flops.count_flops(traced.jaxpr)
    assert counted == pytest.approx(STEP[size], rel=0.001)
    assert kernels == {}


def test_a_kernel_s_flops_are_its_formula():
    B, L, H, K = 2, 256, 4, 64
    shapes = [((B, 3, L, H * K), "bfloat16"), ((B, L), "int32"), ((B, H), "uint32")]
    arguments = [jax.ShapeDtypeStruct(*shape) for shape in shapes]

    def loss(qkv, segment_ids, seeds):
        return (
            short_attention.short_attention(
                qkv, segment_ids, seeds, short_attention.KernelOptions(K, rate=0.1)
            )
            .astype("float32")
            .sum()
        )

    traced = jax.make_jaxpr(jax.value_and_grad(loss))(*arguments)
    _, kernels = flops.count_flops(traced)
    # A product of all pairs is 2 B H L^2 K: scores and mixing forward; backward the scores again and four gradients.
    assert kernels == {
        "short_attention": 4 * B * H * L * L * K,
        "short_attention_backward": 10 * B * H * L * L * K,
    }


def test_of_branches_the_most_flops_count_and_the_kernels_of_the_first():
    def times(x, name):
        def kernel(x_ref, out_ref):
            out_ref[...] = jnp.dot(x_ref[...], x_ref[...])

        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), name=name)(x)

    def run(near, x):
        # False is the first branch of the program.
        return jax.lax.cond(near, lambda x: times(times(x, "near"), "both"), lambda x: times(x, "both"), x)

    product = 2 * 8**3
    assert flops.count_flops(jax.make_jaxpr(run)(True, jnp.ones((8, 8)))) == (2 * product, {"both": product})


def test_what_nobody_needs_does_not_count():
    """As the products of a forward pass that is made again for the sake of others in it."""

    @jax.jit
    def both(x):
        return x @ x, x @ x @ x

    assert flops.count_flops(jax.make_jaxpr(lambda x: both(x)[0])(jnp.ones((8, 8))))[0] == 2 * 8**3


def test_loops_count_as_often_as_they_run():
    def twelve_layers(x):
        return jax.lax.scan(lambda x, _: (x @ x, None), x, None, length=12)[0]

    assert flops.count_flops(jax.make_jaxpr(twelve_layers)(jnp.ones((8, 8))))[0] == 12 * 2 * 8**3


# A loop of 12 trips: a product that reads a slice of a stack in HBM and writes one of another, with its input on the
# chip; a reduction over 16 chips in two groups; a buffer that is only made room for.
TEXT = """HloModule jit_step, is_scheduled=true

%summed (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a.1, %b.1)
}

%fused (p0: f32[12,256,256], p1: s32[], p2: bf16[512,256], p3: bf16[12,256,256]) -> f32[12,256,256] {
  %p0 = f32[12,256,256]{2,1,0:T(8,128)} parameter(0)
  %p1 = s32[]{:T(128)S(6)} parameter(1)
  %p2 = bf16[512,256]{1,0:T(8,128)(2,1)S(1)} parameter(2)
  %p3 = bf16[12,256,256]{2,1,0:T(8,128)(2,1)} parameter(3)
  %zero = s32[]{:T(128)} constant(0)
  %taken = bf16[1,256,256]{2,1,0:T(8,128)(2,1)} dynamic-slice(%p3, %p1, %zero, %zero), dynamic_slice_sizes={1,256,256}
  %flat = bf16[256,256]{1,0:T(8,128)(2,1)} bitcast(%taken)
  %product = f32[512,256]{1,0:T(8,128)} convolution(%p2, %flat), dim_labels=bf_io->bf
  %part = f32[1,256,256]{2,1,0:T(8,128)} bitcast(%product)
  ROOT %put = f32[12,256,256]{2,1,0:T(8,128)} dynamic-update-slice(%p0, %part, %p1, %zero, %zero)
}

%body (state.1: (s32[], f32[12,256,256], bf16[12,256,256])) -> (s32[], f32[12,256,256], bf16[12,256,256]) {
  %state.1 = (s32[]{:T(128)}, f32[12,256,256]{2,1,0:T(8,128)}, bf16[12,256,256]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %n.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %out.1 = f32[12,256,256]{2,1,0:T(8,128)} get-tuple-element(%state.1), index=1
  %in.1 = bf16[12,256,256]{2,1,0:T(8,128)(2,1)} get-tuple-element(%state.1), index=2
  %room = f32[1000,1000]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %chip = bf16[512,256]{1,0:T(8,128)(2,1)S(1)} custom-call(), custom_call_target="AllocateBuffer"
  %done = f32[12,256,256]{2,1,0:T(8,128)} fusion(%out.1, %n.1, %chip, %in.1), kind=kOutput, calls=%fused, metadata={op_name="jit(step)/product"}
  ROOT %next = (s32[]{:T(128)}, f32[12,256,256]{2,1,0:T(8,128)}, bf16[12,256,256]{2,1,0:T(8,128)(2,1)}) tuple(%n.1, %done, %in.1)
}

%condition (state.2: (s32[], f32[12,256,256], bf16[12,256,256])) -> pred[] {
  %state.2 = (s32[]{:T(128)}, f32[12,256,256]{2,1,0:T(8,128)}, bf16[12,256,256]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %n.2 = s32[]{:T(128)} get-tuple-element(%state.2), index=0
  %end = s32[]{:T(128)} constant(12)
  ROOT %less = pred[]{:T(512)} compare(%n.2, %end), direction=LT
}

ENTRY %main (x: f32[12,256,256], y: bf16[12,256,256], z: f32[100,64]) -> f32[100,64] {
  %x = f32[12,256,256]{2,1,0:T(8,128)} parameter(0)
  %y = bf16[12,256,256]{2,1,0:T(8,128)(2,1)} parameter(1)
  %z = f32[100,64]{1,0:T(8,128)} parameter(2)
  %zero.1 = s32[]{:T(128)} constant(0)
  %state = (s32[]{:T(128)}, f32[12,256,256]{2,1,0:T(8,128)}, bf16[12,256,256]{2,1,0:T(8,128)(2,1)}) tuple(%zero.1, %x, %y)
  %loop = (s32[]{:T(128)}, f32[12,256,256]{2,1,0:T(8,128)}, bf16[12,256,256]{2,1,0:T(8,128)(2,1)}) while(%state), condition=%condition, body=%body
  ROOT %all-reduce.1 = f32[100,64]{1,0:T(8,128)} all-reduce(%z), replica_groups=[2,8]<=[16], to_apply=%summed
}
"""


def test_what_a_compiled_text_says():
    result = hlo.parse_program(TEXT)
    # Each trip reads 256 x 256 of bfloat16 and its number, and writes as many of float32; what lies on the chip costs
    # nothing.
    loop = next(entry for entry in result.operations if entry.name == "done")
    assert loop.trips == 12
    assert loop.traffic == 256 * 256 * 2 + 4 + 256 * 256 * 4
    assert loop.flops == 2 * 512 * 256 * 256
    (reduced,) = result.collectives
    padded = 104 * 128 * 4  # 100 x 64 in tiles of 8 x 128
    assert (reduced.kind, reduced.bytes, reduced.members, reduced.trips) == ("all-reduce", 100 * 64 * 4, 8, 1)
    assert result.traffic == 12 * loop.traffic + 2 * padded


def test_a_sum_crosses_in_the_type_it_is_summed_in():
    narrow = TEXT.replace(
        "%z = f32[100,64]{1,0:T(8,128)} parameter", "%z = bf16[100,64]{1,0:T(8,128)(2,1)} parameter"
    )
    assert narrow != TEXT
    (reduced,) = hlo.parse_program(narrow).collectives
    assert reduced.bytes == 100 * 64 * 4


def test_products_in_the_padding_of_a_window_do_not_count():
    # As the TPU writes x[512, 256] @ w[256, 3, 12]: a convolution over the 3 whose window reaches over both ends.
    assert hlo.count_products(left=1, window=3, out=3, before=2, stride=1, spread=1, reach=1) == 3
    assert hlo.count_products(left=3, window=3, out=1, before=0, stride=1, spread=1, reach=1) == 3
    assert hlo.count_products(left=4, window=2, out=3, before=0, stride=1, spread=1, reach=1) == 6


def test_bounds_by_hand():
    bounds = make_roofline(hlo.parse_program(TEXT), flops=197e12 / 1000, kernel_flops={}, where=HERE)
    assert bounds.compute == pytest.approx(1e-3)
    assert bounds.memory == pytest.approx(hlo.parse_program(TEXT).traffic / 819e9)
    # 2 x 7/8 of the bytes over one link: 8 of the 16 chips.
    assert bounds.links == pytest.approx(2 * 7 / 8 * 100 * 64 * 4 / 50e9)
    assert bounds.serial == pytest.approx(bounds.compute + bounds.memory + bounds.links)
    assert bounds.overlapped == bounds.compute
    assert bounds.bottleneck == "compute"
    assert bounds.links < bounds.by_operation < bounds.serial


KERNELS = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: bf16[512,256]) -> bf16[512,256] {
  %x = bf16[512,256]{1,0:T(8,128)(2,1)} parameter(0)
  %short_attention_backward.1 = bf16[512,256]{1,0:T(8,128)(2,1)} custom-call(%x), custom_call_target="tpu_custom_call"
  %short_attention = bf16[512,256]{1,0:T(8,128)(2,1)} custom-call(%x), custom_call_target="tpu_custom_call"
  ROOT %short_attention.2.remat = bf16[512,256]{1,0:T(8,128)(2,1)} custom-call(%x), custom_call_target="tpu_custom_call"
}
"""


@pytest.mark.parametrize("order", [1, -1])
def test_a_kernel_is_known_by_its_whole_name(order):
    """`short_attention` is the beginning of `short_attention_backward`."""
    read = hlo.parse_program(KERNELS)
    assert read.kernels == {"short_attention": 2, "short_attention_backward": 1}
    second = HERE.chip.flops  # what a chip computes in one
    flops = {"short_attention": 2 * second, "short_attention_backward": 5 * second}
    flops = dict(list(flops.items())[::order])
    assert make_roofline(read, 0.0, flops, HERE).by_operation == pytest.approx(2 + 5)


@pytest.mark.parametrize(
    "kernels", [(), ("short_attention",), ("a", "short_attention", "short_attention_backward")]
)
def test_kernels_of_the_trace_that_the_program_lacks_or_has_beside_are_an_error(kernels):
    with pytest.raises(BertJaxError, match="the traced step has the kernels .* and the compiled one"):
        make_roofline(hlo.parse_program(KERNELS), 1.0, dict.fromkeys(kernels, 1.0), HERE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v7:4x4", "--topology"),
        ("v5e-16", "v5e:4x4"),
        ("v5p:64", "v5p:2x2x4"),
        ("v4:4x4", "3 sides"),
        ("v6e:3x4", "2x2"),
    ],
)
def test_a_slice_that_is_none_is_refused(name, message):
    with pytest.raises(BertJaxError) as error:
        parse_slice(name)
    assert message in str(error.value)


def test_slices_of_the_four_kinds():
    counts = {
        "v5e:4x4": (16, 4),
        "v5e:8x8": (64, 16),
        "v4:2x2x4": (16, 4),
        "v5p:4x4x4": (64, 16),
        "v6e:1x1": (1, 1),
    }
    assert {name: (parse_slice(name).chips, parse_slice(name).hosts) for name in counts} == counts
    # A corner of a slice of v5e has two links until its ends are joined; cubes of v5p have all six.
    assert parse_slice("v5e:8x8").all_reduce_bandwidth == 2 * 50e9
    assert parse_slice("v5e:16x16").all_reduce_bandwidth == 4 * 50e9
    assert parse_slice("v5p:4x4x4").all_reduce_bandwidth == 6 * 100e9
    assert parse_slice("v4:2x2x4").all_reduce_bandwidth == 3 * find_tpu("v4").link


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["steps=5000"], "end within the warm-up of 10,000; set --config.optimizer.warmup_steps=0.1"),
        (
            ["optimizer.warmup_steps=1e6"],
            "within the warm-up of 1,000,000; set --config.optimizer.warmup_steps=0.1",
        ),
        (["steps=20000", "checkpoints.every=30000"], "30,000"),
        (
            ["data.batch_size=250"],
            "a step of 250 rows does not divide over 4 hosts; set --config.data.batch_size=252",
        ),
        (["data.corpora=nowhere"], "nowhere has no manifest.json"),
    ],
)
def test_what_cannot_go_well_is_said_before_anything_is_compiled(overrides, message):
    config = settings(*overrides)
    with pytest.raises(BertJaxError) as error:
        preflight_checks.check_outline(config, pretrain.outline(config), HERE)
    assert message in str(error.value)


@pytest.mark.parametrize(("first", "end", "warming"), [(900_000, 905_000, 0), (4000, 20_000, 6000)])
def test_a_continued_run_has_warmed_up_before(first, end, warming):
    config = settings(f"steps={end}", "init=somewhere", f"first_step={first}")
    outline = pretrain.outline_corpora(pretrain.outline(settings()).task, config)
    line = preflight_checks.check_schedule(config, outline)
    assert line == f"schedule: {warming:,} of {end - first:,} steps warm up"


def test_a_task_that_says_nothing_of_its_steps_is_refused(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "spot", SimpleNamespace(Config=Config))
    with pytest.raises(BertJaxError, match="cannot compile the task spot: it defines no `outline`; see "):
        tasks.outline_run(dataclasses.replace(settings(), task="spot"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model directory, for its sizes."""
    directory, layout = tmp_path_factory.mktemp("model"), Layout(ENCODER_CONFIG, heads=("mlm",), pooler=False)
    shapes = jax.eval_shape(layout.init, jax.random.key(0))
    hub.save_model(
        directory, layout, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes), TOKENIZER
    )
    return directory


def of_texts(name: str, model, *overrides: str) -> RunConfig:
    """A config of a task that goes through its examples in epochs."""
    spec = str(Path(CONFIG).with_name(f"{name}.py"))
    return tasks.load_config(spec, [f"init={model}", "data.max_length=16", *overrides])[1]


@pytest.mark.parametrize(
    ("loss", "texts", "scores"), [("auto", 2, 0), ("cosent", 2, 1), ("margin_mse", 3, 1)]
)
def test_groups_without_data_are_as_long_as_texts_may_be(loss, texts, scores, model, capsys):
    config = of_texts("embed", model, "data.batch_size=64", f"loss.name={loss}")
    outline = tasks.outline_run(config)
    (phase,) = outline.phases
    rows = 64 * texts
    assert (outline.batch, outline.rows, phase.length, outline.steps) == (64, rows, 16, 0)
    assert phase.features["input_ids"][0] == (rows, 16)
    assert phase.features.get("scores", ((rows, 0), None))[0] == (rows, scores)
    assert f"assuming groups of {texts} texts, each in a row of 16 tokens" in capsys.readouterr().out
    assert "set --config.data.train or --config.steps" in preflight_checks.check_schedule(config, outline)


@pytest.mark.parametrize(("name", "chips"), [("embed", 64), ("classify", 32)])
def test_the_rows_of_data_are_those_of_the_slice(name, chips, model, tmp_path):
    """Not of the devices here."""
    train = tmp_path / "train.csv"
    columns = {"embed": "question,answer", "classify": "text,label"}[name]
    written = [
        f"{text},{'ab'[i % 2]} {text if name == 'embed' else ''}" for i, text in enumerate(random_texts(60))
    ]
    train.write_text("\n".join([columns, *map(str.strip, written)]))
    config = of_texts(name, model, f"data.train={train}", "data.batch_size=32", "data.heldout_share=0.2")
    devices = jax.sharding.AbstractMesh((chips, 1, 1), AXES)
    with jax.sharding.use_abstract_mesh(devices):
        there = tasks.outline_run(config)
    here = tasks.outline_run(config)
    assert here.rows < there.rows == chips, "a row for each chip"
    assert there.batch == 32 and there.steps == there.config.steps > 0
    assert "steps warm up" in preflight_checks.check_schedule(config, there), (
        "whose checkpoints are left to the data"
    )
    assert sum(phase.share for phase in there.phases) == pytest.approx(1)
    for phase in there.phases:
        assert phase.features["input_ids"] == ((there.rows, phase.length), np.dtype("int32"))
        assert phase.features["label_weights"][0][0] == there.rows


def test_room_for_checkpoints():
    config = CheckpointConfig(keep=4, keep_every=100_000)
    line = preflight_checks.describe_checkpoints(config, 1_000_000, state=10**6)
    assert "for 14 and the one being written" in line
    line = preflight_checks.describe_checkpoints(
        dataclasses.replace(config, best_metric="mlm_loss"), 1_000_000, 10**6
    )
    assert "for 15 and the one being written" in line


def test_room_for_the_best_checkpoint_where_the_task_chooses_it(model):
    config = of_texts("embed", model, "data.batch_size=64")
    resolved = dataclasses.asdict(tasks.outline_run(config).config.checkpoints)
    assert (config.checkpoints.keep, config.checkpoints.best_metric) == (1, "") and resolved["best_metric"]
    facts = {"phases": [{"state": 10**9}], "steps": 100, "checkpoints": resolved}
    assert "for 2 and the one being written" in preflight_checks.describe_machine(config, facts, HERE)[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("preflight"))


def test_a_corpus_is_checked_against_the_model(corpus):
    config = settings(f"data.corpora={corpus}")
    outline = pretrain.outline(config)
    assert outline.task.layout.config.vocab_size == 1000
    lines = preflight_checks.check_outline(config, outline, HERE)
    assert any("duplicates" in line for line in lines)
    with pytest.raises(BertJaxError, match="vocab_size"):
        pretrain.outline(settings(f"data.corpora={corpus}", "model.vocab_size=77"))


def a_phase(length: int = 512, temporaries: float = 3.0, **changes) -> dict:
    """What pod/compile.py would find for base on 16 chips of v5e, in round numbers."""
    memory = {"parameters": 0.4 * GiB, "optimizer": 0.8 * GiB, "batch": 0.0, "temporaries": temporaries * GiB}
    seconds = {"compute": 0.025, "memory": 0.020, "links": 0.008, "by_operation": 0.040}
    phase = {
        "length": length, "mesh": {"data": 16, "fsdp": 1, "tensor": 1}, "parameters": 110_106_428, "state": 1.3e9,
        "flops": 80e12, "model_flops": 77e12, "memory": memory, "kernels": ["short_attention"], "traffic": 16e9,
        "products": 4e12, "seconds": seconds,
        "collectives": [
            {"kind": "all-reduce", "bytes": 440e6, "trips": 1, "members": 16, "asynchronous": False, "axes": "data"}
        ],
    }  # fmt: skip
    return phase | changes


@pytest.fixture
def compiles(monkeypatch):
    """Stands for the compiler, answered by a function that the test may replace."""

    def compiled(spec, overrides, where):
        outline = tasks.outline_run(tasks.load_config(spec, overrides)[1])
        return {
            "topology": str(where), "chips": where.chips, "hosts": where.hosts,
            "batch_size": outline.batch, "rows": outline.rows, "steps": outline.steps, "checks": [],
            "remat": outline.task.layout.config.remat,
            "checkpoints": dataclasses.asdict(outline.config.checkpoints),
            "phases": [{"share": phase.share} | compiled.answer(overrides, phase.length) for phase in outline.phases],
        }  # fmt: skip

    compiled.answer = lambda overrides, length: a_phase(length)
    monkeypatch.setattr(preflight, "compile_in_subprocess", compiled)
    return compiled


def test_the_verb_prints_what_a_run_takes(compiles, capsys):
    flags = ["--config", f"{CONFIG}:base", "--topology", "v5e:4x4", "--price", "2"]
    assert main(["preflight", *flags]) == 0
    output = capsys.readouterr().out
    assert "4.20 of 15.75 GiB a chip (parameters 0.40, optimizer 0.80" in output
    assert "1 all-reduce over data, 440.0 MB" in output
    assert "80.0 TFLOP a step, 3.9% more than the model's own (recomputation and other products)" in output
    assert "limited by compute" in output and "100 GB/s from the chip with the fewest links." in output
    assert main(["preflight", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    # A million steps of 53 ms one after the other, on 16 chips at 2 an hour.
    assert result["hours"]["serial"] == pytest.approx(1e6 * 0.053 / 3600)
    assert result["cost"]["serial"] == pytest.approx(1e6 * 0.053 / 3600 * 16 * 2)
    assert [phase["length"] for phase in result["phases"]] == [128, 512]
    assert result["phases"][1]["mfu"]["serial"] == pytest.approx(77e12 / 0.053 / 16 / 197e12)
    assert result["phases"][1]["tokens_per_second"]["overlapped"] == pytest.approx(256 * 512 / 0.025)


@pytest.mark.parametrize(
    ("temporaries", "changes", "flags", "message"),
    [
        (
            20.0,
            {},
            [],
            "needs 21.2 GiB on each chip of v5e:4x4, which has 15.75; set --config.mesh.gradient_accumulation_steps=2",
        ),
        # What does not compile, though the compiler rounds its size to one that would fit.
        (14.55, {}, [], "15.75; set --config.mesh.gradient_accumulation_steps=2"),
        (20.0, {}, ["data.batch_size=16"], "set --config.model.remat=full"),
        (
            20.0,
            {},
            ["data.batch_size=96", "model.remat=full", "mesh.gradient_accumulation_steps=2"],
            "set --config.data.batch_size=32",
        ),
        (
            20.0,
            {},
            ["data.batch_size=32", "model.remat=full", "mesh.gradient_accumulation_steps=2"],
            "has 15.75; take a larger slice, or a smaller model",
        ),
        (1.0, {"parameters": 8 * GiB, "optimizer": 16 * GiB}, [], "--config.mesh.shard_optimizer=true"),
        (1.0, {"parameters": 16 * GiB, "optimizer": 4 * GiB}, [], "--config.mesh.fsdp=16"),
    ],
)
def test_what_does_not_fit_ends_with_what_to_change(compiles, capsys, temporaries, changes, flags, message):
    phase = a_phase(512, temporaries)
    phase["memory"] |= changes
    del phase["seconds"]
    compiles.answer = lambda overrides, length: phase
    overrides = [f"--config.{flag}" for flag in flags]
    assert main(["preflight", "--config", f"{CONFIG}:base", "--topology", "v5e:4x4", *overrides]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mesh", "overrides", "remedy"),
    [
        ((1, 16, 1), ["mesh.fsdp=16"], "take a larger slice, or a smaller model"),
        ((1, 8, 2), ["mesh.fsdp=8", "mesh.tensor=2"], "take a larger slice, or a smaller model"),
        ((8, 1, 2), ["mesh.tensor=2"], "set --config.mesh.fsdp=8"),
        ((4, 4, 1), ["mesh.data=4", "mesh.fsdp=4"], "set --config.mesh.fsdp=16 --config.mesh.data=-1"),
    ],
)
def test_a_remedy_is_not_what_is_set_already(mesh, overrides, remedy):
    phase = a_phase(mesh=dict(zip(AXES, mesh, strict=True)))
    phase["memory"]["parameters"] = 16 * GiB
    facts = {"batch_size": 256, "rows": 256, "remat": "none"}
    said = preflight.memory_advice(facts, phase, settings(*overrides), HERE)
    assert said.endswith(f"parameters and optimizer alone are too large: {remedy}")
