"""What is read of a step that is compiled for a GPU, and what is said without the compiler."""

import pytest

from tests.bench.gpu_program import gigabytes_by_part

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
