"""Adapters with random numbers, on models of tests."""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

from bert_jax.hub.adapter_targets import AdapterConfig
from bert_jax.hub.model_directory import ModelDirectory, save_model
from bert_jax.inference.load import init_missing_parts
from bert_jax.training.adapters import merge_params, split_params, trained_adapter

KEEPS_HEADS = ("", "mlm")  # those of the base model


def random_adapter(base, head: str, labels=(), seed: int = 5, **settings):
    """Return a task with random adapters and a random head on a base model, and what of it is trained and frozen."""
    directory = ModelDirectory.open(base)
    layout = directory.layout if head in KEEPS_HEADS else directory.layout.with_head(head, labels)
    params = directory.read_params(layout, new_head=None if head in KEEPS_HEADS else head)
    params = init_missing_parts(layout, 0, set(layout.module_names) - set(params)) | params
    task = SimpleNamespace(layout=layout, layouts={"": layout})
    config = SimpleNamespace(adapter=AdapterConfig(**settings), seed=0, task="classify", init=str(base))
    trained, frozen = split_params(task, config, jax.device_get(params))
    random = np.random.RandomState(seed)
    trained = jax.tree.map(lambda x: np.float32(x + 0.1 * random.standard_normal(x.shape)), trained)
    return task, config, trained, frozen


def save_adapter(directory: Path, task, config, trained: dict, frozen: dict) -> Path:
    merged, adapter = (
        merge_params(task, config.adapter, trained, frozen),
        trained_adapter(task, config, trained, frozen),
    )
    save_model(directory, task.layout, merged, adapter=adapter)
    return directory


def write_adapter(directory: Path, base, head: str, labels=(), **settings) -> Path:
    return save_adapter(directory, *random_adapter(base, head, labels, **settings))
