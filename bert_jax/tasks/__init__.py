"""Training tasks: one file for each objective.

The file defines `Config` and `open(config, directories) -> (Task, BatchSource, config)`. `directories[name]` opens a
model directory, once in a run. The config that `open` returns also holds what depends on the data, such as the number
of steps. What follows, until the model is finished, the members of `Task` define (training/task.py). Optional functions
of the file:

- `reopen(layouts) -> Task`, for a task whose runs save several models, needs no data and serves `Task.layouts` alone.
- `outline(config, directories) -> Outline`, for a task whose steps can be compiled without its data.
- `preview(config, directories)`, for a config that is `slow_to_open`: as `open`, without what takes long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from bert_jax.core import config as configs
from bert_jax.core.registry import Registry
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.training.outline import Outline, make_outline
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Task

# Values of the config key `task`: a file in this folder, a registered name, or a module's path such as mypackage.spot.
TASKS = Registry("bert_jax.tasks", "task", members=("Config", "open"))


@dataclass(frozen=True)
class TaskName:
    """The config key that names the task, which defines all other keys."""

    task: str = "pretrain"


def load_config(spec: str, overrides: Sequence[str]) -> tuple[ModuleType, RunConfig]:
    """Return the task's module and its config, read from `FILE:NAME` and changed by the overrides."""
    return read_config(configs.run_config_file(spec), overrides)


def read_config(values: dict, overrides: Sequence[str]) -> tuple[ModuleType, RunConfig]:
    """Return the task's module and its config, from the values of a config file and the overrides."""
    module = find_task_module(values, overrides)
    return module, configs.parse_config(values, overrides, module.Config)


def find_task_module(values: dict, overrides: Sequence[str]) -> ModuleType:
    """Return the module of the task that the values or the overrides name."""
    of_task = [override for override in overrides if override.startswith("task=")]
    return TASKS[configs.parse_config(values, of_task, TaskName, strict=False).task]


def outline_run(config: RunConfig) -> Outline:
    """Return the outline of the run, from which its steps can be compiled."""
    module, directories = TASKS[config.task], ModelDirectories()
    if hasattr(module, "outline"):
        return module.outline(config, directories)
    return make_outline(*module.open(config, directories))


def reopen_task(name: str, layouts: dict[str, Layout]) -> Task:
    """Return the task of a run without its data, to save or open its models."""
    module = TASKS[name]
    return module.reopen(layouts) if hasattr(module, "reopen") else Task(layouts[""])
