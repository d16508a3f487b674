"""Heads: what is read off the hidden states. A head knows nothing of the encoder that made them.

Whoever adds a head adds it to `HEADS`, and its published names to the `heads` of the families that have it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import ACTIVATIONS, Dense, initial, norm
from bert_jax.models.product import product

PADDED = jnp.finfo(jnp.float32).min  # the logit of a padded vocabulary entry: it can neither win nor weigh


class Pooler(nn.Module):
    """[CLS] states [..., D] -> tanh of a dense layer, [..., D]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, cls):
        return jnp.tanh(Dense(self.config, (self.config.hidden_size,), name="dense")(cls))


class MaskedLM(nn.Module):
    """Hidden states -> logits over the vocabulary, [B, K, V] at `target_positions [B, K]` or [B, L, V] without them."""

    config: EncoderConfig
    labels: int

    @nn.compact
    def __call__(self, hidden, batch, words, train: bool):
        c = self.config
        if "target_positions" in batch:
            hidden = jnp.take_along_axis(hidden, batch["target_positions"][..., None], axis=1)
        hidden = norm(c)(ACTIVATIONS[c.activation](Dense(c, (c.hidden_size,), name="transform")(hidden)))
        if not c.tied_decoder:
            words = self.param("decoder", initial(c), words.shape)
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


def next_sentence(config, labels, name=None):
    return Linear(config, 2, name=name)


def untruncated(config: EncoderConfig):
    """Initial values of heads that a fine-tuning adds. Their spread sets how fast a short fine-tuning learns: with
    BERT's truncated normal, an eighth narrower, tagging was 2.5 points of F1 behind after 190 steps."""
    return nn.initializers.normal(config.init_stddev)


def classifier(config, labels, name=None):
    return Linear(config, labels, config.head_dropout, untruncated, name=name)


def answer_span(config, labels, name=None):
    return Linear(config, 2, initial=untruncated, name=name)  # logits of the answer's start and of its end


@dataclass(frozen=True)
class Head:
    build: Callable[..., nn.Module]
    architecture: str  # what Hugging Face adds to the family's name: BertForMaskedLM
    pooled: bool = False  # reads the pooled [CLS] state; otherwise every token's
    labels: bool = False  # has an output for each label of the data


HEADS = {
    "mlm": Head(MaskedLM, "ForMaskedLM"),
    "nsp": Head(next_sentence, "ForNextSentencePrediction", pooled=True),
    "classify": Head(classifier, "ForSequenceClassification", pooled=True, labels=True),
    "tag": Head(classifier, "ForTokenClassification", labels=True),
    "answer": Head(answer_span, "ForQuestionAnswering"),
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
        hidden = encoder(batch, train)
        outputs = {"hidden": hidden}
        if self.pooler:
            outputs["pooled"] = Pooler(self.config, name="pooler")(first_tokens(hidden, batch))
        for name in self.heads:
            head = HEADS[name]
            states = outputs["pooled"] if head.pooled else hidden
            module = head.build(self.config, self.labels, name=name)
            outputs[name] = module(states, batch, encoder.embeddings.words, train)
        return outputs


def first_tokens(hidden, batch):
    """The [CLS] states: [B, D], or [B, P, D] where sequences are packed."""
    if "packs" not in batch:
        return hidden[:, 0]
    return jnp.take_along_axis(hidden, batch["cls_positions"][..., None], axis=1)
