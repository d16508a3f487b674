"""Real runs of `bert-jax train` in processes of their own, on a small corpus."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

import corpora
from bert_jax.data.corpus.prepare import prepare
from bert_jax.text.readers import Source

ROOT = Path(__file__).parent.parent
STEPS = 240
CONFIG = {
    "steps": STEPS,
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.feed_forward": 64,
    "model.heads": 2,
    "data.batch": 8,
    "data.lengths": 24,
    "data.shares": 1,
    "data.plans": 2,
    "optimizer.rate": 3e-3,
    "optimizer.warmup": 20,
    "log.every": 3,
    "log.evaluate_every": 80,
    "log.evaluate_batches": 4,
    "checkpoints.every": 10,
}


def small_corpus(root: Path, seed: int = 5) -> Path:
    (root / "text.txt").write_text(corpora.written(corpora.made_up(300, seed=seed)))
    vocabulary = corpora.save_tokenizer(root / "vocabulary")
    prepare(Source([root / "text.txt"], "sentences"), vocabulary, root / "corpus", heldout=0.05, processes=1)
    return root / "corpus"


# Compiling takes the time here, not running; an optimizer that does less compares as well.
QUICK_TO_COMPILE = "--xla_backend_optimization_level=0"


def environment() -> dict:
    return os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "XLA_FLAGS": QUICK_TO_COMPILE}


def command(corpus: Path, workdir: Path, *more: str, **changes) -> list[str]:
    keys = (
        CONFIG
        | {"data.corpora": corpus}
        | {name.replace("__", "."): value for name, value in changes.items()}
    )
    settings = [f"--config.{name}={value}" for name, value in keys.items()]
    spec = f"{ROOT}/configs/pretrain.py:tiny"
    return [
        sys.executable,
        "-m",
        "bert_jax",
        "train",
        "--config",
        spec,
        "--workdir",
        str(workdir),
        *settings,
        *more,
    ]


def started(arguments: list[str], **changes) -> subprocess.Popen:
    return subprocess.Popen(
        arguments,
        env=environment() | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(arguments: list[str], code: int = 0, **changes) -> str:
    process = started(arguments, **changes)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == code, output[-3000:]
    return output


def on_eight_devices(script: str, *arguments: str) -> dict:
    """What a script of this folder prints as JSON in a process with eight CPU devices."""
    changes = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {QUICK_TO_COMPILE}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    }
    ran = subprocess.run(
        [sys.executable, ROOT / "tests" / script, *arguments],
        env=environment() | changes, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def end(pod: subprocess.Popen, folder: Path) -> None:
    """Nothing of launch/local_pod.sh goes on, also when its test has failed."""
    pod.kill()
    for process in folder.glob("*/pid"):
        if not process.with_name("exit").exists():
            with suppress(ProcessLookupError):
                os.kill(int(process.read_text()), signal.SIGKILL)


def lines(workdir: Path) -> list[dict]:
    """metrics.jsonl without timings."""
    found = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in found]


def last_step(workdir: Path) -> int:
    path = workdir / "metrics.jsonl"
    complete = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return json.loads(complete[-1])["step"] if complete else 0


def being_written(workdir: Path) -> bool:
    checkpoints = workdir / "checkpoints"
    found = os.listdir(checkpoints) if checkpoints.is_dir() else []
    return any(
        not (checkpoints / name / "manifest.json").exists() for name in found if not name.endswith("damaged")
    )


def killed(arguments: list[str], workdir: Path, writing: bool, steps: int) -> bool:
    """Starts, kills when so many more steps are done, and says whether a checkpoint was being written then."""
    target = last_step(workdir) + steps
    process = started(arguments)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if last_step(workdir) >= target and (not writing or being_written(workdir)):
            break
        time.sleep(0.0005)
    process.kill()
    output = process.communicate()[0]
    assert process.returncode == -9, output[-3000:]
    return being_written(workdir)


def leaves(checkpoint: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint, by its name."""
    # As NumPy arrays, whatever devices they were saved from.
    handler = ocp.PyTreeCheckpointHandler()
    found = handler.metadata(checkpoint.absolute()).tree
    kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), found)
    tree = handler.restore(checkpoint.absolute(), args=ocp.args.PyTreeRestore(restore_args=kinds))
    return {
        jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


def assert_same_end(one: Path, other: Path) -> None:
    """Parameters, optimizer state, counters, metrics and the model: bit for bit."""
    assert lines(one) == lines(other)
    ours, theirs = (leaves(workdir / "checkpoints" / str(STEPS)) for workdir in (one, other))
    assert ours.keys() == theirs.keys()
    assert sum("optimizer" in name for name in ours) > sum("params" in name for name in ours)
    for name, value in ours.items():
        assert value.tobytes() == theirs[name].tobytes(), name
    model = "model/model.safetensors"
    assert (one / model).read_bytes() == (other / model).read_bytes()
