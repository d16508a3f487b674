"""Run by test_meshes.py in a process with eight CPU devices: what every family's training gives, as JSON."""

import json
import sys

import jax

from bert_jax.tasks.pretrain import Pretraining
from bert_jax.training.feed import placed
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import constants_of, initial_state
from bert_jax.training.step import make_step
from tests.support.family_sizes import FAMILY_SIZES
from tests.support.released_models import family_layout
from tests.support.tiny_pretraining import Batches, tiny_pretraining

STEPS = 12
MESHES = {
    "one device": (1, {}),
    "fsdp 8, 2 microbatches": (8, {"data": 1, "fsdp": 8, "gradient_accumulation_steps": 2}),
    "2 x 2 x 2": (8, {"fsdp": 2, "tensor": 2}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
}


def losses_of(name: str, devices: int, changes: dict) -> list[float]:
    task, config = tiny_pretraining(STEPS, **changes)
    vocabulary = {"vocab_size": config.model.vocab_size}
    task = Pretraining(family_layout(name, FAMILY_SIZES[name] | vocabulary, ("mlm",)), task.data)
    assert task.layout.config.dropout > 0 or name in ("albert", "modernbert", "nomic_bert")
    mesh, data = make_mesh(config.mesh, jax.devices()[:devices]), Batches()
    state, constants = initial_state(task, config, mesh), constants_of(task, config, mesh)
    step, losses = make_step(task, config, mesh), []
    for batch in placed(data.batches(0, STEPS, 0, 1), mesh, data.batch):
        state, measured = step(state, batch, constants)
        losses.append(float(measured["losses"]["mlm_loss"].mean))
    return losses


def main() -> None:
    found = {name: {mesh: losses_of(name, *how) for mesh, how in MESHES.items()} for name in FAMILY_SIZES}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
