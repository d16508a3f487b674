"""What models are trained for: the contract, then one file for each objective."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from bert_jax import config as configs
from bert_jax.errors import BertJaxError, nearest

# Config key `task` -> its module, which has `Config`, `open(config) -> (Task, Data, config)` and `inspect(config, step,
# rows)`. What a config leaves to the data, such as the steps of an epoch, is in the one that `open` gives back.
TASKS = {
    "pretrain": "bert_jax.tasks.pretrain",
    "classify": "bert_jax.tasks.classify",
    "tag": "bert_jax.tasks.tag",
    "answer": "bert_jax.tasks.answer",
}


def module_of(name: str):
    if name not in TASKS:
        raise BertJaxError(f'config key task: no task "{name}"; {nearest(name, TASKS)}')
    return importlib.import_module(TASKS[name])


@dataclass(frozen=True)
class Named:
    """What of a config says who reads the rest."""

    task: str = "pretrain"


def load(spec: str, overrides: Sequence[str]):
    """(the task's module, the config as it reads it) of `FILE:NAME` and overrides."""
    named = [each for each in overrides if each.startswith("task=")]
    module = module_of(configs.load(spec, named, Named, whole=False).task)
    return module, configs.load(spec, overrides, module.Config)
