"""Compiled programs: functions of (params, batch), one for each model and purpose."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.hub.sentence_transformers import PROJECTION, Projection
from bert_jax.inference.parameters import unrolled
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import HEADS, Bert
from bert_jax.models.pooling import pool, project

POOLER = "pooler"  # BERT's own, beside the poolings that need no parameters


def program(make: Callable) -> Callable:
    """`make(config, ...)` returns the function to compile, once for each of its arguments."""

    @functools.lru_cache(maxsize=16)
    def compiled(*arguments):
        return jax.jit(make(*arguments))

    return compiled


@program
def head_logits(config: EncoderConfig, head: str, labels: int):
    module = Bert(config, (head,), labels, HEADS[head].pooler, unrolled())

    def run(params, batch):
        return module.apply({"params": params}, batch)[head]

    return run


@program
def head_logits_and_vectors(config: EncoderConfig, head: str, labels: int):
    """Beside the logits the mean of the hidden states, of length 1."""
    module = Bert(config, (head,), labels, HEADS[head].pooler, unrolled())

    def run(params, batch):
        outputs = module.apply({"params": params}, batch)
        return outputs[head], pool(outputs["hidden"], batch["mask"])

    return run


@program
def hidden_states(config: EncoderConfig):
    encoder = Encoder(config, unrolled())

    def run(params, batch):
        return encoder.apply({"params": params["encoder"]}, batch).astype("float32")

    return run


@program
def pooled_states(config: EncoderConfig, pooling: str, normalize: bool, projection: Projection | None = None):
    def run(params, batch):
        if pooling == POOLER:
            pooled = Bert(config, unrolled=unrolled()).apply({"params": params}, batch)["pooled"]
            return pooled.astype("float32")
        hidden = Encoder(config, unrolled()).apply({"params": params["encoder"]}, batch)
        if projection is None:
            return pool(hidden, batch["mask"], pooling, normalize)
        vectors = pool(hidden, batch["mask"], pooling, False)
        return project(vectors, params[PROJECTION]["dense"], projection.activation)

    return run


@program
def mask_fillings(config: EncoderConfig, top: int):
    """(probabilities, ids) of the `top` tokens at each target position."""
    module = Bert(config, ("mlm",), 0, HEADS["mlm"].pooler, unrolled())

    def run(params, batch):
        logits = module.apply({"params": params}, batch)["mlm"]
        return jax.lax.top_k(jax.nn.softmax(logits.astype(jnp.float32)), top)

    return run
