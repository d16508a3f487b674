"""A task with a constant teacher: an argument of the step, in neither optimizer nor checkpoint, and not compiled in."""

from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from bert_jax.hub.layout import Layout
from bert_jax.losses.loss import squared_error
from bert_jax.training.loop import train
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import StepCache
from bert_jax.training.task import Task
from tests.support.pretraining_runs import checkpoint_arrays, logged_metrics
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


def distilling(seed: int):
    task, config = tiny_pretraining(
        STEPS, checkpoint_every=STEPS, learning_rate=1e-2, warmup_steps=1, log_every=1
    )
    student = Layout(task.layout.config, pooler=False)
    teacher = Layout(student.config.replace(num_hidden_layers=2), pooler=False)
    params = jax.device_get(jax.jit(teacher.init)(jax.random.key(seed)))
    return Distilling(student, teacher, params), config


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
