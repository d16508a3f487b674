"""What a machine may lack: memory, a device, a home directory, standard input."""

import sys
from dataclasses import replace

import jax
import pytest

from bert_jax import memory
from bert_jax.command import failures
from bert_jax.errors import BertJaxError
from bert_jax.files import cache_home
from bert_jax.inference.model import load
from bert_jax.tasks.pretrain import Pretraining
from bert_jax.text.lines import read_lines
from bert_jax.train.loop import Run, train
from bert_jax.train.state import constants_of
from bert_jax.train.workdir import Workdir
from hostile.outcomes import LINE, RIGHT, outcome
from tiny_training import Batches, tiny

pytestmark = pytest.mark.optimized


def test_free_memory_is_known_here():
    free = memory.free_bytes()
    assert free is not None and 1e8 < free < 1e14


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 2000000\ninactive_file 400000\n")
    assert memory.free_bytes() == 900_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_bytes() > 1e8


def test_a_model_that_does_not_fit_is_one_line(small, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10_000)
    with pytest.raises(
        BertJaxError, match="takes .* GB of memory at least, and this machine has 0.0 GB free"
    ):
        load(small / "masked")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remat", "share"), [pytest.param("none", 0.3, marks=pytest.mark.long), ("full", 0.1)]
)
def test_no_run_takes_less_than_what_is_asked_for_it(tmp_path, monkeypatch, remat, share):
    _, config = tiny(steps=2, layers=4)
    config = replace(config, model=config.model.replace(remat=remat))
    task, rows, needed = Pretraining.of(config), Batches(512), []
    monkeypatch.setattr(memory, "require", lambda size, *rest: needed.append(size))
    run = Run(task, rows, config, Workdir(tmp_path), None, None)
    run.check_memory()
    constants = constants_of(task, config, run.mesh)
    taken = run.take_step.lower(run.abstract, rows.whole(0), constants).compile().memory_analysis()
    assert share < needed[0] / (taken.argument_size_in_bytes + taken.temp_size_in_bytes) < 1


@pytest.mark.slow
def test_a_run_that_does_not_fit_is_refused_before_it_begins(tmp_path, monkeypatch):
    task, config = tiny(steps=2)
    needed = []
    monkeypatch.setattr(memory, "require", lambda size, *rest: needed.append(size))
    Run(task, Batches(), config, Workdir(tmp_path), None, None).check_memory()
    monkeypatch.undo()
    params = jax.tree.leaves(jax.eval_shape(lambda: task.init(jax.random.key(0))))
    state = 4 * 4 * sum(leaf.size for leaf in params)
    # Parameters, gradients and two moments, and the rows of a batch.
    assert state < needed[0] < 3 * state
    monkeypatch.setattr(memory, "free_bytes", lambda device: needed[0] - 1)
    with pytest.raises(BertJaxError, match="this run takes .* set a smaller --config.data.batch"):
        train(task, Batches(), config, tmp_path / "full")
    assert not (tmp_path / "full" / "checkpoints").exists()


def test_what_a_library_says_of_memory_and_devices_is_one_line():
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of whatever type JAX has for it
        jax.numpy.zeros((1 << 45,)).block_until_ready()
    for error in (raised.value, MemoryError()):
        assert str(failures.explained(error)).startswith("out of memory (")
    assert failures.explained(ValueError("a fault of ours")) is None


@pytest.mark.slow
def test_a_device_that_is_not_there_is_one_line(small):
    tried = outcome(["fill-mask", "--model", small / "masked", "w1 [MASK]"], env={"JAX_PLATFORMS": "cuda"})
    assert tried.kind == LINE and "JAX finds no device 'cuda' here; unset JAX_PLATFORMS" in tried.stderr, (
        tried
    )


@pytest.mark.slow
def test_without_a_home_directory_nothing_is_kept(small, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)  # a user that no table knows, as in a container
    with pytest.raises(BertJaxError, match="set XDG_CACHE_HOME"):
        cache_home()
    command = ["predict", "--model", small / "classifier", "--input", small / "lines.txt"]
    tried = outcome(command, env={"HOME": "/dev/null", "XDG_CACHE_HOME": ""})
    assert tried.kind == RIGHT, tried


def test_a_closed_standard_input_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # what Python makes of `<&-`
    with pytest.raises(BertJaxError, match="standard input is closed"):
        list(read_lines("-"))
