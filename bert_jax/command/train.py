"""Start runs from config files, show their examples, and export the models of their checkpoints."""

import shlex
from collections.abc import Sequence

from bert_jax import tasks
from bert_jax.core import config as configs
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.runs.run import run
from bert_jax.text.directory import open_tokenizer
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.run_config import CheckpointConfig
from bert_jax.training.workdir import Workdir, save_models


def start(spec: str, overrides: Sequence[str], workdir: str) -> bool:
    """`bert-jax train`: return whether the run, or every run of a sweep, finished."""
    command = command_line(spec, overrides, workdir)
    return run(configs.read_file(spec), overrides, workdir, command) is not None


def command_line(spec: str, overrides: Sequence[str], workdir: str) -> str:
    settings = [f"--config.{override}" for override in overrides]
    return shlex.join(["bert-jax", "train", "--config", spec, *settings, "--workdir", str(workdir)])


def inspect(spec: str, overrides: Sequence[str], step: int, rows: int) -> str:
    """`bert-jax inspect`: return the examples of a step as text."""
    module, config = tasks.load(spec, overrides)
    return module.inspect(config, step, rows)


def export(path: str, directory: str, step: int | None = None) -> int:
    """`bert-jax export`: write the models of a checkpoint, by default of the newest, and return its step."""
    workdir = Workdir(path)
    if workdir.read()["config"].get("method") == "contrast":
        raise BertJaxError(
            f"{path} fits its head after the last step (method=contrast), so its checkpoints have none; the model of "
            f"the finished run is {workdir.model}"
        )
    task = tasks.reopen(workdir.read()["config"]["task"], workdir.layouts())
    checkpoints = Checkpoints(workdir.checkpoints, CheckpointConfig())
    if step is None:
        steps = checkpoints.steps()
        if not steps:
            raise BertJaxError(f"{path} has no checkpoint yet; continue the run until it writes one")
        step = steps[-1]
    checkpoints.check(step)
    with hub.saving(directory) as new:
        save_models(new, task, checkpoints.params(step), open_tokenizer(workdir.tokenizer))
    return step
