"""Heads: what is read off the hidden states. A head knows nothing of the encoder that made them.

Whoever adds a head adds it to `HEADS`, and its published names to the `heads` of the families that have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import ACTIVATIONS, Dense, initial, initial_sum, norm
from bert_jax.models.product import product

SMALL = 1e-12
PADDED = jnp.finfo(jnp.float32).min  # the logit of a padded vocabulary entry: it can neither win nor weigh


class Pooler(nn.Module):
    """[CLS] or mean states [B, ..., D] -> pooled ones, [B, ..., D]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, states, batch, train: bool):
        c = self.config
        if c.pooler.dropout:
            states = Dropout(c.head_dropout)(states, batch.get("rows"), train)
        states = ACTIVATIONS[c.pooler.activation](dense_of_head(c, c.hidden_size)(states))
        return norm(c)(states) if c.pooler.norm else states


class Transform(nn.Module):
    """Hidden states [B, L, D] -> what taggers and answer finders read of some families, [B, L, D]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, hidden):
        c = self.config
        activation = ACTIVATIONS[c.mlm_activation or c.activation]
        return norm(c)(activation(dense_of_head(c, c.hidden_size)(hidden)))


def dense_of_head(c: EncoderConfig, width: int, name: str = "dense"):
    return Dense(c, (width,), initial=initial_sum, bias=c.head_bias, name=name)


class MaskedLM(nn.Module):
    """Hidden states -> logits over the vocabulary, [B, K, V] at `target_positions [B, K]` or [B, L, V] without them."""

    config: EncoderConfig
    labels: int

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c = self.config
        if "target_positions" in batch:
            hidden = jnp.take_along_axis(hidden, batch["target_positions"][..., None], axis=1)
        activation = ACTIVATIONS[c.mlm_activation or c.activation]
        hidden = norm(c)(activation(dense_of_head(c, c.embedding_width, "transform")(hidden)))
        if not c.tied_decoder:
            words = self.param("decoder", initial_sum(c), words.shape)
        bias = self.param("bias", nn.initializers.zeros, (words.shape[0],))
        logits = product("bkd,vd->bkv", hidden, words, c.computed_dtype, "float32")
        return jnp.where(jnp.arange(words.shape[0]) < c.vocab_size, logits + bias, PADDED)


class Linear(nn.Module):
    """States [..., D] -> float32 logits [..., labels], with dropout before where `rate` says so."""

    config: EncoderConfig
    labels: int
    rate: float = 0.0
    initial: Callable = initial

    @nn.compact
    def __call__(self, states, batch, words, train: bool):
        states = Dropout(self.rate)(states, batch.get("rows"), train)
        return Dense(self.config, (self.labels,), initial=self.initial, dtype="float32", name="dense")(states)


class ReplacedTokens(nn.Module):
    """Hidden states [B, L, D] -> float32 logits [B, L], above 0 where a token looks replaced."""

    config: EncoderConfig
    labels: int

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c = self.config
        hidden = ACTIVATIONS[c.activation](Dense(c, (c.hidden_size,), name="transform")(hidden))
        return Dense(c, (1,), dtype="float32", name="dense")(hidden)[..., 0]


class ReplacedInContext(nn.Module):
    """Likewise, of DeBERTa-v3: each state is read with the [CLS] state of its text."""

    config: EncoderConfig
    labels: int

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c, of_text = self.config, first_tokens(hidden, batch)
        if "packs" in batch:
            number = jnp.maximum(batch["packs"] - 1, 0)
            of_token = jnp.take_along_axis(of_text, number[..., None], axis=1)
        else:
            of_token = of_text[:, None]
        hidden = Dense(c, (c.hidden_size,), name="transform")(norm(c)(hidden + of_token))
        return Dense(c, (1,), dtype="float32", name="dense")(ACTIVATIONS[c.activation](hidden))[..., 0]


def next_sentence(config, labels, name=None):
    return Linear(config, 2, name=name)


def sentence_order(config, labels, name=None):
    return Linear(config, 2, config.head_dropout, name=name)  # logits of kept and of swapped


def untruncated(config: EncoderConfig):
    """Initial values of heads that a fine-tuning adds. Their spread sets how fast a short fine-tuning learns: with
    BERT's truncated normal, an eighth narrower, tagging was 2.5 points of F1 behind after 190 steps."""
    if config.scaled_init:
        return nn.initializers.truncated_normal(config.hidden_size**-0.5)
    return nn.initializers.normal(config.init_stddev)


def classifier(config, labels, name=None):
    return Linear(config, labels, config.head_dropout, untruncated, name=name)


def tagger(config, labels, name=None):
    rate = config.head_dropout if config.tag_dropout == -1 else config.tag_dropout
    return Linear(config, labels, rate, untruncated, name=name)


def answer_span(config, labels, name=None):
    # Logits of the answer's start and of its end.
    return Linear(config, 2, config.answer_dropout, untruncated, name=name)


@dataclass(frozen=True)
class Head:
    build: Callable[..., nn.Module]
    architecture: str  # what Hugging Face adds to the family's name: BertForMaskedLM
    # A state for each token, or one for each text: the pooler's, or the direction of its tokens' mean or of [CLS].
    reads: Literal["tokens", "pooler", "mean", "cls"] = "tokens"
    compares: bool = (
        False  # reads the difference of the vectors of a pair's texts, which are encoded separately
    )
    labels: bool = False  # has an output for each label of the data
    decoded: bool = False  # reads the states of the enhanced mask decoder, where the encoder has one
    transformed: bool = False  # of families with a transform, reads its states
    dropout: str = "head_dropout"  # the config's rate before it

    def width(self, config: EncoderConfig) -> int:
        """Of a state that it reads."""
        return config.hidden_size * (2 if self.compares else 1)

    @property
    def each_token(self) -> bool:
        return self.reads == "tokens"

    @property
    def pooler(self) -> bool:
        return self.reads == "pooler"


HEADS = {
    "mlm": Head(MaskedLM, "ForMaskedLM", decoded=True),
    "nsp": Head(next_sentence, "ForNextSentencePrediction", reads="pooler"),
    "classify": Head(classifier, "ForSequenceClassification", reads="pooler", labels=True),
    # On the vectors of an embedder, which has no use for the pooler.
    "classify_mean": Head(classifier, "ForMeanDirectionClassification", reads="mean", labels=True),
    "classify_cls": Head(classifier, "ForFirstTokenDirectionClassification", reads="cls", labels=True),
    "compare_mean": Head(classifier, "ForMeanComparison", reads="mean", compares=True, labels=True),
    "compare_cls": Head(classifier, "ForFirstTokenComparison", reads="cls", compares=True, labels=True),
    "tag": Head(tagger, "ForTokenClassification", labels=True, transformed=True, dropout="tag_dropout"),
    "answer": Head(answer_span, "ForQuestionAnswering", transformed=True, dropout="answer_dropout"),
    "replaced": Head(ReplacedTokens, "ForPreTraining"),
    "replaced_in_context": Head(ReplacedInContext, "ForPreTraining"),
    "sop": Head(sentence_order, "ForSentenceOrderPrediction", reads="pooler"),
}


class Bert(nn.Module):
    """An encoder with its heads: batch -> {"hidden": [B, L, D], "pooled": [B, D], and each head's logits by name}.

    With `packs`, whatever is read at [CLS] has a place for each pack: [B, P, ...].
    """

    config: EncoderConfig
    heads: tuple[str, ...] = ()
    labels: int = 0  # of the heads whose number of outputs is the data's to say
    pooler: bool = True
    unrolled: bool = False  # as in Encoder

    @nn.compact
    def __call__(self, batch, train: bool = False):
        encoder = Encoder(self.config, self.unrolled, name="encoder")
        decodes = self.config.positions == "decoder" and any(HEADS[name].decoded for name in self.heads)
        outputs = {}
        if decodes:
            hidden, outputs["decoded"] = encoder(batch, train, decodes=True)
        else:
            hidden = encoder(batch, train)
        outputs["hidden"] = hidden
        if self.pooler:
            read = means if self.config.pooler.mean else first_tokens
            outputs["pooled"] = Pooler(self.config, name="pooler")(read(hidden, batch), batch, train)
        if has_transform(self.config, self.heads):
            outputs["transformed"] = Transform(self.config, name="transform")(hidden)
        for name in self.heads:
            head = HEADS[name]
            states = states_read(head, outputs, batch)
            if head.decoded:
                states = outputs.get("decoded", hidden)
            if head.transformed:
                states = outputs.get("transformed", hidden)
            module = head.build(self.config, self.labels, name=name)
            outputs[name] = module(states, batch, encoder.embeddings.words, train)
        return outputs


def states_read(head: Head, outputs: dict, batch: dict):
    """The states that a head reads, of tokens, of texts, or of pairs."""
    hidden = outputs["hidden"]
    if head.reads in ("mean", "cls"):
        vectors = directions((means if head.reads == "mean" else first_tokens)(hidden, batch))
        return differences(vectors) if head.compares else vectors
    return outputs["pooled"] if head.pooler else hidden


def directions(states):
    """The states [..., D] with a mean square of 1. Embedders compare texts by directions; with few labels a head that
    reads only these is right more often."""
    scaled = states.astype(jnp.float32)
    scaled *= jax.lax.rsqrt(jnp.square(scaled).mean(-1, keepdims=True) + SMALL)
    return scaled.astype(states.dtype)


def differences(vectors):
    """The differences of the vectors [B, 2 P, D] of P pairs, squared and signed: [B, P, 2 D], or [B, 2 D] where P is 1.
    The squares tell how similar the texts are, the signs which of them is which."""
    if vectors.ndim == 2:  # single texts, as initial values are made with: each is paired with itself
        vectors = jnp.stack([vectors, vectors], axis=1)
    first, second = vectors[:, ::2], vectors[:, 1::2]
    apart = first - second
    read = jnp.concatenate([apart**2, apart], axis=-1)
    return read if read.shape[1] > 1 else read[:, 0]


def has_transform(config: EncoderConfig, heads: tuple[str, ...]) -> bool:
    return config.transform and any(HEADS[name].transformed for name in heads)


def means(hidden, batch):
    """The mean state of each text: [B, D], or [B, P, D] where texts are packed."""
    of_text = batch["mask"][:, None]
    if "packs" in batch:
        numbers = 1 + jnp.arange(batch["cls_positions"].shape[1])
        of_text = of_text * (batch["packs"][:, None] == numbers[:, None])
    weight = of_text.astype(jnp.float32)
    weight = weight / jnp.maximum(weight.sum(-1, keepdims=True), 1)
    mean = jnp.einsum("bpl,bld->bpd", weight, hidden.astype(jnp.float32)).astype(hidden.dtype)
    return mean if "packs" in batch else mean[:, 0]


def first_tokens(hidden, batch):
    """The [CLS] states: [B, D], or [B, P, D] where sequences are packed."""
    if "packs" not in batch:
        return hidden[:, 0]
    return jnp.take_along_axis(hidden, batch["cls_positions"][..., None], axis=1)
