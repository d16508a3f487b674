"""What models are trained for: one file for each objective.

A task `NAME` is a file `tasks/NAME.py`, or a module of one's own (`task=mypackage.spot`), that defines `Config`,
`open(config) -> (Task, Data, config)` and `inspect(config, step, rows)`. What a config leaves to the data, such as the
steps of an epoch, is in the one that `open` returns.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bert_jax import config as configs
from bert_jax.errors import BertJaxError, nearest

TASKS: dict[str, ModuleType] = {}  # those that code outside of this folder adds, by name


def names() -> list[str]:
    files = Path(__file__).parent.glob("*.py")
    return sorted(
        {file.stem for file in files if "\ndef open(" in file.read_text(encoding="utf-8")} | set(TASKS)
    )


def module_of(name: str) -> ModuleType:
    if name in TASKS:
        return TASKS[name]
    if name in names():
        return importlib.import_module(f"bert_jax.tasks.{name}")
    if "." not in name:
        raise BertJaxError(f'config key task: no task "{name}"; {nearest(name, names())}')
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BertJaxError(f'config key task: the module "{name}" cannot be imported ({error})') from error


@dataclass(frozen=True)
class Named:
    """The key of a config that says who reads the others."""

    task: str = "pretrain"


def load(spec: str, overrides: Sequence[str]):
    """(the task's module, the config as it reads it) of `FILE:NAME` and overrides."""
    of_task = [override for override in overrides if override.startswith("task=")]
    module = module_of(configs.load(spec, of_task, Named, whole=False).task)
    return module, configs.load(spec, overrides, module.Config)
