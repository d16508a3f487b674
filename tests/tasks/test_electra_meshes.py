"""A generator and a discriminator learn the same on every mesh and in any number of microbatches."""

import json
import sys

import jax
import numpy as np
import pytest

from bert_jax.hub.layout import Layout
from bert_jax.tasks.electra import GeneratorConfig, ReplacedTokenTask
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_evaluation, make_step
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.processes import run_on_eight_devices
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.ci

STEPS = 30
MESHES = {
    "one device": (1, {}),
    "one device, 4 microbatches": (1, {"gradient_accumulation_steps": 4}),
    "data 8, 4 microbatches": (8, {"gradient_accumulation_steps": 4}),
    "fsdp 8": (8, {"data": 1, "fsdp": 8}),
    "2 x 2 x 2, 4 microbatches": (8, {"fsdp": 2, "tensor": 2, "gradient_accumulation_steps": 4}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
}
FAMILIES = {
    "electra": ("replaced", GeneratorConfig(0.5)),
    "deberta-v2": ("replaced_in_context", GeneratorConfig(1.0, 0.5)),
}


def measured_on(name: str, devices: int, changes: dict) -> dict:
    pretraining, config = tiny_pretraining(STEPS, **changes)
    head, sizes = FAMILIES[name]
    layout = family_layout(name, FAMILY_CONFIGS[name] | {"vocab_size": config.model.vocab_size}, (head,))
    assert layout.config.hidden_dropout_prob > 0
    generator = Layout(sizes.derive_encoder(layout.config), layout.family, ("mlm",), pooler=False)
    task = ReplacedTokenTask(layout, pretraining.data, generator=generator, disentangled=name == "deberta-v2")
    mesh, data = make_mesh(config.mesh, jax.devices()[:devices]), Batches()
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    step, evaluation, losses = make_step(task, config, mesh), make_evaluation(task, config, mesh), []
    for batch in place_batches(data.batches(0, STEPS, 0, 1), mesh, data.rows_per_step):
        state, measured = step(state, batch, constants)
        losses.append([float(loss.mean) for loss in measured["losses"].values()])
    batch = next(place_batches(data.validation_batches(20, 0, 1), mesh, data.rows_per_step))
    validation, _ = jax.device_get(evaluation(state.params, batch, constants))
    return {"losses": losses, "validation": [float(x) for x in jax.tree.leaves(validation)]}


def main() -> None:
    json.dump({mesh: measured_on(sys.argv[1], *how) for mesh, how in MESHES.items()}, sys.stdout)


@pytest.mark.long
@pytest.mark.parametrize("family", ["electra", "deberta-v2"])
def test_meshes_and_accumulation_give_the_same_losses(family):
    one, *others = run_on_eight_devices(__name__, family).values()
    losses = np.array(one["losses"])
    assert len(losses) == 30 and (losses[:3].mean(0) - losses[-3:].mean(0) > 0.1).all(), "both must learn"
    for other in others:
        np.testing.assert_allclose(other["losses"], losses, rtol=1e-5)
        np.testing.assert_allclose(other["validation"], one["validation"], rtol=1e-5)


if __name__ == "__main__":
    main()
