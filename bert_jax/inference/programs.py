"""Compiled programs: functions of (params, batch), one for each config and purpose."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.sentence_transformers import PROJECTION, Projection
from bert_jax.inference.parameters import uses_unrolled_layers
from bert_jax.models.encoder import Encoder, unroll_layers
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS, Bert
from bert_jax.models.intermediates import STATES, WEIGHTS
from bert_jax.models.pooling import pool, project

POOLER = "pooler"  # BERT's own pooling; the others have no parameters


def program(make: Callable) -> Callable:
    """Decorate `make(config, ...)` to compile the function that it returns, once for each set of arguments."""

    @functools.lru_cache(maxsize=16)
    def compiled(*arguments):
        return jax.jit(make(*arguments))

    return compiled


@program
def head_logits(config: EncoderConfig, head: str, labels: int):
    module = Bert(config, (head,), labels, HEADS[head].pooler, uses_unrolled_layers())

    def run(params, batch):
        return module.apply({"params": params}, batch)[head]

    return run


@program
def head_logits_and_vectors(config: EncoderConfig, head: str, labels: int):
    """The program returns (logits, mean of the hidden states, normalized to length 1)."""
    module = Bert(config, (head,), labels, HEADS[head].pooler, uses_unrolled_layers())

    def run(params, batch):
        outputs = module.apply({"params": params}, batch)
        return outputs[head], pool(outputs["hidden"], batch["attention_mask"])

    return run


@program
def last_hidden_states(config: EncoderConfig):
    encoder = Encoder(config, uses_unrolled_layers())

    def run(params, batch):
        return encoder.apply({"params": params["encoder"]}, batch).astype("float32")

    return run


@program
def layer_states(config: EncoderConfig, layers: tuple[int, ...]):
    """The program returns states [B, layers, L, D]; layer 0 is the embeddings.

    The last layer has the encoder's final normalization, if the encoder has one.
    """

    def run(params, batch):
        last, states = run_with_intermediates(config, STATES, params, batch)
        states = [*jax.tree.leaves(states)[: config.num_hidden_layers], last]
        return jnp.stack([states[layer] for layer in layers], axis=1).astype("float32")

    return run


@program
def attention_weights(config: EncoderConfig, layers: tuple[int, ...]):
    """The program returns attention weights [B, layers, H, L, L]; layer 0 is the first layer after the embeddings."""

    def run(params, batch):
        _, kept = run_with_intermediates(config, WEIGHTS, params, batch)
        # The layers of a group share parameters and are called in sequence.
        of_groups = [jax.tree.leaves(kept[f"layers_{group}"]) for group in range(config.groups) if kept]
        weights = [leaf for leaves in of_groups for leaf in leaves]
        if len(weights) != config.num_hidden_layers:
            raise BertJaxError(f"the layers of block {config.block} keep no attention weights")
        return jnp.stack([weights[layer] for layer in layers], axis=1).astype("float32")

    return run


def run_with_intermediates(config: EncoderConfig, collection: str, params: dict, batch: dict):
    """Return (hidden states, the values of the collection that the layers kept)."""
    of_encoder = params["encoder"] if uses_unrolled_layers() else unroll_layers(params["encoder"])
    hidden, kept = Encoder(config, unrolled=True).apply({"params": of_encoder}, batch, mutable=collection)
    return hidden, kept.get(collection, {})


@program
def pooled_states(config: EncoderConfig, pooling: str, normalize: bool, projection: Projection | None = None):
    def run(params, batch):
        if pooling == POOLER:
            pooled = Bert(config, unrolled=uses_unrolled_layers()).apply({"params": params}, batch)["pooled"]
            return pooled.astype("float32")
        hidden = Encoder(config, uses_unrolled_layers()).apply({"params": params["encoder"]}, batch)
        if projection is None:
            return pool(hidden, batch["attention_mask"], pooling, normalize)
        vectors = pool(hidden, batch["attention_mask"], pooling, False)
        return project(vectors, params[PROJECTION]["dense"], projection.activation)

    return run


@program
def mask_fillings(config: EncoderConfig, top: int):
    """The program returns (probabilities, ids) of the `top` tokens at each target position."""
    module = Bert(config, ("mlm",), 0, HEADS["mlm"].pooler, uses_unrolled_layers())

    def run(params, batch):
        logits = module.apply({"params": params}, batch)["mlm"]
        return jax.lax.top_k(jax.nn.softmax(logits.astype(jnp.float32)), top)

    return run


@program
def log_likelihoods(config: EncoderConfig):
    """The program returns the log probability of each of the `targets` at its position, [B, K]."""
    module = Bert(config, ("mlm",), 0, HEADS["mlm"].pooler, uses_unrolled_layers())

    def run(params, batch):
        logits = module.apply({"params": params}, batch)["mlm"].astype(jnp.float32)
        picked = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
        return picked - jax.nn.logsumexp(logits, axis=-1)

    return run
