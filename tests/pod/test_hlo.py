# ruff: noqa: E501  (XLA's lines are as long as they are)
"""What a compiled text says of its collectives, products and kernels."""

import dataclasses

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.pod import hlo
from bert_jax.pod.roofline import make_roofline
from tests.support.preflight_configs import HERE

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
    assert (reduced.opcode, reduced.bytes, reduced.members, reduced.trips) == (
        "all-reduce",
        100 * 64 * 4,
        8,
        1,
    )
    assert result.traffic == 12 * loop.traffic + 2 * padded


def test_a_sum_on_another_core_costs_what_it_costs_here():
    """As tpu7x sums, on its SparseCores: a computation that is started, updated and awaited."""
    reduced = "%all-reduce.1 = f32[100,64]{1,0:T(8,128)} all-reduce(%z), replica_groups=[2,8]<=[16], to_apply=%summed"
    begun = """%begun = ((), (), (s32[1]{0:T(128)})) call-start(), async_execution_thread="sparsecore", to_apply=%called
  %going = ((f32[100,64]{1,0:T(8,128)}), f32[100,64]{1,0:T(8,128)}) call-update(%begun, %z)
  ROOT %there = f32[100,64]{1,0:T(8,128)} call-done(%going)"""
    called = f"""%called (z: f32[100,64]) -> f32[100,64] {{
  %z = f32[100,64]{{1,0:T(8,128)}} parameter(0)
  ROOT {reduced}
}}, execution_thread="sparsecore"

ENTRY """
    text = TEXT.replace(f"ROOT {reduced}", begun).replace("ENTRY ", called)
    here, there = hlo.parse_program(TEXT), hlo.parse_program(text)
    assert there.collectives == [dataclasses.replace(here.collectives[0], asynchronous=True)]
    assert there.traffic == here.traffic


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
    assert bounds.least == bounds.compute
    assert bounds.bottleneck == "compute"
    assert bounds.links < bounds.scheduled < bounds.serial


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
    assert make_roofline(read, 0.0, flops, HERE).scheduled == pytest.approx(2 + 5)


@pytest.mark.parametrize(
    "kernels", [(), ("short_attention",), ("a", "short_attention", "short_attention_backward")]
)
def test_kernels_of_the_trace_that_the_program_lacks_or_has_beside_are_an_error(kernels):
    with pytest.raises(BertJaxError, match="the traced step has the kernels .* and the compiled one"):
        make_roofline(hlo.parse_program(KERNELS), 1.0, dict.fromkeys(kernels, 1.0), HERE)
