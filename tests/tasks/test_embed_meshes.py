"""An embedder learns the same on every mesh and in any number of parts."""

import sys

import pytest

from tests.support.embedding_tasks import EMBED_CONFIG, random_pairs
from tests.support.pretraining_runs import logged_metrics
from tests.support.processes import run_process
from tests.support.project import ROOT
from tests.support.tables import write_jsonl

pytestmark = pytest.mark.ci

STEPS = 50
RUNS = {
    "one device": (1, ["gradient_accumulation_steps=1"]),
    "one device, 4 parts": (1, ["gradient_accumulation_steps=4"]),
    "data 8": (8, ["data=8"]),
    "data 8, 2 parts": (8, ["data=8", "gradient_accumulation_steps=2"]),
    "fsdp 8": (8, ["fsdp=8"]),
    "2 x 2 x 2, 4 parts": (8, ["fsdp=2", "tensor=2", "gradient_accumulation_steps=4"]),
}


@pytest.mark.long
def test_every_mesh_gives_the_same_curve(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(400))
    settings = [
        f"init={encoder_path}", f"data.train={train}", "data.max_length=24", f"steps={STEPS}",
        "optimizer.learning_rate=1e-3", "data.batch_size=64", "data.batching=bucketed", "model.hidden_dropout_prob=0.1",
        "log.every=1", "log.evaluate_every=25",
    ]  # fmt: skip
    curves = {}
    for name, (devices, mesh) in RUNS.items():
        given = [*settings, *(f"mesh.{axis}" for axis in mesh)]
        words = ["train", "--config", f"{ROOT}/{EMBED_CONFIG}", *(f"--config.{setting}" for setting in given)]
        workdir = tmp_path / name
        flags = f"--xla_force_host_platform_device_count={devices}"
        run_process([sys.executable, "-m", "bert_jax", *words, "--workdir", str(workdir)], XLA_FLAGS=flags)
        curves[name] = [line["loss"] for line in logged_metrics(workdir) if line["kind"] == "train"]
    expected = curves["one device"]
    assert len(expected) == STEPS and expected[-1] < expected[0] / 10
    for curve in curves.values():
        assert curve == pytest.approx(expected, rel=1e-5)
