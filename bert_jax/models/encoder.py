"""BERT's encoder, in the order in which it computes: embeddings, then layers.

    hidden = embeddings(input_ids, token_type_ids)      # [B, L] -> [B, L, D]
    for attention, feed_forward in layers:              # 12 of them in BERT-base
        hidden = norm(hidden + attention(hidden))
        hidden = norm(hidden + feed_forward(hidden))
    logits = heads["mlm"](hidden)                       # or "nsp", "classify", "tag", "answer" ...

B rows of L tokens become hidden states of D numbers each, by a pure function of (params, batch, rng). The two lines of
the loop are BERT's block, blocks/post_norm.py; blocks/ has those of other families, and layers.py what they consist of.
heads.py names the heads, and bert.py has their modules and `Bert`, the encoder with its heads.

What is not needed to understand BERT stands elsewhere:

layer_stack.py    all layers as one scan, or one after another
layer_states.py   the states and the attention of single layers
mask_decoder.py   DeBERTa's decoder for masked tokens
"""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import rotary
from bert_jax.models.context import Context
from bert_jax.models.disentangled_attention import Distances
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.layer_stack import make_layers, normalizes_last, run_layers
from bert_jax.models.layers import STATES, Convolution, Dense, default_initializer, is_requested, norm
from bert_jax.models.mask_decoder import WithPenultimate, decode_masked
from bert_jax.models.relative_terms import alibi_terms
from bert_jax.models.sinusoids import sinusoidal_table
from bert_jax.text.tokenizer import ENCODER_INPUTS


class Embeddings(nn.Module):
    """Token + position + segment embeddings, normalised and, if needed, projected to the width of the layers."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        self.words = self.param("words", default_initializer(c), (c.padded_vocab, c.embedding_width))
        if c.positions in ("learned", "decoder"):
            self.positions = self.param(
                "positions", default_initializer(c), (c.max_position_embeddings, c.embedding_width)
            )
        elif c.positions == "sinusoidal":
            self.positions = sinusoidal_table(c.max_position_embeddings, c.embedding_width)
        if c.type_vocab_size:
            self.token_types = self.param(
                "token_types", default_initializer(c), (c.type_vocab_size, c.embedding_width)
            )
        self.norm = norm(c, name=None) if c.embedding_norm else None
        self.dropout = Dropout(c.hidden_dropout_prob)
        if c.embedding_size:
            self.projection = Dense(c, (c.hidden_size,))

    def __call__(self, batch, train: bool):
        c = self.config
        # take() turns an id out of range into NaN, which later checks detect; indexing would silently clamp it.
        x = jnp.take(self.words, batch["input_ids"], axis=0)
        if c.positions in ("learned", "sinusoidal"):
            x += self.position_embeddings(batch)
        if c.type_vocab_size:
            x += jnp.take(self.token_types, batch["token_type_ids"], axis=0)
        x = x.astype(c.computed_dtype) if self.norm is None else self.norm(x)
        x = self.dropout(x, batch.get("rows"), train)
        return self.projection(x) if c.embedding_size else x

    def position_embeddings(self, batch):
        """Return the position embedding of each token."""
        return jnp.take(self.positions, token_positions(batch, self.config.max_position_embeddings), axis=0)


def token_positions(batch, count: int):
    """Return positions 0, 1, 2 ... along each row, from 0 in each sequence; on padding they stay below `count`.

    >>> batch = {"input_ids": jnp.zeros((1, 7)), "attention_mask": jnp.array([[1, 1, 1, 1, 0, 0, 0]])}
    >>> token_positions(batch | {"segment_ids": jnp.array([[1, 1, 2, 2, 0, 0, 0]])}, count=2).tolist()
    [[0, 1, 0, 1, 0, 1, 1]]
    """
    position = jnp.broadcast_to(jnp.arange(batch["input_ids"].shape[1]), batch["input_ids"].shape)
    if "segment_ids" in batch:
        segment_ids = batch["segment_ids"]
        begins = jnp.concatenate(
            [jnp.ones_like(segment_ids[:, :1], bool), segment_ids[:, 1:] != segment_ids[:, :-1]], axis=1
        )
        position -= jax.lax.cummax(jnp.where(begins, position, 0), axis=1)
    # Beyond the table the look-up gives NaN. That is right for a text that is too long, but not for padding.
    return jnp.where(batch["attention_mask"] > 0, position, jnp.minimum(position, count - 1))


class TransformerEncoder(nn.Module):
    """Batch -> hidden states [B, L, D]. If `unrolled`, it takes parameters as `unroll_layers` returns them."""

    config: EncoderConfig
    unrolled: bool = False

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.layers = make_layers(c, self.unrolled)
        self.final_norm = norm(c, name=None) if normalizes_last(c) else None
        if c.relative.terms:
            self.distances = Distances(c)
        if c.convolution.width:
            self.convolution = Convolution(c)

    def __call__(self, batch, train: bool = False, decodes: bool = False):
        """Return the hidden states; if `decodes`, a pair of them and the states of the enhanced mask decoder."""
        hidden, context = self.embed_batch(batch, train)
        if is_requested(self, STATES):
            self.sow(STATES, "kept", hidden)
        if decodes:
            carry = run_layers(self, WithPenultimate(hidden, hidden), context, train)
            return carry.hidden, decode_masked(self, carry.penultimate, batch, context, train)
        hidden = run_layers(self, hidden, context, train)
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def embed_batch(self, batch, train: bool):
        """Return (embeddings, context): the context is what all layers share, such as the mask of real tokens."""
        c = self.config
        context = Context.from_batch(batch, rotary.rotary_tables(c, batch["input_ids"].shape[1]))
        hidden = self.embeddings(batch, train)
        # Some families tell layers of distances between tokens, or add a convolution.
        if c.relative.terms:
            context = replace(context, relative=self.distances(hidden.shape[1]))
        elif c.positions == "alibi":
            context = replace(context, relative=alibi_terms(c.num_attention_heads, hidden.shape[1]))
        if c.convolution.width:
            context = replace(context, convolved=self.convolution(hidden, context, train))
        return hidden, context


def dummy_batch() -> dict[str, np.ndarray]:
    """Return a batch of one row with one token, for making initial values and shapes."""
    return {name: np.zeros((1, 1), np.int32) for name in ENCODER_INPUTS}
