"""What a person types in a notebook: `model = bert_jax.load(path)`."""

import functools
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from bert_jax.errors import BertJaxError, nearest
from bert_jax.hub import directory as hub
from bert_jax.hub import sentence_transformers
from bert_jax.hub.oddities import check_tokenizer
from bert_jax.hub.sentence_transformers import Embedder
from bert_jax.inference.answer import answer
from bert_jax.inference.batching import batches
from bert_jax.inference.classify import classify
from bert_jax.inference.embed import embed
from bert_jax.inference.fill_mask import fill_mask
from bert_jax.inference.tag import tag, tag_words
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import Bert
from bert_jax.models.pooling import pool
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions.calibration import Calibration
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.tokenizer import Encoding, Text, Tokenizer

POOLINGS = ("mean", "cls", "pooler")


def load(
    path,
    *,
    head: str | None = None,
    labels: Sequence[str] = (),
    seed: int = 0,
    tokenizer: bool = True,
    **computed,
) -> "Model":
    """Opens a Hugging Face model directory of BERT, RoBERTa or XLM-R.

    `head` asks for a new head on its encoder ("classify", "tag", "answer", ...), with `labels` where it has them, its
    values made from `seed`. `computed` are EncoderConfig's fields on how to compute:
    dtype, attention, remat, vocab_multiple. With `tokenizer=False` the directory needs none.
    """
    layout, tensors = hub.survey(path, **computed)
    if head is not None:
        layout = layout.with_head(head, labels)
    opened = open_tokenizer(hub.existing(path)) if tokenizer else None
    if opened is not None:
        for note in check_tokenizer(opened, layout, path):
            warnings.warn(note, stacklevel=2)
    params = hub.read_params(layout, tensors, path, new_head=head)
    if head is not None:
        params = {**fresh(layout, seed, set(layout.module_names) - set(params)), **params}
    existing = hub.existing(path)
    calibration = calibrations.read(existing, layout.labels) if head is None else calibrations.NONE
    return Model(layout, params, opened, sentence_transformers.read(existing), calibration)


def fresh(layout: hub.Layout, seed: int, names: set[str]) -> dict:
    """Initial values for the named parts of a model."""
    return jax.jit(lambda key: layout.init(key, names))(jax.random.key(seed)) if names else {}


class Model:
    """An encoder with its heads, parameters and tokenizer.

    For those who write JAX: `model.module.apply({"params": model.params}, batch)`. For those who do not:
    `hidden_states`, `pooled`, `save`, and the answers below. An answer takes one text, a list, or any iterable, of
    which it reads no more than it needs; it gives one result, a list, or an iterator.
    """

    embed = embed
    fill_mask = fill_mask
    classify = classify
    tag = tag
    tag_words = tag_words
    answer = answer

    def __init__(
        self, layout: hub.Layout, params: dict, tokenizer: Tokenizer | None, embedder: Embedder | None = None,
        calibration: Calibration = calibrations.NONE,
    ):  # fmt: skip
        self.layout = layout
        self.params = jax.device_put(params)
        self._tokenizer = tokenizer
        self.is_embedder = embedder is not None
        self.embedder = embedder or Embedder()
        self.calibration = calibration

    def __repr__(self) -> str:
        c, heads = self.config, ", ".join(self.layout.heads) or "none"
        return f"<{self.layout.family.model_type}: {c.layers} layers of {c.hidden_size}, heads: {heads}>"

    @property
    def config(self) -> EncoderConfig:
        return self.layout.config

    @property
    def module(self) -> Bert:
        return self.layout.module

    @property
    def labels(self) -> tuple[str, ...]:
        return self.layout.labels

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise BertJaxError("this model was loaded without its tokenizer; load it without tokenizer=False")
        return self._tokenizer

    def hidden_states(self, texts: Sequence[Text]) -> list[np.ndarray]:
        """For each text or pair, in order, the last hidden states [length, D], special tokens included.

        >>> [states.shape for states in model.hidden_states(["the cat", ("the cat", "the mat")])]
        [(4, 8), (7, 8)]
        """
        encodings = self.encode(texts)
        states = self.run(encodings, encoding_program(self.config))
        return [hidden[: len(encoding.ids)] for hidden, encoding in zip(states, encodings, strict=True)]

    def pooled(self, texts: Sequence[Text], pooling: str = "mean", normalize: bool = True) -> np.ndarray:
        """One vector a text, [N, D]: the mean of its hidden states, the [CLS] state, or BERT's own pooler.

        >>> model.pooled(["the cat", "the mat"], pooling="cls").shape
        (2, 8)
        """
        if pooling not in POOLINGS:
            raise BertJaxError(f'no pooling "{pooling}"; {nearest(pooling, POOLINGS)}')
        if pooling == "pooler" and not self.layout.pooler:
            raise BertJaxError('this model has no pooler; use pooling="mean" or "cls"')
        vectors = self.run(self.encode(texts), pooling_program(self.config, pooling, normalize))
        return np.stack(vectors) if vectors else np.zeros((0, self.config.hidden_size), np.float32)

    def save(self, path) -> None:
        """Writes a Hugging Face directory, which `transformers` and `load` open.

        An embedder also gets the files by which `sentence-transformers` opens it.
        """
        if self.is_embedder:  # first, because it may refuse
            sentence_transformers.write(path, self.embedder, self.config.hidden_size)
        hub.save(Path(path), self.layout, self.params, self._tokenizer)
        calibrations.save(path, self.calibration)

    def encode(self, texts: Sequence[Text]) -> list[Encoding]:
        """Token ids, at most `config.max_positions` a text; what is cut is said in a warning.

        >>> [model.tokenizer.tokens(encoding.ids) for encoding in model.encode(["the cats"])]
        [['[CLS]', 'the', 'cat', '##s', '[SEP]']]
        """
        if isinstance(texts, str):
            raise BertJaxError(f'a list of texts is needed, not one text: ["{texts[:20]}..."]')
        encodings = self.tokenizer.encode(texts, max_length=self.config.max_positions)
        cut = [i for i, encoding in enumerate(encodings) if encoding.dropped]
        if cut:
            warnings.warn(
                f"{len(cut)} of {len(texts)} texts are longer than {self.config.max_positions} tokens and were cut, "
                f"the first of them number {cut[0]} by {encodings[cut[0]].dropped} tokens",
                stacklevel=3,
            )
        return encodings

    def run(
        self, encodings: Sequence[Encoding], program, beside: dict[str, np.ndarray] | None = None
    ) -> list:
        """What program(params, batch) gives for each encoding, in order; `beside` are more arrays of the batch."""
        found: list = [None] * len(encodings)
        ahead: list = []  # one batch is computed while the host reads the one before it

        def read():
            rows, outputs = ahead.pop(0)
            outputs = jax.device_get(outputs)
            for row, i in enumerate(rows):
                found[i] = (
                    tuple(o[row] for o in outputs) if isinstance(outputs, list | tuple) else outputs[row]
                )

        for rows, batch in batches(encodings, self.config.max_positions, self.tokenizer.special.pad, beside):
            ahead.append((rows, program(self.params, batch)))
            if len(ahead) > 1:
                read()
        while ahead:
            read()
        return found


@functools.lru_cache(maxsize=16)
def encoding_program(config: EncoderConfig):
    encoder = Encoder(config)

    def run(params, batch):
        return encoder.apply({"params": params["encoder"]}, batch).astype("float32")

    return jax.jit(run)


@functools.lru_cache(maxsize=16)
def pooling_program(config: EncoderConfig, pooling: str, normalize: bool):
    def run(params, batch):
        if pooling == "pooler":
            return Bert(config).apply({"params": params}, batch)["pooled"].astype("float32")
        hidden = Encoder(config).apply({"params": params["encoder"]}, batch)
        return pool(hidden, batch["mask"], pooling, normalize)

    return jax.jit(run)
