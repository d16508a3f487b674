"""Collectives that are sent beside products, as a compiled text has them: counted once, where they begin."""

import re

import pytest

from bert_jax.pod import hlo, preflight
from bert_jax.pod.topology import parse_slice
from tests.support.project import ROOT

# A fusion begins a sum over 16 chips in each of 12 trips, the product after it sends it on, a third fusion ends it.
TEXT = """HloModule jit_step, is_scheduled=true

%begins (a.1: W) -> (W, W, u32[]) {
  %a.1 = W parameter(0)
  %sum.1 = W all-reduce(%a.1), channel_id=1, replica_groups=[1,16]<=[16], to_apply=%add
  ROOT %begun = (W, W, u32[]{:S(2)}) custom-call(%sum.1), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.1 (a.2: W, b.2: W, x.2: X) -> (X, W) {
  %a.2 = W parameter(0)
  %b.2 = W parameter(1)
  %x.2 = X parameter(2)
  %product = X convolution(%x.2, %b.2), dim_labels=bf_io->bf
  %sum.2 = W all-reduce(%a.2), channel_id=1, replica_groups=[1,16]<=[16], to_apply=%add
  ROOT %both = (X, W) tuple(%product, %sum.2)
}

%body (state: (W, X)) -> (W, X) {
  %state = (W, X) parameter(0)
  %a = W get-tuple-element(%state), index=0
  %x = X get-tuple-element(%state), index=1
  %start = (W, W, u32[]{:S(2)}) fusion(%a), kind=kCustom, calls=%begins
  %part = W get-tuple-element(%start), index=1
  %sent = (X, W) fusion(%part, %a, %x), kind=kOutput, calls=%async_collective_fusion.1
  ROOT %next = (W, X) tuple(%part, %x)
}

ENTRY %main (a.3: W, x.3: X) -> (W, X) {
  %a.3 = W parameter(0)
  %x.3 = X parameter(1)
  %first = (W, X) tuple(%a.3, %x.3)
  ROOT %loop = (W, X) while(%first), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"12"}}
}
"""
for name, shape in {"W": "bf16[256,256]", "X": "bf16[512,256]"}.items():
    TEXT = re.sub(rf"\b{name}\b", shape + "{1,0:T(8,128)(2,1)S(1)}", TEXT)


def test_a_sum_beside_products_counts_once_a_trip():
    (found,) = hlo.parse_program(TEXT).collectives
    assert found == hlo.Collective("all-reduce", 2 * 256 * 256, 12, 16, asynchronous=True)


@pytest.mark.long
def test_a_layer_s_gradients_are_sent_beside_the_backward_pass_of_the_rest(monkeypatch):
    """With the flags of launch/README.md. All gradients but the embeddings' are those of layers, two bytes each."""
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    flags = re.findall(r"--xla\w+=\w+", (ROOT / "launch/README.md").read_text())
    monkeypatch.setenv("LIBTPU_INIT_ARGS", " ".join(flags))
    overrides = [
        "data.lengths=512",
        "data.length_ratios=1",
        "mesh.gradient_reduce_dtype=bfloat16",
    ]
    (result,) = preflight.compile_in_subprocess(
        f"{ROOT}/configs/pretrain.py:base", overrides, parse_slice("v5e:4x4")
    )["phases"]
    sums = [collective for collective in result["collectives"] if collective["opcode"] == "all-reduce"]
    beside = sum(c["bytes"] * c["trips"] for c in sums if c["asynchronous"] and c["trips"] == 12)
    kernels = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert beside == 2 * kernels
    assert result["memory"]["optimizer"] < 2 * 4 * result["parameters"] / 15, "each chip holds a sixteenth"
