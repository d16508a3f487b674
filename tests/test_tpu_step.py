"""The step that runs here, compiled for a slice of 16 TPU chips that is not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_base_compiles_for_16_chips_with_splash_and_reduces_its_gradients_once():
    pytest.importorskip("libtpu", reason="the TPU compiler is in the extra `preflight`")
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "PYTHONPATH": str(HERE.parent),
    }
    ran = subprocess.run(
        [sys.executable, HERE / "compile_for_tpu.py"], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert found["devices"] == 16
    assert found["kernels"] >= 2, "splash, forward and backward"
    large = [each for each in found["collectives"] if each["numbers"] > 1000]
    assert {each["kind"] for each in large} == {"all-reduce"}
    assert not any(each["in_loop"] for each in found["collectives"]), (
        "nothing crosses chips within a microbatch"
    )
    # With four microbatches of twelve layers, every gradient crosses once: all of them make up the parameters.
    # What is measured, a dozen numbers, goes with them.
    assert 0 <= sum(each["numbers"] for each in large) - found["parameters"] < 20
    assert found["temporary_bytes"] < 12e9, "beside the state, into the 16 GB of a chip"
