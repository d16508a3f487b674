"""Beginning from the parameters of a model directory."""

from dataclasses import replace

import jax

from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.train.task import Task

# The config's own sizes must be the directory's; other fields are how the run trains and computes.
SIZES = ("vocab_size", "hidden_size", "layers", "heads", "feed_forward", "max_positions", "segment_types", "activation",
         "norm_epsilon", "tied_decoder")  # fmt: skip


def as_in(directory: str, layout: hub.Layout, tokenizer: Tokenizer) -> hub.Layout:
    """The layout, published as the directory is; a directory of other sizes or with another tokenizer is refused."""
    source, _ = hub.survey(directory)
    differing = [name for name in SIZES if getattr(source.config, name) != getattr(layout.config, name)]
    if differing:
        sizes = ", ".join(f"--config.model.{name}={getattr(source.config, name)}" for name in differing)
        raise BertJaxError(f"the model in {directory} has other sizes than the config; set {sizes}")
    if open_tokenizer(hub.existing(directory)).fingerprint != tokenizer.fingerprint:
        raise BertJaxError(
            f"the corpus was prepared with another tokenizer than that of {directory}; "
            f"prepare it again with --tokenizer {directory}"
        )
    return replace(layout, family=source.family, published=source.published)


def read(directory: str, task: Task, seed: int) -> tuple[dict, list[str]]:
    """The directory's parameters for the task, and the parts it lacks, which have initial values."""
    source, tensors = hub.survey(directory, vocab_multiple=task.layout.config.vocab_multiple)
    params = hub.read_params(source, tensors, directory)
    key = jax.random.key(seed, impl="threefry2x32")
    names = list(jax.eval_shape(task.init, key))
    missing = [name for name in names if name not in params]
    if missing == names:
        raise BertJaxError(
            f"the task takes nothing from a model directory; leave --config.init={directory} out"
        )

    def initial():
        values = task.init(key)
        return {name: values[name] for name in missing}

    params |= jax.device_get(jax.jit(initial)())
    return {name: params[name] for name in names}, missing
