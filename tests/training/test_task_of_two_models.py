"""A task of two models, as a file of one's own: a generator replaces masked words, a discriminator tells which ones."""

import json
import shutil
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.command.export import export_checkpoint
from bert_jax.command.main import main
from bert_jax.hub.layout import Layout
from bert_jax.inference.load import load
from bert_jax.losses.loss import cross_entropy
from bert_jax.tasks import TASKS
from bert_jax.tasks.pretrain import Config  # noqa: F401 - what reads the config of the task
from bert_jax.training.task import Task
from tests.support.pretraining_runs import checkpoint_arrays, logged_metrics
from tests.support.project import ROOT
from tests.support.tiny_pretraining import Batches, tiny_pretraining

SETTINGS = {
    "steps": 12, "checkpoints.every": 4, "log.every": 4, "log.evaluate_every": 6, "optimizer.learning_rate": 3e-3,
    "optimizer.warmup_steps": 2, "data.lengths": 20, "data.length_ratios": 1,
}  # fmt: skip


def open(config, directories):
    model = tiny_pretraining()[0].layout.config
    generator = Layout(model.replace(hidden_size=16, intermediate_size=32), heads=("mlm",), pooler=False)
    discriminator = Layout(model, heads=("tag",), labels=("kept", "replaced"), pooler=False)
    return Pair(discriminator, generator), Batches(rows=8), config


def reopen(layouts):
    return Pair(layouts[""], layouts["generator"])


@dataclass(frozen=True)
class Pair(Task):
    generator: Layout

    @property
    def layouts(self):
        return {"": self.layout, "generator": self.generator}

    def init(self, key):
        keys = jax.random.split(key)
        return {"generator": self.generator.init(keys[0]), "discriminator": self.layout.init(keys[1])}

    def split_params(self, params):
        return {"": params["discriminator"], "generator": params["generator"]}

    def outputs(self, params, batch, constants=None, key=None):
        train, rngs = key is not None, None if key is None else {"dropout": key}
        logits = self.generator.module.apply({"params": params["generator"]}, batch, train, rngs=rngs)["mlm"]
        rows = jnp.arange(len(batch["input_ids"]))[:, None]
        tokens = batch["input_ids"].at[rows, batch["target_positions"]].set(logits.argmax(-1))
        seen = batch | {"input_ids": tokens}
        marks = self.layout.module.apply({"params": params["discriminator"]}, seen, train, rngs=rngs)["tag"]
        return {"mlm": logits, "tag": marks, "replaced": (tokens != batch["input_ids"]).astype(jnp.int32)}

    def losses(self, outputs, batch):
        return {
            "mlm_loss": cross_entropy(outputs["mlm"], batch["targets"], batch["target_weights"]),
            "replaced_loss": cross_entropy(outputs["tag"], outputs["replaced"], batch["attention_mask"]),
        }


@pytest.fixture
def trained(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "pair", sys.modules[__name__])

    def run(name):
        settings = [f"--config.{key}={value}" for key, value in SETTINGS.items()]
        spec = f"{ROOT}/configs/pretrain.py:tiny"
        workdir = str(tmp_path / name)
        assert main(["train", "--config", spec, "--config.task=pair", "--workdir", workdir, *settings]) == 0
        return tmp_path / name

    return run


@pytest.mark.long
def test_both_models_are_trained_saved_resumed_and_exported(trained, tmp_path, capsys):
    whole = trained("whole")
    again = shutil.copytree(whole, tmp_path / "again")
    for step in (8, 12):
        shutil.rmtree(again / "checkpoints" / str(step))
    shutil.rmtree(again / "model")
    capsys.readouterr()
    trained("again")
    assert "step 4" in capsys.readouterr().out
    assert logged_metrics(whole) == logged_metrics(again)
    ours, theirs = (checkpoint_arrays(workdir / "checkpoints/12") for workdir in (whole, again))
    assert ours.keys() == theirs.keys()
    assert all(value.tobytes() == theirs[name].tobytes() for name, value in ours.items())

    assert export_checkpoint(whole, tmp_path / "exported") == 12
    assert json.loads((whole / "run.json").read_text())["layouts"].keys() == {"generator"}
    for name, architecture in (("", "BertForTokenClassification"), ("generator", "BertForMaskedLM")):
        files = [
            root / name / "model.safetensors"
            for root in (whole / "model", again / "model", tmp_path / "exported")
        ]
        assert files[0].read_bytes() == files[1].read_bytes() == files[2].read_bytes()
        published = json.loads((whole / "model" / name / "config.json").read_text())
        assert published["architectures"] == [architecture]
        # Both have learnt: no parameter is what it was at the first checkpoint.
        export_checkpoint(whole, tmp_path / "first", 4)
        last, first = (load(root / name).params for root in (whole / "model", tmp_path / "first"))
        changed = [bool((a != b).any()) for a, b in zip(*map(jax.tree.leaves, (last, first)), strict=True)]
        assert np.mean(changed) == 1
