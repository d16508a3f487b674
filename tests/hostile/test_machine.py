"""What a machine may lack: memory, a device, a home directory, standard input."""

import os
import subprocess
import sys

import jax
import pytest

import runs
from bert_jax import memory
from bert_jax.command import failures
from bert_jax.errors import BertJaxError
from bert_jax.files import cache_home
from bert_jax.inference.model import load
from bert_jax.train.loop import train
from hostile.outcomes import outcome
from tiny_training import Batches, tiny


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


def test_a_run_that_does_not_fit_is_refused_before_it_begins(tmp_path, monkeypatch):
    task, config = tiny(steps=2)
    needed = []
    monkeypatch.setattr(memory, "require", lambda size, *rest: needed.append(size))
    train(task, Batches(), config, tmp_path / "fits")
    monkeypatch.undo()
    state = (
        4
        * 4
        * sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lambda: task.init(jax.random.key(0)))))
    )
    assert state < needed[0] < 3 * state  # parameters, gradients and two moments, and the rows of a batch
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


@pytest.mark.parametrize("platform", ["cuda", "tpu", "nonsense"])
def test_a_device_that_is_not_there_is_one_line(small, platform):
    command = ["fill-mask", "--model", small / "masked", "w1 [MASK]"]
    tried = outcome(command, env={"JAX_PLATFORMS": platform})
    assert tried.code == 1 and "Traceback" not in tried.stderr, tried
    # libtpu has lines of its own.
    assert f"JAX finds no device '{platform}' here; unset JAX_PLATFORMS" in tried.stderr.splitlines()[-1], (
        tried
    )


def test_without_a_home_directory_nothing_is_kept(small, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)  # a user that no table knows, as in a container
    with pytest.raises(BertJaxError, match="set XDG_CACHE_HOME"):
        cache_home()
    for home in ("/dev/null", str(tmp_path / "file" / "home")):
        (tmp_path / "file").write_text("")
        command = ["predict", "--model", small / "classifier", "--input", small / "lines.txt"]
        tried = outcome(command, env={"HOME": home, "XDG_CACHE_HOME": ""})
        assert tried.kind == "right", tried


def test_a_closed_standard_input_is_one_line(small):
    for verb, model in (("predict", "classifier"), ("embed", "masked"), ("fill-mask", "masked")):
        shell = f"{sys.executable} -m bert_jax {verb} --model {small / model} <&-"
        ran = subprocess.run(
            ["sh", "-c", shell], env=runs.environment() | os.environ, capture_output=True, text=True
        )
        assert ran.returncode == 1 and "standard input is closed" in ran.stderr, ran
        assert len(ran.stderr.splitlines()) == 1
