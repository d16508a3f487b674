"""What a machine may lack: memory, a device, a home directory, standard input."""

import re
import resource
import shutil
import sys
from dataclasses import replace

import jax
import pytest

from bert_jax.command.main import explain_error
from bert_jax.core import memory
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import cache_home
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.inference.load import load
from bert_jax.tasks.pretrain import PretrainTask
from bert_jax.text.line_reader import read_lines
from bert_jax.training.loop import train
from bert_jax.training.memory_estimate import (
    PROPOSE_RATIO,
    REFUSE_RATIO,
    MemoryEstimate,
    estimate_memory,
    require_memory,
)
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import abstract_state, make_constants
from bert_jax.training.step import make_step
from tests.hostile.outcomes import LINE, RIGHT, outcome
from tests.support.tiny_pretraining import Batches, tiny_pretraining

pytestmark = pytest.mark.optimized


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 2000000\ninactive_file 400000\n")
    assert memory.free_bytes() == 900_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() > 1e8
    # So does that of the group within it in which this program runs.
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("memory.max", "memory.current", "memory.stat"):
        shutil.copy(tmp_path / name, tmp_path / "a" / name)
    (tmp_path / "a/memory.max").write_text("2700000\n")
    (tmp_path / "group").write_text("0::/a/b\n")
    monkeypatch.setattr(memory, "OWN_GROUP", tmp_path / "group")
    assert memory.free_bytes() == 600_000


def test_a_model_that_does_not_fit_is_one_line(small, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda: 10_000)
    with pytest.raises(BertJaxError, match="0.0 GB"):
        load(small / "masked")


def test_too_small_an_address_space_is_one_line(small, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (900_000_000, -1))
    with pytest.raises(BertJaxError, match=r"JAX needs 1.5 GB .* is 0.9 GB; raise it with `ulimit -v"):
        load(small / "masked")


@pytest.mark.long
@pytest.mark.parametrize(("remat", "accumulate"), [("none", 1), ("full", 1), ("none", 4)])
def test_the_memory_of_a_step_is_estimated_before_it_is_compiled(remat, accumulate):
    task, config = tiny_pretraining(steps=2, layers=2, gradient_accumulation_steps=accumulate)
    config = replace(config, model=config.model.replace(remat=remat))
    step = step_of(PretrainTask.from_config(config, ModelDirectories()), config, Batches(512))
    constants = make_constants(step.task, config, step.mesh)
    compiled = make_step(step.task, config, step.mesh).lower(step.abstract, step.batch, constants).compile()
    facts = compiled.memory_analysis()
    taken = facts.argument_size_in_bytes + facts.temp_size_in_bytes
    assert step.lower_bound < step.total_bytes
    assert REFUSE_RATIO * step.total_bytes < taken < PROPOSE_RATIO * step.total_bytes


def step_of(task, config, rows) -> MemoryEstimate:
    mesh = make_mesh(config.mesh)
    return estimate_memory(task, rows, config, mesh, abstract_state(task, config, mesh))


@pytest.mark.ci
def test_a_run_that_does_not_fit_is_refused_with_what_fits(tmp_path, monkeypatch):
    def check(rows: int = 256, **changes) -> None:
        task, config = tiny_pretraining(steps=2, **changes)
        mesh = make_mesh(config.mesh)
        require_memory(task, Batches(rows), config, mesh, abstract_state(task, config, mesh))

    task, config = tiny_pretraining(steps=2)
    free = int(0.4 * step_of(task, config, Batches(256)).total_bytes)
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    with pytest.raises(BertJaxError, match="256 rows of 20") as refused:
        train(task, Batches(256), config, tmp_path / "full")
    assert not (tmp_path / "full" / "checkpoints").exists()
    count = int(re.search(r"set --config.mesh.gradient_accumulation_steps=(\d+), or", str(refused.value))[1])
    check(gradient_accumulation_steps=count)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(BertJaxError, match="free; set a smaller --config.data.batch_size, or train"):
        check(rows=255)
    monkeypatch.setenv(memory.CHECK, "0")
    check()


def test_what_a_library_says_of_memory_and_devices_is_one_line():
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of whatever type JAX has for it
        jax.numpy.zeros((1 << 45,)).block_until_ready()
    for error in (raised.value, MemoryError()):
        assert str(explain_error(error)).startswith("out of memory (")
    assert explain_error(ValueError("a fault of ours")) is None


@pytest.mark.slow
def test_a_device_that_is_not_there_is_one_line(small):
    tried = outcome(["fill-mask", "--model", small / "masked", "w1 [MASK]"], env={"JAX_PLATFORMS": "cuda"})
    assert tried.kind == LINE and "JAX_PLATFORMS" in tried.stderr, tried


@pytest.mark.slow
def test_without_a_home_directory_nothing_is_kept(small, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)  # a user that no table knows, as in a container
    with pytest.raises(BertJaxError, match="XDG_CACHE_HOME"):
        cache_home()
    command = ["predict", "--model", small / "classifier", "--input", small / "lines.txt"]
    tried = outcome(command, env={"HOME": "/dev/null", "XDG_CACHE_HOME": ""})
    assert tried.kind == RIGHT, tried


def test_a_closed_standard_input_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # what Python makes of `<&-`
    with pytest.raises(BertJaxError, match="standard input is closed"):
        list(read_lines("-"))
