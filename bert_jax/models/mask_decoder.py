"""DeBERTa's enhanced mask decoder, which gives the masked language model the positions that embeddings leave out."""

from dataclasses import replace
from typing import Any

import flax.struct
import jax

from bert_jax.models.context import Context
from bert_jax.models.layer_stack import REMAT, Carry, Layer, params_of_group


@flax.struct.dataclass
class WithPenultimate(Carry):
    """The hidden states, and those before the previous layer."""

    hidden: Any  # [B, L, D]
    penultimate: Any  # [B, L, D]

    def after_layer(self, block, context: Context, layer_type, train: bool) -> "WithPenultimate":
        return WithPenultimate(block(self.hidden, context, layer_type, train), self.hidden)


def decode_masked(encoder, penultimate, batch, context: Context, train: bool):
    """Return the states of the decoder: it applies the last layer twice more.

    Keys and values come from the states before that layer. Queries come from the same states plus their position
    embeddings, then from the decoder's own first output.
    """
    if encoder.is_initializing():
        return penultimate
    context = replace(context, convolved=None)
    positions = encoder.embeddings.position_embeddings(batch)
    query_states = (penultimate + positions).astype(penultimate.dtype)
    for _ in range(2):
        query_states = run_last_layer(encoder, penultimate, context, train, query_states)
    return query_states


def run_last_layer(encoder, hidden, context: Context, train: bool, query_states):
    if encoder.unrolled:
        return encoder.layers[-1].decode(hidden, context, train, query_states)
    params = params_of_group(encoder, -1)
    rngs = {"dropout": encoder.make_rng("dropout")} if encoder.has_rng("dropout") else {}
    layer = Layer(encoder.config, parent=None)

    def run(params, hidden, context, query_states, rngs):
        return layer.apply(
            {"params": params}, hidden, context, train, query_states, method="decode", rngs=rngs
        )

    remat = jax.checkpoint(run, policy=REMAT[encoder.config.remat])
    return remat(params, hidden, context, query_states, rngs)
