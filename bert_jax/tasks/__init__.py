"""Training tasks: one file for each objective.

The file defines `Config` and `open(config, directories) -> (Task, BatchSource, config)`. `directories[name]` opens a
model directory, once in a run. The config that `open` returns also holds what depends on the data, such as the number
of steps. What follows, until the model is finished, the members of `Task` define (training/task.py). Optional functions
of the file:

- `reopen(layouts) -> Task`, for a task whose runs save several models, needs no data and serves `Task.layouts` alone.
- `complete_values(values, directories)`: the values of a config with those that `init` decides.
- `outline(config, directories) -> Outline`, for a task whose steps can be compiled without its data.
- `preview(config, directories)`, for a config that is `slow_to_open`: as `open`, without what takes long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import ModuleType

from bert_jax.core import config as configs
from bert_jax.core.config_files import run_config_file
from bert_jax.core.registry import Registry
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.models.mesh import platform
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Outline, Task, make_outline

# Values of the config key `task`: a file in this folder, a registered name, or a module's path such as mypackage.spot.
TASKS = Registry("bert_jax.tasks", "task", members=("Config", "open"))


@dataclass(frozen=True)
class TaskName:
    """The config key that names the task, which defines all other keys."""

    task: str = "pretrain"


@dataclass(frozen=True)
class Start:
    """The config keys that say where a run starts."""

    init: str = RunConfig.init
    from_scratch: bool = RunConfig.from_scratch
    first_step: int = RunConfig.first_step


START_KEYS = tuple(field.name for field in fields(Start))
# The sections of a config file that hold in some runs.
FROM_INIT, ON_PLATFORM = "from_init", {"tpu": "on_tpu", "gpu": "on_gpu"}
ANY_MODEL = {"model": {}, "family": ""}


def load_config(
    spec: str, overrides: Sequence[str], device: str | None = None
) -> tuple[ModuleType, RunConfig]:
    """Return the task's module and its config, read from `FILE:NAME` and changed by the overrides.

    `device` is the platform of the run, by default that of this process.
    """
    return read_config(run_config_file(spec), overrides, device=device)


def read_config(
    values: dict,
    overrides: Sequence[str],
    directories: ModelDirectories | None = None,
    device: str | None = None,
) -> tuple[ModuleType, RunConfig]:
    """Return the task's module and its config, from the values of a config file and the overrides."""
    module = find_task_module(values, overrides)
    values = configs.merge_overrides(choose_values(values, overrides, device), overrides, module.Config)
    values = complete_values(module, values, ModelDirectories() if directories is None else directories)
    return module, configs.parse_config(values, (), module.Config)


def complete_values(module: ModuleType, values: dict, directories: ModelDirectories) -> dict:
    """Return the values of a config with those that follow from its model directory."""
    return module.complete_values(values, directories) if hasattr(module, "complete_values") else values


def choose_values(values: Mapping, overrides: Sequence[str] = (), device: str | None = None) -> dict:
    """Return the values of a config file for a run, with those of its sections that hold in it.

    A run from `init` takes no sizes from the file. It has the file's schedule if it continues that, or if `init` gives
    its sizes alone.
    """
    chosen = {name: value for name, value in values.items() if name not in (FROM_INIT, *ON_PLATFORM.values())}
    own = [override for override in overrides if override.split("=")[0] in START_KEYS]
    if FROM_INIT in values and (start := configs.parse_config(chosen, own, Start, strict=False)).init:
        changes = values[FROM_INIT]
        if start.from_scratch or start.first_step:
            changes = {name: value for name, value in changes.items() if name == "model"}
        chosen = configs.merge_values(chosen | ANY_MODEL, changes)
    here = ON_PLATFORM.get(platform() if device is None else device)
    return configs.merge_values(chosen, values[here]) if here in values else chosen


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
