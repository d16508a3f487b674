"""Every family trains alike on one device and on any mesh: dropout on where the family has it."""

import numpy as np
import pytest

import runs
from test_family_runs import SIZES

pytestmark = [pytest.mark.slow, pytest.mark.pod]


@pytest.fixture(scope="module")
def found():
    return runs.on_eight_devices("families_on_eight_devices.py")


@pytest.mark.long
@pytest.mark.parametrize("name", SIZES)
def test_meshes_give_the_same_losses(name, found):
    one, *others = found[name].values()
    assert one[0] - one[-1] > 0.1, "something must be learnt, or all would be equal anyway"
    for losses in others:
        np.testing.assert_allclose(losses, one, rtol=1e-5)
