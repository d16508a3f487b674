"""The same training on any mesh: dropout on, threefry, float32, 50 steps."""

import functools
import json
import sys
import tempfile

import jax
import numpy as np
import pytest

from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.sharding import ABORTING, make_mesh, place_batches
from bert_jax.training.state import abstract_state, initial_state, make_constants
from bert_jax.training.step import make_evaluation, make_step
from tests.support.processes import run_on_eight_devices
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.ci

STEPS = 50
IN_RING = {"gradient_ring": True, "shard_optimizer": True}
MESHES = {
    "one device": (1, {}),
    "data 8, 4 microbatches": (8, {"gradient_accumulation_steps": 4, "shard_optimizer": True}),
    "data 8, in a ring": (8, IN_RING),
    "fsdp 8": (8, {"data": 1, "fsdp": 8}),
    "2 x 2 x 2": (8, {"fsdp": 2, "tensor": 2}),
}
EVALUATED = "one device", "data 8, 4 microbatches", "2 x 2 x 2"
ROUNDED = {
    "data 8, gradients in bfloat16": (8, {"gradient_reduce_dtype": "bfloat16", "shard_optimizer": True}),
    "data 8, gradients in bfloat16 in a ring": (8, {"gradient_reduce_dtype": "bfloat16"} | IN_RING),
}
MORE_MESHES = {
    "one device, 4 microbatches": (1, {"gradient_accumulation_steps": 4}),
    "data 8": (8, {}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
    "data 8, 4 microbatches, in a ring": (8, IN_RING | {"gradient_accumulation_steps": 4}),
    "fsdp 8, 4 microbatches": (8, {"data": 1, "fsdp": 8, "gradient_accumulation_steps": 4}),
    "2 x 2 x 2, 4 microbatches": (8, {"fsdp": 2, "tensor": 2, "gradient_accumulation_steps": 4}),
}
if jax.__version_info__ < ABORTING:
    MORE_MESHES |= {
        "2 x 2 x 2, in parts": (8, {"fsdp": 2, "tensor": 2, "shard_optimizer": True}),
        "2 x 2 x 2, 4 microbatches, in parts": (
            8,
            {"fsdp": 2, "tensor": 2, "gradient_accumulation_steps": 4, "shard_optimizer": True},
        ),
    }
else:
    MORE_MESHES |= {
        "data 4, tensor 2, in parts": (8, {"tensor": 2, "shard_optimizer": True}),
        "data 4, tensor 2, in a ring": (8, IN_RING | {"tensor": 2}),
    }


class Telling(PretrainTask):
    """Pre-training that also keeps what it says of each row."""

    def predictions(self, outputs, batch):
        return outputs["nsp"]


def loss(measured) -> float:
    return sum(float(loss.mean) for loss in measured["losses"].values())


def begun(task, config, mesh):
    """Made in its shards where they are of parameters; elsewhere from those of one device, which compiles faster."""
    made_there = mesh.size == 1 or mesh.shape["fsdp"] == 8
    return initial_state(task, config, mesh, None if made_there else params_of_one())


@functools.cache
def params_of_one():
    task, config = tiny_pretraining(STEPS, layers=2)
    return jax.device_get(initial_state(task, config, make_mesh(config.mesh, jax.devices()[:1])).params)


@functools.cache
def compiled(devices, changes):
    task, config = tiny_pretraining(STEPS, layers=2, **dict(changes))
    task = Telling(**vars(task))
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    return task, config, mesh, make_step(task, config, mesh), make_evaluation(task, config, mesh)


def steps_on(devices, changes, state=None, first=0, stop=STEPS):
    """Losses of the steps, and the state after them."""
    task, config, mesh, step, _ = compiled(devices, tuple(changes.items()))
    data = Batches()
    state = state(task, config, mesh) if state else begun(task, config, mesh)
    constants = make_constants(task, config, mesh)
    losses = []
    for batch in place_batches(data.batches(first, stop, 0, 1), mesh, data.rows_per_step):
        state, measured = step(state, batch, constants)
        losses.append(loss(measured))
    assert np.isfinite(losses).all()
    return losses, state


def evaluated_on(devices, changes, state):
    """The held-out sums, and what is predicted of each row."""
    task, config, mesh, _, evaluation = compiled(devices, tuple(changes.items()))
    data = Batches()
    batch = next(place_batches(data.validation_batches(20, 0, 1), mesh, data.rows_per_step))
    validation, predicted = jax.device_get(
        evaluation(state.params, batch, make_constants(task, config, mesh))
    )
    return {"validation": [float(x) for x in jax.tree.leaves(validation)], "predicted": predicted.tolist()}


def across_counts():
    """8 devices, then 4, then 8, through a checkpoint each time."""
    losses = []
    with tempfile.TemporaryDirectory() as directory:
        first, restore = 0, None
        for devices, stop, changes in (
            (8, 20, MESHES["data 8, 4 microbatches"][1]),
            (4, 35, {"fsdp": 2, "gradient_accumulation_steps": 2}),
            (8, STEPS, MESHES["fsdp 8"][1]),
        ):
            some, state = steps_on(devices, changes, restore, first, stop)
            losses += some
            _, config = tiny_pretraining()
            checkpoints = Checkpoints(directory, config.checkpoints)
            checkpoints.save(stop, state, {"step": stop})
            checkpoints.wait()

            def restore(task, config, mesh, checkpoints=checkpoints):
                return checkpoints.restore(checkpoints.newest_step(), abstract_state(task, config, mesh))[0]

            first = stop
    return losses


def main() -> None:
    found = {}
    meshes = MESHES | ROUNDED if sys.argv[1] == "some" else {"one device": MESHES["one device"]} | MORE_MESHES
    for name, (devices, changes) in meshes.items():
        losses, state = steps_on(devices, changes)
        found[name] = {"losses": losses}
        if name == "fsdp 8":
            kernel = state.params["encoder"]["layers"]["feed_forward"]["in"]["kernel"]
            found["share"] = kernel.addressable_shards[0].data.size / kernel.size
        if name in EVALUATED:
            found[name] |= evaluated_on(devices, changes, state)
    if sys.argv[1] == "some":
        found["8, 4, 8 devices"] = {"losses": across_counts()}
    json.dump(found, sys.stdout)


def assert_same(one, other):
    assert len(one["losses"]) == 50
    assert one["losses"][0] - one["losses"][-1] > 1, "something must be learnt, or all would be equal anyway"
    np.testing.assert_allclose(other["losses"], one["losses"], rtol=1e-5)


@pytest.fixture(scope="module")
def some():
    return run_on_eight_devices(__name__, "some")


@pytest.mark.parametrize("mesh", [name for name in MESHES if name != "one device"])
def test_meshes_and_accumulation_give_the_same_losses(some, mesh):
    assert_same(some["one device"], some[mesh])


@pytest.mark.parametrize("mesh", [name for name in EVALUATED if name != "one device"])
def test_meshes_measure_and_predict_the_same(some, mesh):
    np.testing.assert_allclose(some[mesh]["validation"], some["one device"]["validation"], rtol=1e-5)
    # Of each row, in the order of the rows.
    np.testing.assert_allclose(some[mesh]["predicted"], some["one device"]["predicted"], atol=1e-4)


@pytest.mark.parametrize("mesh", ROUNDED)
def test_gradients_sent_in_bfloat16_are_rounded_and_no_more(mesh, some):
    exact, rounded = some["one device"], some[mesh]
    assert rounded["losses"][0] == pytest.approx(exact["losses"][0], rel=1e-6)
    assert rounded["losses"][5:] != pytest.approx(exact["losses"][5:], rel=1e-6)
    np.testing.assert_allclose(rounded["losses"], exact["losses"], rtol=5e-3)


def test_fsdp_holds_an_eighth_of_a_parameter_on_each_device(some):
    assert some["share"] == 1 / 8


def test_a_run_goes_on_from_8_devices_on_4_and_on_8_again(some):
    assert_same(some["one device"], some["8, 4, 8 devices"])


@pytest.mark.long
def test_more_meshes_give_the_same_losses():
    found = run_on_eight_devices(__name__, "more")
    for mesh in MORE_MESHES:
        assert_same(found["one device"], found[mesh])


if __name__ == "__main__":
    main()
