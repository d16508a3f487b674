"""Going on from a model directory."""

from dataclasses import replace

import jax

from bert_jax.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Tokenizer

# The config's own sizes must be the directory's; other fields are how the run trains and computes.
SIZES = ("vocab_size", "hidden_size", "layers", "heads", "feed_forward", "max_positions", "segment_types", "activation",
         "norm_epsilon", "tied_decoder")  # fmt: skip


def as_in(directory: str, layout: hub.Layout, tokenizer: Tokenizer) -> hub.Layout:
    """The layout, published as the directory is; refuses one of other sizes or with another tokenizer."""
    theirs, _ = hub.survey(directory)
    differing = [name for name in SIZES if getattr(theirs.config, name) != getattr(layout.config, name)]
    if differing:
        said = ", ".join(f"--config.model.{name}={getattr(theirs.config, name)}" for name in differing)
        raise BertJaxError(f"the model in {directory} has other sizes than the config; set {said}")
    if open_tokenizer(hub.existing(directory)).fingerprint != tokenizer.fingerprint:
        raise BertJaxError(
            f"the corpus was prepared with another tokenizer than that of {directory}; "
            f"prepare it again with --tokenizer {directory}"
        )
    return replace(layout, family=theirs.family, published=theirs.published)


def read(directory: str, layout: hub.Layout, seed: int) -> tuple[dict, list[str]]:
    """The directory's parameters for the layout, and the parts it lacks, which have initial values."""
    theirs, tensors = hub.survey(directory, vocab_multiple=layout.config.vocab_multiple)
    found = hub.read_params(theirs, tensors, directory)
    missing = [name for name in layout.module_names if name not in found]
    key = jax.random.key(seed, impl="threefry2x32")
    found |= jax.device_get(jax.jit(lambda: layout.init(key, missing))())
    return {name: found[name] for name in layout.module_names}, missing
