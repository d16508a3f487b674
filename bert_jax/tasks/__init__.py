"""What models are trained for: the contract, then one file for each objective."""

import importlib

from bert_jax.errors import BertJaxError, nearest

# Config key `task` -> its module, which has `Config` and `open(config) -> (Task, Data)`.
TASKS = {"pretrain": "bert_jax.tasks.pretrain"}


def module_of(name: str):
    if name not in TASKS:
        raise BertJaxError(f'config key task: no task "{name}"; {nearest(name, TASKS)}')
    return importlib.import_module(TASKS[name])
