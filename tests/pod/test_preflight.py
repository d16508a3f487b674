"""What preflight counts, against counts by hand; what it refuses, and what it tells to do. Nothing is compiled here."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.models.mesh import AXES
from bert_jax.pod import compile, preflight, preflight_checks
from bert_jax.tasks import pretrain
from bert_jax.training.chips import GiB
from bert_jax.training.run_config import CheckpointConfig, RunConfig
from tests.support.preflight_configs import CONFIG, HERE, settings
from tests.support.pretraining_runs import make_corpus
from tests.support.texts import random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["steps=5000"], "end within the warm-up of 10,000; set --config.optimizer.warmup_steps=0.1"),
        (["steps=20000", "checkpoints.every=30000"], "30,000"),
        (
            ["data.batch_size=250"],
            "a step of 250 rows does not divide over 4 hosts; set --config.data.batch_size=252",
        ),
        (["data.corpora=nowhere"], "nowhere has no manifest.json"),
    ],
)
def test_what_cannot_go_well_is_said_before_anything_is_compiled(overrides, message):
    config = settings(*overrides)
    with pytest.raises(BertJaxError) as error:
        preflight_checks.check_outline(config, pretrain.outline(config, ModelDirectories()), HERE)
    assert message in str(error.value)


def test_without_the_tpu_compiler_one_line_says_what_to_install(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ImportError: libtpu")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    with pytest.raises(BertJaxError, match=r"TPU compiler is not installed; pip install 'jax\[tpu\]'"):
        preflight.compile_in_subprocess(f"{CONFIG}:tiny", [], HERE)


@pytest.mark.parametrize(("first", "end", "warming"), [(900_000, 905_000, 0), (4000, 20_000, 6000)])
def test_a_continued_run_has_warmed_up_before(first, end, warming):
    config = dataclasses.replace(settings(f"steps={end}"), init="somewhere", first_step=first)
    outline = pretrain.outline_corpora(pretrain.outline(settings(), ModelDirectories()).task, config)
    line = preflight_checks.check_schedule(config, outline)
    assert line == f"schedule: {warming:,} of {end - first:,} steps warm up"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model directory, for its sizes."""
    directory, layout = tmp_path_factory.mktemp("model"), Layout(ENCODER_CONFIG, heads=("mlm",), pooler=False)
    shapes = jax.eval_shape(layout.init, jax.random.key(0))
    hub.save_model(
        directory, layout, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes), TOKENIZER
    )
    return directory


def of_texts(name: str, model, *overrides: str) -> RunConfig:
    """A config of a task that goes through its examples in epochs."""
    spec = str(Path(CONFIG).with_name(f"{name}.py"))
    return tasks.load_config(spec, [f"init={model}", "data.max_length=16", *overrides])[1]


@pytest.mark.parametrize(
    ("loss", "texts", "scores"), [("auto", 2, 0), ("cosent", 2, 1), ("margin_mse", 3, 1)]
)
def test_groups_without_data_are_as_long_as_texts_may_be(loss, texts, scores, model, capsys):
    config = of_texts("embed", model, "data.batch_size=64", f"loss.name={loss}")
    outline = tasks.outline_run(config)
    (phase,) = outline.phases
    rows = 64 * texts
    assert (outline.batch, outline.rows, phase.length, outline.steps) == (64, rows, 16, 0)
    assert phase.features["input_ids"][0] == (rows, 16)
    assert phase.features.get("scores", ((rows, 0), None))[0] == (rows, scores)
    assert f"assuming groups of {texts} texts, each in a row of 16 tokens" in capsys.readouterr().err
    assert "set --config.data.train or --config.steps" in preflight_checks.check_schedule(config, outline)


@pytest.mark.parametrize(("name", "chips"), [("embed", 64), ("classify", 32)])
def test_the_rows_of_data_are_those_of_the_slice(name, chips, model, tmp_path):
    """Not of the devices here."""
    train = tmp_path / "train.csv"
    columns = {"embed": "question,answer", "classify": "text,label"}[name]
    written = [
        f"{text},{'ab'[i % 2]} {text if name == 'embed' else ''}" for i, text in enumerate(random_texts(60))
    ]
    train.write_text("\n".join([columns, *map(str.strip, written)]))
    config = of_texts(name, model, f"data.train={train}", "data.batch_size=32", "data.validation_ratio=0.2")
    devices = jax.sharding.AbstractMesh((chips, 1, 1), AXES)
    with jax.sharding.use_abstract_mesh(devices):
        there = tasks.outline_run(config)
    here = tasks.outline_run(config)
    assert here.rows < there.rows == chips, "a row for each chip"
    assert there.batch == 32 and there.steps == there.config.steps > 0
    assert "steps warm up" in preflight_checks.check_schedule(config, there), (
        "whose checkpoints are left to the data"
    )
    assert sum(phase.share for phase in there.phases) == pytest.approx(1)
    for phase in there.phases:
        assert phase.features["input_ids"] == ((there.rows, phase.length), np.dtype("int32"))
        assert phase.features["label_weights"][0][0] == there.rows


def test_room_for_checkpoints():
    config = CheckpointConfig(keep=4, keep_every=100_000)
    line = preflight_checks.describe_checkpoints(config, 1_000_000, state=10**6)
    assert "for 14 and the one being written" in line
    line = preflight_checks.describe_checkpoints(
        dataclasses.replace(config, best_metric="mlm_loss"), 1_000_000, 10**6
    )
    assert "for 15 and the one being written" in line


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("preflight"))


def test_a_corpus_is_checked_against_the_model(corpus):
    config = settings(f"data.corpora={corpus}")
    outline = pretrain.outline(config, ModelDirectories())
    assert outline.task.layout.config.vocab_size == 1000
    lines = preflight_checks.check_outline(config, outline, HERE)
    assert any("duplicates" in line for line in lines)
    with pytest.raises(BertJaxError, match="vocab_size"):
        pretrain.outline(settings(f"data.corpora={corpus}", "model.vocab_size=77"), ModelDirectories())


def a_phase(length: int = 512, temporaries: float = 3.0, **changes) -> dict:
    """What pod/compile.py would find for base on 16 chips of v5e, in round numbers."""
    memory = {"parameters": 0.4 * GiB, "optimizer": 0.8 * GiB, "batch": 0.0, "temporaries": temporaries * GiB}
    seconds = {"compute": 0.025, "memory": 0.020, "links": 0.008, "scheduled": 0.040}
    phase = {
        "length": length, "mesh": {"data": 16, "fsdp": 1, "tensor": 1}, "parameters": 110_106_428, "state": 1.3e9,
        "flops": 80e12, "model_flops": 77e12, "memory": memory, "kernels": ["short_attention"], "traffic": 16e9,
        "products": 4e12, "seconds": seconds,
        "collectives": [
            {"opcode": "all-reduce", "bytes": 440e6, "trips": 1, "members": 16, "asynchronous": False, "axes": "data"}
        ],
    }  # fmt: skip
    return phase | changes


@pytest.fixture
def compiles(monkeypatch):
    """Stands for the compiler, answered by a function that the test may replace."""

    def compiled(spec, overrides, where):
        outline = tasks.outline_run(tasks.load_config(spec, overrides)[1])
        return {
            "topology": str(where), "chips": where.chips, "hosts": where.hosts,
            "batch_size": outline.batch, "rows": outline.rows, "steps": outline.steps, "checks": [],
            "remat": outline.task.layout.config.remat,
            "checkpoints": dataclasses.asdict(outline.config.checkpoints),
            "phases": [{"share": phase.share} | compiled.answer(overrides, phase.length) for phase in outline.phases],
        }  # fmt: skip

    compiled.answer = lambda overrides, length: a_phase(length)
    monkeypatch.setattr(preflight, "compile_in_subprocess", compiled)
    return compiled


def test_what_is_compiled_has_the_settings_that_a_run_takes_on_tpus(monkeypatch):
    seen: list[RunConfig] = []
    request = {"config": f"{CONFIG}:base", "overrides": ["steps=5"], "topology": "v5e:4x4"}
    monkeypatch.setattr(sys, "argv", ["compile", json.dumps(request)])
    monkeypatch.setattr(compile, "compile_config", lambda config, where: seen.append(config) or {})
    compile.main()
    monkeypatch.setattr(tasks, "platform", lambda: "tpu")
    assert seen == [tasks.load_config(f"{CONFIG}:base", ["steps=5"])[1]]
    assert (seen[0].prng_impl, seen[0].model.dtype, seen[0].model.vocab_multiple) == ("rbg", "bfloat16", 128)


def test_the_verb_prints_what_a_run_takes(compiles, capsys):
    flags = ["--config", f"{CONFIG}:base", "--topology", "v5e:4x4", "--price", "2"]
    assert main(["preflight", *flags]) == 0
    output = capsys.readouterr().out
    assert "4.20 of 15.75 GiB a chip (parameters 0.40, optimizer 0.80" in output
    assert "1 all-reduce over data, 440.0 MB" in output
    assert "80.0 TFLOP a step, 3.9% more than the model's own (recomputation and other products)" in output
    assert "limited by compute" in output and "100 GB/s from the chip with the fewest links." in output
    assert main(["preflight", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    # A million steps of 53 ms one after the other, on 16 chips at 2 an hour.
    assert result["hours"]["serial"] == pytest.approx(1e6 * 0.053 / 3600)
    assert result["cost"]["serial"] == pytest.approx(1e6 * 0.053 / 3600 * 16 * 2)
    assert [phase["length"] for phase in result["phases"]] == [128, 512]
    assert result["phases"][1]["mfu"]["serial"] == pytest.approx(77e12 / 0.053 / 16 / 197e12)
    assert result["phases"][1]["tokens_per_second"]["least"] == pytest.approx(256 * 512 / 0.025)


@pytest.mark.parametrize(
    ("temporaries", "changes", "flags", "message"),
    [
        (
            20.0,
            {},
            [],
            "needs 21.2 GiB on each chip of v5e:4x4, which has 15.75; set --config.mesh.gradient_accumulation_steps=2",
        ),
        (20.0, {}, ["data.batch_size=16"], "set --config.model.remat=full"),
        (
            20.0,
            {},
            ["data.batch_size=96", "model.remat=full", "mesh.gradient_accumulation_steps=2"],
            "set --config.data.batch_size=32",
        ),
        (
            1.0,
            {"parameters": 8 * GiB, "optimizer": 16 * GiB},
            ["mesh.shard_optimizer=False"],
            "--config.mesh.shard_optimizer=true",
        ),
        (1.0, {"parameters": 16 * GiB, "optimizer": 4 * GiB}, [], "--config.mesh.fsdp=16"),
    ],
)
def test_what_does_not_fit_ends_with_what_to_change(compiles, capsys, temporaries, changes, flags, message):
    phase = a_phase(512, temporaries)
    phase["memory"] |= changes
    del phase["seconds"]
    compiles.answer = lambda overrides, length: phase
    overrides = [f"--config.{flag}" for flag in flags]
    assert main(["preflight", "--config", f"{CONFIG}:base", "--topology", "v5e:4x4", *overrides]) == 1
    assert message in capsys.readouterr().err
