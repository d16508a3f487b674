"""`bert_jax.open_task`: the batches and losses of a task, for a training loop of your own."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from os import PathLike
from typing import Any

import jax
import numpy as np

from bert_jax import tasks
from bert_jax.core.arguments import use_python_spelling
from bert_jax.core.compilation_cache import avoid_missing_tpu
from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.paths import require_path
from bert_jax.hub.model_directory import atomic_model_directory
from bert_jax.runs.train import Config, check_arguments, run_values
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.adapters import join_params, save_trained_models, split_params
from bert_jax.training.opened_run import OpenedRun, make_params_loader, open_run
from bert_jax.training.state import init_split_params


class TrainingTask:
    """What a training loop needs of a task, as functions of the parameters.

    - `tokenizer`: the tokenizer of its data
    - `steps`: the number of steps of its config

    >>> task = bert_jax.open_task("classify", init="model", data={"train": "train.csv", "folds": 0}, epochs=1)
    >>> "input_ids" in next(task.batches())
    True
    """

    def __init__(self, run: OpenedRun):
        self._run = run
        self.tokenizer: Tokenizer = run.data.tokenizer
        self.steps: int = run.config.steps
        self._constants = run.task.constants()
        self._adapter = run.config.adapter

    @cached_property
    def _param_names(self) -> list[str]:
        return list(jax.eval_shape(lambda: init_split_params(self._run.task, self._run.config)[0]))

    @cached_property
    def _batch_names(self) -> list[str]:
        return list(self._run.data.features(0))

    def initial_params(self) -> dict[str, Any]:
        """Return the parameters to start from: those of the config's `init`, or random ones of its `seed`.

        With adapters these are the trained ones alone."""
        trained, self._frozen = self._read_params()
        return trained

    def _read_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        task, config, read = self._run.task, self._run.config, make_params_loader(self._run)
        return (
            split_params(task, config, read()) if read else jax.jit(lambda: init_split_params(task, config))()
        )

    @cached_property
    def _frozen(self) -> dict[str, Any]:
        return self._read_params()[1] if self._adapter.rank else {}

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Yield the batches of the steps from `start` to `stop`, by default to the last; batch N is always the same."""
        check_number(start, "start", is_whole=True, allowed=Range(0, self.steps))
        stop = self.steps if stop is None else stop
        check_number(stop, "stop", is_whole=True, allowed=Range(0, self.steps))
        return self._run.data.batches(start, stop, 0, 1)

    def losses(
        self, params: Mapping[str, Any], batch: Mapping[str, Any], key: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """Return the mean losses of a batch, whose sum is what training minimises. With a `key` there is dropout."""
        task = self._run.task
        check_names(batch, "batch", self._batch_names)
        check_names(params, "params", self._param_names)
        whole = join_params(task, self._adapter, dict(params), self._frozen, batch.get("rows"), key)
        outputs = task.outputs(whole, dict(batch), self._constants, key)
        return {name: loss.mean for name, loss in task.losses(outputs, dict(batch)).items()}

    def save(self, path: str | PathLike[str], params: Mapping[str, Any]) -> None:
        """Write the trained model as a directory that `bert_jax.load` and `transformers` open."""
        task, data = self._run.task, self._run.data
        check_names(params, "params", self._param_names)
        trained, frozen = jax.device_get((dict(params), self._frozen))
        with atomic_model_directory(require_path(path, "path")) as new:
            save_trained_models(new, task, self._run.config, data, trained, frozen)


def open_task(config: Config | None = None, **keys: Any) -> TrainingTask:
    """Open the task of a config with its data, for a training loop of your own. `config` and `keys` are those of
    `train`.

    >>> task = bert_jax.open_task("classify", init="model", data={"train": "train.csv", "folds": 0}, epochs=1)
    >>> losses = task.losses(task.initial_params(), next(task.batches()))
    >>> list(losses)
    ['classify_loss']
    """
    check_arguments("open_task", ("config",), keys)
    avoid_missing_tpu()
    with use_python_spelling():
        module, run_config = tasks.read_config(run_values(config, keys), ())
        return TrainingTask(open_run(module.open, run_config))


def check_names(given: Any, argument: str, expected: Collection[str]) -> None:
    """Refuse arrays that are not those of the task."""
    names = set(given) if isinstance(given, Mapping) else set()
    if missing := sorted(set(expected) - names):
        raise BertJaxError(
            f"{argument} must be a dict with {', '.join(sorted(expected))}; it lacks {missing[0]}"
        )
