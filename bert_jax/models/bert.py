"""The whole model: an encoder with its heads, which read hidden states and know nothing of how they were computed."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.dropout import Dropout
from bert_jax.models.einsum import mixed_einsum
from bert_jax.models.encoder import TransformerEncoder, dummy_batch
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.heads import HEADS, Head, has_transform
from bert_jax.models.layers import ACTIVATIONS, Dense, default_initializer, norm, residual_initializer
from bert_jax.models.pooling import pool_texts

SMALL = 1e-12
PADDED = jnp.finfo(jnp.float32).min  # the logit of a padded vocabulary entry, which gets no probability


class Bert(nn.Module):
    """An encoder with heads: batch -> {"hidden": [B, L, D], "pooled": [B, D], and the logits of each head by name}.

    If the batch has `segment_ids`, outputs for whole texts have an axis of sequences: [B, P, ...].
    """

    config: EncoderConfig
    heads: tuple[str, ...] = ()
    labels: int = 0  # the number of labels in the data, for heads with an output for each label
    pooler: bool = True
    unrolled: bool = False  # as in Encoder

    @nn.compact
    def __call__(self, batch, train: bool = False, hidden=None):
        """Return the outputs; if the hidden states are given, those of the heads alone, without a masked LM's."""
        encoder = TransformerEncoder(self.config, self.unrolled, name="encoder")
        decodes = self.config.positions == "decoder" and any(HEADS[name].decoded for name in self.heads)
        outputs = {}
        if hidden is None and decodes:
            hidden, outputs["decoded"] = encoder(batch, train, decodes=True)
        elif hidden is None:
            hidden = encoder(batch, train)
        outputs["hidden"] = hidden
        if self.pooler:
            pool = mean_states if self.config.pooler.mean else cls_states
            pooler = Pooler(self.config, name="pooler")
            if self.config.pooler.late:
                outputs["pooled"] = pool(pooler(hidden, batch, train), batch)
            else:
                outputs["pooled"] = pooler(pool(hidden, batch), batch, train)
        if has_transform(self.config, self.heads):
            outputs["transformed"] = Transform(self.config, name="transform")(hidden)
        for name in self.heads:
            head = HEADS[name]
            states = states_read(head, outputs, batch)
            if head.decoded:
                states = outputs.get("decoded", hidden)
            if head.transformed:
                states = outputs.get("transformed", hidden)
            module = HEAD_MODULES[name](self.config, self.labels, name=name)
            words = encoder.embeddings.words if head.decoded else None
            outputs[name] = module(states, batch, words, train)
        return outputs


class Pooler(nn.Module):
    """The pooler: states of texts or, if it is late, of tokens [B, ..., D] -> states [B, ..., D]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, states, batch, train: bool):
        c = self.config
        if c.pooler.dropout:
            states = Dropout(c.head_dropout)(states, batch.get("rows"), train)
        states = ACTIVATIONS[c.pooler.activation](dense_of_head(c, c.hidden_size)(states))
        return norm(c)(states) if c.pooler.norm else states


class Transform(nn.Module):
    """Hidden states [B, L, D] -> the states [B, L, D] that tagging and answer heads read in some families."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        return transform(self.config, hidden, self.config.hidden_size)


def transform(c: EncoderConfig, hidden, width: int, name: str = "dense"):
    activation = ACTIVATIONS[c.mlm_activation or c.hidden_act]
    return norm(c)(activation(dense_of_head(c, width, name)(hidden)))


def dense_of_head(c: EncoderConfig, width: int, name: str = "dense"):
    return Dense(c, (width,), initial=residual_initializer, bias=c.head_bias, name=name)


class MaskedLMHead(nn.Module):
    """Hidden states -> logits over the vocabulary, [B, K, V] at `target_positions [B, K]` or [B, L, V] without them.

    Without `words`, the result is the states whose products with the vocabulary, plus the bias, are the logits."""

    config: EncoderConfig
    labels: int

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c = self.config
        if "target_positions" in batch:
            hidden = jnp.take_along_axis(hidden, batch["target_positions"][..., None], axis=1)
        if c.mlm_transform:
            hidden = transform(c, hidden, c.embedding_width, "transform")
        if words is None:
            return hidden
        if not c.tie_word_embeddings:
            words = self.param("decoder", residual_initializer(c), words.shape)
        logits = mixed_einsum("bkd,vd->bkv", hidden, words, c.computed_dtype, "float32")
        if c.mlm_transform:
            logits += self.param("bias", nn.initializers.zeros, (words.shape[0],))
        return jnp.where(jnp.arange(words.shape[0]) < c.vocab_size, logits, PADDED)


class LinearHead(nn.Module):
    """States [..., D] -> float32 logits [..., labels], after dropout at `rate`."""

    config: EncoderConfig
    labels: int
    rate: float = 0.0
    initial: Callable = default_initializer

    @nn.compact
    def __call__(self, states, batch, words, train: bool):
        states = Dropout(self.rate)(states, batch.get("rows"), train)
        return Dense(self.config, (self.labels,), initial=self.initial, dtype="float32", name="dense")(states)


class ReplacedTokenHead(nn.Module):
    """Hidden states [B, L, D] -> float32 logits [B, L], above 0 where a token looks replaced.

    DeBERTa-v3's head adds the [CLS] state of the text to the state of each token (`in_context`).
    """

    config: EncoderConfig
    labels: int
    in_context: bool = False

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c = self.config
        if self.in_context:
            text_states = cls_states(hidden, batch)
            if "segment_ids" in batch:
                number = jnp.maximum(batch["segment_ids"] - 1, 0)
                token_states = jnp.take_along_axis(text_states, number[..., None], axis=1)
            else:
                token_states = text_states[:, None]
            hidden = norm(c)(hidden + token_states)
        hidden = ACTIVATIONS[c.hidden_act](Dense(c, (c.hidden_size,), name="transform")(hidden))
        return Dense(c, (1,), dtype="float32", name="dense")(hidden)[..., 0]


def initial_head(config: EncoderConfig):
    """Return the initial values of heads that fine-tuning adds.

    Their spread matters to short fine-tuning: with BERT's truncated normal, which is an eighth narrower, tagging was
    2.5 points of F1 behind after 190 steps.
    """
    if config.scaled_init:
        return nn.initializers.truncated_normal(config.hidden_size**-0.5)
    return nn.initializers.normal(config.initializer_range)


def classifier(config, labels, name=None):
    return LinearHead(config, labels, config.head_dropout, initial_head, name=name)


def tagger(config, labels, name=None):
    rate = config.head_dropout if config.tag_dropout == -1 else config.tag_dropout
    return LinearHead(config, labels, rate, initial_head, name=name)


# Functions (config, labels, name) -> module, of the heads in HEADS.
HEAD_MODULES: dict[str, Callable[..., nn.Module]] = {
    "mlm": MaskedLMHead,
    "nsp": lambda config, labels, name=None: LinearHead(config, 2, name=name),
    **dict.fromkeys(("classify", "classify_mean", "classify_cls", "compare_mean", "compare_cls"), classifier),
    "tag": tagger,
    "answer": lambda config, labels, name=None: LinearHead(  # of its start and end
        config, 2, config.answer_dropout, initial_head, name=name
    ),
    "replaced": ReplacedTokenHead,
    "replaced_in_context": partial(ReplacedTokenHead, in_context=True),
    "sop": lambda config, labels, name=None: LinearHead(  # of kept and swapped
        config, 2, config.head_dropout, name=name
    ),
}


def states_read(head: Head, outputs: dict, batch: dict):
    """Return the states that a head reads: those of tokens, texts or pairs."""
    hidden = outputs["hidden"]
    if head.reads in ("mean", "cls"):
        vectors = scale_to_directions((mean_states if head.reads == "mean" else cls_states)(hidden, batch))
        return pair_differences(vectors) if head.compares else vectors
    return outputs["pooled"] if head.pooler else hidden


def scale_to_directions(states):
    """Scale states [..., D] to a mean square of 1.

    Embedders compare texts by direction. With few labels, a head that reads only directions is right more often.
    """
    scaled = states.astype(jnp.float32)
    scaled *= jax.lax.rsqrt(jnp.square(scaled).mean(-1, keepdims=True) + SMALL)
    return scaled.astype(states.dtype)


def pair_differences(vectors):
    """Return the squared and the signed differences of P pairs of vectors [B, 2 P, D]: [B, P, 2 D], or [B, 2 D] if P
    is 1. The squares show how similar the texts are, and the signs which text is the first."""
    if vectors.ndim == 2:  # single texts, as in initialisation: pair each with itself
        vectors = jnp.stack([vectors, vectors], axis=1)
    first, second = vectors[:, ::2], vectors[:, 1::2]
    difference = first - second
    read = jnp.concatenate([difference**2, difference], axis=-1)
    return read if read.shape[1] > 1 else read[:, 0]


def mean_states(hidden, batch):
    """Return the mean state of each text: [B, D], or [B, P, D] if texts are packed."""
    mean = pool_texts(hidden, batch, "mean", precision=None).astype(hidden.dtype)
    return mean if "segment_ids" in batch else mean[:, 0]


def cls_states(hidden, batch):
    """Return the [CLS] states: [B, D], or [B, P, D] if texts are packed."""
    if "segment_ids" not in batch:
        return hidden[:, 0]
    return jnp.take_along_axis(hidden, batch["cls_positions"][..., None], axis=1)


@partial(jax.jit, static_argnums=0)
def init_params(module: nn.Module, key) -> dict:
    """Return a module's initial parameters. Jitted to be traced only once: a run asks for their shapes many times."""
    return module.init(key, dummy_batch())["params"]


def init_dense(key, inputs: int, width: int, bias: bool) -> dict:
    """Return the initial parameters of a dense layer."""
    return nn.Dense(width, use_bias=bias).init(key, jnp.zeros((1, inputs)))["params"]
