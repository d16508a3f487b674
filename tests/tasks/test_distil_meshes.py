"""A student learns the same on every mesh and in any number of microbatches, its teacher split as it is."""

import json
import sys

import jax
import numpy as np
import pytest

from bert_jax.hub.layout import Layout
from bert_jax.tasks.distil import OBJECTIVES, DistillationLossConfig
from bert_jax.training.sharding import make_mesh, place_batches
from bert_jax.training.state import initial_state, make_constants
from bert_jax.training.step import make_step
from tests.support.distillation_runs import distil_settings
from tests.support.pretraining_runs import logged_metrics
from tests.support.processes import run_on_eight_devices, run_process
from tests.support.project import ROOT
from tests.support.tables import write_texts_csv
from tests.support.texts import marked_texts
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.ci

STEPS = 20
MESHES = {
    "one device": (1, {}),
    "one device, 4 microbatches": (1, {"gradient_accumulation_steps": 4}),
    "data 8": (8, {}),
    "data 8, 4 microbatches": (8, {"gradient_accumulation_steps": 4}),
    "data 8, in parts": (8, {"shard_optimizer": True}),
    "fsdp 8": (8, {"data": 1, "fsdp": 8}),
    "2 x 2 x 2": (8, {"fsdp": 2, "tensor": 2}),
    "2 x 2 x 2, 4 microbatches": (8, {"fsdp": 2, "tensor": 2, "gradient_accumulation_steps": 4}),
}
STUDENTS = {
    "distilbert": {"num_hidden_layers": 2},
    "minilm": {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32},
    "tinybert": {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32},
}


def curve(objective: str, devices: int, changes: dict) -> list[float]:
    plain, config = tiny_pretraining(STEPS, **changes)
    kind = OBJECTIVES[objective]
    # Wide initial values: tokens of usual ones relate to all others alike, and a divergence near 0 is rounding alone.
    encoder = plain.layout.config.replace(initializer_range=0.15)
    of_teacher = Layout(encoder.replace(num_hidden_layers=4), heads=kind.heads, pooler=False)
    student = Layout(encoder.replace(**STUDENTS[objective]), heads=kind.heads, pooler=False)
    assert student.config.hidden_dropout_prob == student.config.attention_probs_dropout_prob == 0.1
    task = kind(
        student,
        plain.data,
        teacher=of_teacher,
        teacher_params=jax.device_get(jax.jit(of_teacher.init)(jax.random.key(7))),
        settings=DistillationLossConfig(relation_heads=8),
    )
    mesh, data = make_mesh(config.mesh, jax.devices()[:devices]), Batches()
    state, constants = initial_state(task, config, mesh), make_constants(task, config, mesh)
    step, losses = make_step(task, config, mesh), []
    for batch in place_batches(data.batches(0, STEPS, 0, 1), mesh, data.rows_per_step):
        state, measured = step(state, batch, constants)
        losses.append(sum(float(loss.mean) for loss in measured["losses"].values()))
    return losses


@pytest.mark.long
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_mesh_gives_the_same_curve(objective):
    curves = run_on_eight_devices(__name__, objective)
    expected = curves["one device"]
    assert curves.keys() == MESHES.keys() and expected[-1] < expected[0]
    for name, losses in curves.items():
        np.testing.assert_allclose(losses, expected, rtol=1e-5, err_msg=name)


@pytest.mark.long
def test_every_mesh_gives_the_same_student_of_a_classifier(teacher_path, tmp_path):
    train = write_texts_csv(tmp_path / "texts.csv", marked_texts(200, 3))
    begin = teacher_path.parents[1] / "begin"  # which has learnt nothing yet
    given = distil_settings(
        teacher_path,
        train,
        init=begin,
        **{"data.batch_size": 32, "model.hidden_dropout_prob": 0.1, "log.every": 1},
    )
    meshes = {
        "one device": (1, []),
        "one device, 4 parts": (1, ["gradient_accumulation_steps=4"]),
        "data 8": (8, ["data=8"]),
        "fsdp 8": (8, ["fsdp=8"]),
        "2 x 2 x 2": (8, ["fsdp=2", "tensor=2"]),
    }
    curves = {}
    for name, (devices, mesh) in meshes.items():
        keys = [*given, "data.batching=bucketed", *(f"mesh.{axis}" for axis in mesh)]
        words = ["train", "--config", f"{ROOT}/configs/distil.py:classifier"]
        words += [f"--config.{key}" for key in keys] + ["--workdir", str(tmp_path / name)]
        flags = f"--xla_force_host_platform_device_count={devices}"
        run_process([sys.executable, "-m", "bert_jax", *words], XLA_FLAGS=flags)
        curves[name] = [line["loss"] for line in logged_metrics(tmp_path / name) if line["kind"] == "train"]
    assert curves["one device"][-1] < 0.75 * curves["one device"][0]
    for name, losses in curves.items():
        np.testing.assert_allclose(losses, curves["one device"], rtol=1e-5, err_msg=name)


if __name__ == "__main__":
    json.dump({name: curve(sys.argv[1], *how) for name, how in MESHES.items()}, sys.stdout)
