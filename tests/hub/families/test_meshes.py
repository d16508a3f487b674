"""Every family trains alike on one device and on any mesh: dropout on where the family has it."""

import numpy as np
import pytest

from tests.support.family_sizes import FAMILY_SIZES
from tests.support.processes import run_on_eight_devices

pytestmark = [pytest.mark.slow, pytest.mark.pod]


@pytest.fixture(scope="module")
def found():
    return run_on_eight_devices("tests.hub.families.on_eight_devices")


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILY_SIZES)
def test_meshes_give_the_same_losses(name, found):
    one, *others = found[name].values()
    assert one[0] - one[-1] > 0.1, "something must be learnt, or all would be equal anyway"
    for losses in others:
        np.testing.assert_allclose(losses, one, rtol=1e-5)
