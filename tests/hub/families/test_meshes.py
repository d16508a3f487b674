"""Every family trains alike on one device and on any mesh: dropout on where the family has it."""

import json
import sys

import jax
import numpy as np
import pytest

from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.processes import run_on_eight_devices
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.ci

STEPS = 12
NO_DROPOUT = ("albert", "modernbert", "nomic_bert", "eurobert")
MESHES = {
    "one device": (1, {}),
    "fsdp 8, 2 microbatches": (8, {"data": 1, "fsdp": 8, "gradient_accumulation_steps": 2}),
    "2 x 2 x 2": (8, {"fsdp": 2, "tensor": 2}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
}


def losses_of(name: str, devices: int, changes: dict) -> list[float]:
    task, config = tiny_pretraining(STEPS, **changes)
    vocabulary = {"vocab_size": config.model.vocab_size}
    task = PretrainTask(family_layout(name, FAMILY_CONFIGS[name] | vocabulary, ("mlm",)), task.data)
    assert task.layout.config.hidden_dropout_prob > 0 or name in NO_DROPOUT
    mesh, data = make_mesh(config.mesh, jax.devices()[:devices]), Batches()
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    step, losses = make_step(task, config, mesh), []
    for batch in place_batches(data.batches(0, STEPS, 0, 1), mesh, data.rows_per_step):
        state, measured = step(state, batch, constants)
        losses.append(float(measured["losses"]["mlm_loss"].mean))
    return losses


def main() -> None:
    found = {name: {mesh: losses_of(name, *how) for mesh, how in MESHES.items()} for name in FAMILY_CONFIGS}
    json.dump(found, sys.stdout)


@pytest.fixture(scope="module")
def found():
    return run_on_eight_devices(__name__)


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILY_CONFIGS)
def test_meshes_give_the_same_losses(name, found):
    one, *others = found[name].values()
    assert one[0] - one[-1] > 0.1, "something must be learnt, or all would be equal anyway"
    for losses in others:
        np.testing.assert_allclose(losses, one, rtol=1e-5)


if __name__ == "__main__":
    main()
