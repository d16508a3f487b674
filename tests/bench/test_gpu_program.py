"""What is read of a step that is compiled for a GPU, and what is said without the compiler."""

import pytest

from tests.bench.gpu_program import gigabytes_by_part
from tests.bench.program_parts import read_parts

PROGRAM = """
ENTRY %main (x: f32[1000,1000]) -> f32[1000,1000] {
  %x = f32[1000,1000]{1,0} parameter(0)
  %pair = (f32[1000,1000]{1,0}, f32[1000,1000]{1,0}) tuple(%x, %x)
  %first = f32[1000,1000]{1,0} get-tuple-element(%pair), index=0
  ROOT %copy.1 = f32[1000,1000]{1,0} copy(%first)
}
"""


def test_what_moves_bytes_counts_and_names_of_values_do_not():
    assert gigabytes_by_part(PROGRAM) == {"copies and casts": pytest.approx(8e-3)}


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
    assert {parts[f"pallas_call.{number}"].name for number in (1, 2)} == {"attention kernel"}
