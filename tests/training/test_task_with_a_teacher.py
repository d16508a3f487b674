"""A task with a constant teacher: an argument of the step, in neither optimizer nor checkpoint, and not compiled in."""

import json
import sys
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from bert_jax.hub.layout import Layout
from bert_jax.losses.loss import squared_error
from bert_jax.training.loop import train
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import StepCache, make_evaluation, make_step
from bert_jax.training.task import Task
from tests.support.pretraining_runs import checkpoint_arrays, logged_metrics
from tests.support.processes import run_on_eight_devices
from tests.support.tiny_pretraining import Batches, tiny_pretraining

STEPS = 3


@dataclass(frozen=True)
class Distilling(Task):
    """The student's hidden states follow the teacher's."""

    teacher: Layout
    teacher_params: dict = field(compare=False)

    def constants(self):
        return {"teacher": self.teacher_params}

    def outputs(self, params, batch, constants=None, key=None):
        student = super().outputs(params, batch, key=key)
        teacher = self.teacher.module.apply({"params": constants["teacher"]}, batch)
        return {"student": student["hidden"], "teacher": teacher["hidden"]}

    def losses(self, outputs, batch):
        weight = batch["attention_mask"][..., None] * np.ones(outputs["student"].shape[-1])
        return {"distance_loss": squared_error(outputs["student"], outputs["teacher"], weight)}


def distilling(seed: int, **changes):
    task, config = tiny_pretraining(
        STEPS, checkpoint_every=STEPS, learning_rate=1e-2, warmup_steps=1, log_every=1, **changes
    )
    student = Layout(task.layout.config, pooler=False)
    teacher = Layout(student.config.replace(num_hidden_layers=2), pooler=False)
    params = jax.device_get(jax.jit(teacher.init)(jax.random.key(seed)))
    return Distilling(student, teacher, params), config


def losses_on(devices: int, **changes):
    task, config = distilling(seed=5, **changes)
    mesh = make_mesh(config.mesh, jax.devices()[:devices])
    step, evaluation = make_step(task, config, mesh), make_evaluation(task, config, mesh)
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    losses = []
    for batch in place_batches(Batches().batches(0, STEPS, 0, 1), mesh, 32):
        state, measured = step(state, batch, constants)
        losses.append(float(measured["losses"]["distance_loss"].mean))
    measured, _ = evaluation(state.params, batch, constants)
    kernel = constants.task["teacher"]["encoder"]["layers"]["feed_forward"]["in"]["kernel"]
    share = kernel.addressable_shards[0].data.size / kernel.size
    return {"losses": [*losses, float(measured["losses"]["distance_loss"].mean)], "share": share}


@pytest.mark.ci
def test_the_teacher_is_in_no_checkpoint_and_the_student_comes_nearer(tmp_path):
    task, config = distilling(seed=5)
    train(task, Batches(), config, tmp_path)
    lines = [line["loss"] for line in logged_metrics(tmp_path) if line["kind"] == "train"]
    assert lines[-1] < 0.9 * lines[0]
    saved = checkpoint_arrays(tmp_path / f"checkpoints/{STEPS}")
    params = {name for name in saved if name.startswith("['params']")}
    assert len(saved) == 3 * len(params) + 4, "two moments for each, Adam's count and three of the state"
    assert not [name for name in saved if "teacher" in name]
    assert all(saved[name].shape[0] == 1 for name in params if "layers" in name), "the student's one layer"


@pytest.mark.slow
def test_two_teachers_share_a_compiled_step():
    cache, losses = StepCache(), []
    for seed in (5, 6):
        task, config = distilling(seed)
        mesh = make_mesh(config.mesh)
        step, _ = cache.get_or_make(task, config, mesh)
        measured = step(
            initial_state(task, config, mesh), Batches().whole(0), make_constants(task, config, mesh)
        )[1]
        losses.append(float(measured["losses"]["distance_loss"].mean))
    assert len(cache.kept) == 1 and step._cache_size() == 1
    assert abs(losses[0] - losses[1]) > 1e-3, "and each is followed"


@pytest.mark.long
def test_the_teacher_is_split_over_the_mesh_as_its_parameters_would_be():
    results = run_on_eight_devices(__name__)
    assert [results[mesh]["share"] for mesh in ("one", "fsdp 8", "2 x 2 x 2")] == [1, 1 / 8, 1 / 4]
    for mesh in ("fsdp 8", "2 x 2 x 2"):
        np.testing.assert_allclose(results[mesh]["losses"], results["one"]["losses"], rtol=1e-5)


if __name__ == "__main__":
    meshes = {
        "one": (1, {}),
        "fsdp 8": (8, {"data": 1, "fsdp": 8}),
        "2 x 2 x 2": (8, {"fsdp": 2, "tensor": 2}),
    }
    results = {name: losses_on(devices, **changes) for name, (devices, changes) in meshes.items()}
    json.dump(results, sys.stdout)
