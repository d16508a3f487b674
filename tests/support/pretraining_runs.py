"""Real runs of `bert-jax train` in processes of their own, on a small corpus."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.text.text_source import TextSource
from tests.support.made_up_language import join_documents, random_documents, save_tokenizer
from tests.support.processes import start_process
from tests.support.project import ROOT

RUN_STEPS = 240
RUN_CONFIG = {
    "steps": RUN_STEPS,
    "model.num_hidden_layers": 1,
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_attention_heads": 2,
    "data.batch_size": 8,
    "data.lengths": 24,
    "data.length_ratios": 1,
    "data.dupe_factor": 2,
    "optimizer.learning_rate": 3e-3,
    "optimizer.warmup_steps": 20,
    "log.every": 3,
    "log.evaluate_every": 80,
    "log.max_eval_batches": 4,
    "checkpoints.every": 10,
}


def make_corpus(root: Path, seed: int = 5) -> Path:
    (root / "text.txt").write_text(join_documents(random_documents(300, seed=seed)))
    vocabulary = save_tokenizer(root / "vocabulary")
    prepare_corpus(
        TextSource([root / "text.txt"], "sentences"),
        vocabulary,
        root / "corpus",
        validation_ratio=0.05,
        processes=1,
    )
    return root / "corpus"


def train_command(corpus: Path, workdir: Path, *more: str, **changes) -> list[str]:
    keys = (
        RUN_CONFIG
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


def logged_metrics(workdir: Path) -> list[dict]:
    """metrics.jsonl without timings."""
    found = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in found]


def last_logged_step(workdir: Path) -> int:
    path = workdir / "metrics.jsonl"
    complete = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return json.loads(complete[-1])["step"] if complete else 0


def is_saving(workdir: Path) -> bool:
    checkpoints = workdir / "checkpoints"
    found = os.listdir(checkpoints) if checkpoints.is_dir() else []
    return any(
        not (checkpoints / name / "manifest.json").exists() for name in found if not name.endswith("damaged")
    )


def kill_while_training(arguments: list[str], workdir: Path, writing: bool, steps: int) -> bool:
    """Starts, kills when so many more steps are done, and says whether a checkpoint was being written then."""
    target = last_logged_step(workdir) + steps
    process = start_process(arguments)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if last_logged_step(workdir) >= target and (not writing or is_saving(workdir)):
            break
        time.sleep(0.0005)
    process.kill()
    output = process.communicate()[0]
    assert process.returncode == -9, output[-3000:]
    return is_saving(workdir)


def checkpoint_arrays(checkpoint: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint, by its name."""
    # As NumPy arrays, whatever devices they were saved from.
    handler = ocp.PyTreeCheckpointHandler()
    found = handler.metadata(checkpoint.absolute()).tree
    kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), found)
    tree = handler.restore(checkpoint.absolute(), args=ocp.args.PyTreeRestore(restore_args=kinds))
    return {
        jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


def assert_same_result(one: Path, other: Path) -> None:
    """Parameters, optimizer state, counters, metrics and the model: bit for bit."""
    assert logged_metrics(one) == logged_metrics(other)
    ours, theirs = (checkpoint_arrays(checkpoints_of(workdir)[-1]) for workdir in (one, other))
    assert ours.keys() == theirs.keys()
    assert sum("optimizer" in name for name in ours) > sum("params" in name for name in ours)
    for name, value in ours.items():
        assert value.tobytes() == theirs[name].tobytes(), name
    for path in (one / "model").rglob("*.safetensors"):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes()


def checkpoints_of(workdir: Path) -> list[Path]:
    found = [path for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal()]
    return sorted(found, key=lambda path: int(path.name))


def assert_resumes(train: Callable[[Path], object], whole: Path) -> None:
    """A run that was cut off after its last checkpoint but one ends as if it had not been."""
    again = shutil.copytree(whole, whole.with_name(f"{whole.name} again"))
    shutil.rmtree(again / "model")
    shutil.rmtree(checkpoints_of(again)[-1])
    assert checkpoints_of(again)
    train(again)
    assert_same_result(whole, again)
