"""Start a run from the parameters of a model directory."""

import jax

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories, ModelDirectory
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.task import Task


def check_same_tokenizer(directory: ModelDirectory, tokenizer: Tokenizer) -> None:
    if directory.tokenizer.fingerprint != tokenizer.fingerprint:
        raise BertJaxError(
            f"the corpus was not prepared with the tokenizer of {directory.name}; "
            f"prepare it again with --tokenizer {directory.name}"
        )


def check_sizes(directory: str, saved: EncoderConfig, wanted: EncoderConfig) -> None:
    expected, actual = saved.architecture, wanted.architecture
    differing = [name for name in expected if expected[name] != actual[name]]
    if 0 < saved.rotary.theta < wanted.rotary.theta:
        differing.remove("rotary.theta")  # it may be raised to read longer rows, as ModernBERT's was
    if differing:
        sizes = ", ".join(f"--config.model.{name}={expected[name]}" for name in differing)
        raise BertJaxError(f"the model in {directory} has other sizes than the config; set {sizes}")


def read_initial_params(
    directories: ModelDirectories, init: str, task: Task, seed: int
) -> tuple[dict, list[str]]:
    """Return the task's parameters from the directory `init`, and the names of the parts it lacks, which get initial
    values.

    Further models of the task are read from subdirectories, as a run saves them.
    """
    models = {
        name: read_model_params(directories.of_model(init, name), layout)
        for name, layout in task.layouts.items()
    }
    params = task.join_params(models)
    key = jax.random.key(seed, impl="threefry2x32")
    names = list(jax.eval_shape(task.init, key))
    missing = [name for name in names if name not in params]
    if missing == names:
        raise BertJaxError(
            f"the task reads no parameters of a model directory; leave --config.init={init} out"
        )

    def initial():
        values = task.init(key)
        return {name: values[name] for name in missing}

    params |= jax.device_get(jax.jit(initial)())
    return {name: params[name] for name in names}, missing


def read_model_params(directory: ModelDirectory, layout: Layout) -> dict:
    """Return a directory's parameters for the layout, without heads that were trained for other labels."""
    source = directory.layout.computed_with(vocab_multiple=layout.config.vocab_multiple)
    params, usable = directory.read_params(source), usable_modules(directory, layout)
    params = {name: part for name, part in params.items() if name in usable}
    return directory.read_pooler_and_transform(layout) | params


def usable_modules(directory: ModelDirectory, layout: Layout) -> set[str]:
    """Return the modules that a model of the layout takes from the directory: no heads for other labels."""
    source = directory.layout
    same = source.labels == layout.labels
    return {name for name in source.module_names if same or name not in HEADS or not HEADS[name].labels}


def list_new_modules(directory: ModelDirectory, layout: Layout) -> list[str]:
    """List the modules of a model of the layout that the directory lacks, which get initial values."""
    usable = usable_modules(directory, layout) | set(directory.read_pooler_and_transform(layout))
    return [name for name in layout.module_names if name not in usable]
