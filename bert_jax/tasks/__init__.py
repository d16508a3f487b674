"""What models are trained for: one file for each objective.

The file defines `Config`, `open(config) -> (Task, Data, config)` and `inspect(config, step, rows)`. What a config
leaves to the data, such as the steps of an epoch, is in the one that `open` returns. A task that leaves several models
also defines `reopen(layouts) -> Task`: as far as `Task.models` goes, without data. One whose steps can be compiled
before the run, by `bert-jax preflight`, defines `outline(config) -> Outline`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from bert_jax import config as configs
from bert_jax.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.registry import Registry
from bert_jax.tasks.outline import Outline
from bert_jax.train.config import RunConfig
from bert_jax.train.task import Task

# Config key `task`: the name of a file here or of one that was registered, or the path of a module, mypackage.spot.
TASKS = Registry(
    "bert_jax.tasks",
    "task",
    helpers=(
        "batches",
        "cards",
        "contrast",
        "embed_config",
        "embedding",
        "epochs_config",
        "finetune",
        "finetune_config",
        "finetune_data",
        "inspect",
        "label_notices",
        "outline",
        "parts",
        "pieces",
        "probe",
        "ranking",
        "rerank_config",
        "student",
        "usual_losses",
        "warm_start",
    ),
)


@dataclass(frozen=True)
class TaskName:
    """The key of a config that says who reads the others."""

    task: str = "pretrain"


def load(spec: str, overrides: Sequence[str]) -> tuple[ModuleType, RunConfig]:
    """The task's module and the config as it reads it, of `FILE:NAME` and overrides."""
    return read(configs.read_file(spec), overrides)


def read(values: dict, overrides: Sequence[str]) -> tuple[ModuleType, RunConfig]:
    """Likewise, of the values in a config file."""
    module = module_of(values, overrides)
    return module, configs.read(values, overrides, module.Config)


def module_of(values: dict, overrides: Sequence[str]) -> ModuleType:
    """Of the task that the values or the overrides name."""
    of_task = [override for override in overrides if override.startswith("task=")]
    return TASKS[configs.read(values, of_task, TaskName, whole=False).task]


def outline_of(config: RunConfig) -> Outline:
    """What the steps of a run compute."""
    module = TASKS[config.task]
    if not hasattr(module, "outline"):
        raise BertJaxError(
            f"preflight cannot compile the task {config.task}: it defines no `outline`; see bert_jax/tasks/__init__.py"
        )
    return module.outline(config)


def reopen(name: str, layouts: dict[str, Layout]) -> Task:
    """The task of a run, as far as its models go."""
    module = TASKS[name]
    return module.reopen(layouts) if hasattr(module, "reopen") else Task(layouts[""])
