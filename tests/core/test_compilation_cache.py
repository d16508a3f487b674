"""Compiled programs that later processes find again, in Python as in the command."""

import fnmatch
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bert_jax.core import compilation_cache
from bert_jax.core.compilation_cache import enable_compilation_cache
from tests.support.project import ROOT
from tests.support.small_models import write_model

DIRECTORY, FEWEST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
SIZE = "jax_compilation_cache_max_size"


class Config(SimpleNamespace):
    def update(self, name, value):
        setattr(self, name, value)


def told(monkeypatch, home, joined: bool = False, **chosen) -> dict:
    """JAX's settings after `enable_compilation_cache`, where the user chose some before."""
    config = Config(**{DIRECTORY: None, FEWEST: 1.0, SIZE: -1} | chosen)
    distributed = SimpleNamespace(is_initialized=lambda: joined)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config, distributed=distributed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    enable_compilation_cache()
    return vars(config)


def test_what_the_user_chose_for_jax_stays(monkeypatch, tmp_path):
    defaults, ours = {DIRECTORY: None, FEWEST: 1.0, SIZE: -1}, str(tmp_path / "bert_jax/programs")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
    assert told(monkeypatch, tmp_path) == defaults
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    assert told(monkeypatch, tmp_path, **{DIRECTORY: "theirs"}) == defaults | {DIRECTORY: "theirs"}
    assert told(monkeypatch, tmp_path, joined=True) == defaults
    (tmp_path / "file").touch()
    assert told(monkeypatch, tmp_path / "file") == defaults, "no directory can be made there"
    assert not (tmp_path / "bert_jax").exists()
    assert told(monkeypatch, tmp_path) == {DIRECTORY: ours, FEWEST: 0.1, SIZE: 2**28}
    assert told(monkeypatch, tmp_path, **{SIZE: 7}) == {DIRECTORY: ours, FEWEST: 0.1, SIZE: 7}


@pytest.mark.parametrize(
    ("devices", "platforms"),
    [
        ([], "cpu"),
        (["/dev/vfio/vfio"], "cpu"),
        (["/dev/vfio/vfio", "/dev/vfio/0"], None),
        (["/dev/accel0"], None),
    ],
)
def test_libtpu_looks_for_no_tpu_on_a_machine_without_one(devices, platforms, monkeypatch):
    monkeypatch.setattr(compilation_cache, "find_spec", lambda name: name == "libtpu")
    monkeypatch.setattr(compilation_cache, "glob", lambda pattern: fnmatch.filter(devices, pattern))
    for chosen in (None, "", "cuda"):
        config = Config(jax_platforms=chosen)
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
        compilation_cache.avoid_missing_tpu()
        assert config.jax_platforms == (chosen or platforms or chosen)


@pytest.mark.slow
def test_python_says_nothing_of_a_tpu(tmp_path):
    """Where libtpu is installed, and no variable hushes it."""
    write_model(tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "JAX_PLATFORMS"} | {"PYTHONPATH": str(ROOT)}
    program = f"import bert_jax; bert_jax.load({str(tmp_path)!r}).encode(['a cat'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")


PROGRAM = """
import collections, sys
import jax
counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.split("/")[-1]]))
jax.jit(lambda x: x + 1)(1)  # before JAX is told of a cache
import bert_jax
from bert_jax.command.train import start_training
model = bert_jax.load(sys.argv[1])
counts.clear()
model.encode(["the cat", "the cat sat on the mat . the cat"], normalize_embeddings=True)
start_training("configs/classify.py", sys.argv[3:], sys.argv[2])
print("asked", counts["compile_requests_use_cache"], "found", counts["cache_hits"])
"""
OURS = re.compile("compiling the step|step |the model is in ")  # lines of the log


@pytest.mark.long
def test_a_second_process_compiles_nothing(tmp_path):
    write_model(tmp_path / "model")
    rows = [f"the {'cat ' * (n % 9)}sat,{'ab'[n % 2]}" for n in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]))
    changes = {
        "init": tmp_path / "model", "data.train": tmp_path / "t.csv", "data.max_length": 16, "data.batch_size": 8,
        "epochs": 2, "data.calibration_ratio": 0, "report": False,
    }  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        FEWEST.upper(): "0",
        "PYTHONPATH": str(ROOT),
    }
    counts = []
    for n in range(2):
        command = [sys.executable, "-c", PROGRAM, tmp_path / "model", tmp_path / f"run{n}"]
        command += [f"{name}={value}" for name, value in changes.items()]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr
        assert all(OURS.match(line) for line in ran.stderr.splitlines()), ran.stderr
        _, asked, _, reused = ran.stdout.splitlines()[-1].split()
        counts.append((int(asked), int(reused)))
    (asked, _), again = counts
    assert asked > again[0] > 5 and again[0] == again[1], counts  # those of inference were loaded
