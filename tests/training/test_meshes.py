"""The same training on any mesh: dropout on, threefry, float32, 50 steps."""

import numpy as np
import pytest

from tests.support.processes import run_on_eight_devices
from tests.training.on_eight_devices import EVALUATED, MESHES, MORE_MESHES

pytestmark = [pytest.mark.slow, pytest.mark.pod]


def assert_same(one, other):
    assert len(one["losses"]) == 50
    assert one["losses"][0] - one["losses"][-1] > 1, "something must be learnt, or all would be equal anyway"
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-5)


@pytest.fixture(scope="module")
def some():
    return run_on_eight_devices("tests.training.on_eight_devices", "some")


@pytest.mark.parametrize("mesh", [name for name in MESHES if name != "one device"])
def test_meshes_and_accumulation_give_the_same_losses(some, mesh):
    assert_same(some["one device"], some[mesh])


@pytest.mark.parametrize("mesh", [name for name in EVALUATED if name != "one device"])
def test_meshes_measure_and_predict_the_same(some, mesh):
    np.testing.assert_allclose(some[mesh]["heldout"], some["one device"]["heldout"], rtol=1e-5)
    # Of each row, in the order of the rows.
    np.testing.assert_allclose(some[mesh]["predicted"], some["one device"]["predicted"], atol=1e-4)


def test_gradients_sent_in_bfloat16_are_rounded_and_no_more(some):
    exact, rounded = some["one device"], some["data 8, gradients in bfloat16"]
    assert rounded["losses"][0] == pytest.approx(exact["losses"][0], rel=1e-6)
    assert rounded["losses"][5:] != pytest.approx(exact["losses"][5:], rel=1e-6)
    np.testing.assert_allclose(rounded["losses"], exact["losses"], rtol=5e-3)


def test_fsdp_holds_an_eighth_of_a_parameter_on_each_device(some):
    assert some["share"] == 1 / 8


def test_a_run_goes_on_from_8_devices_on_4_and_on_8_again(some):
    assert_same(some["one device"], some["8, 4, 8 devices"])


@pytest.mark.long
def test_more_meshes_give_the_same_losses():
    found = run_on_eight_devices("tests.training.on_eight_devices", "more")
    for mesh in MORE_MESHES:
        assert_same(found["one device"], found[mesh])
