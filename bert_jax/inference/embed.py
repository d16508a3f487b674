"""Embeddings: one vector for a text."""

import functools

import jax
import numpy as np

from bert_jax.errors import BertJaxError, nearest
from bert_jax.inference.streaming import Cutter, results
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.pooling import POOLINGS, pool


def embed(
    model, texts, *, prompt: str | None = None, pooling: str | None = None, normalize: bool | None = None,
    long: str = "cut",
):  # fmt: skip
    """A vector [D] for a text, an array [N, D] for a list, an iterator of vectors for any other iterable.

    Pooling, normalisation, greatest length and prompts are the directory's own where it is a sentence-transformers
    one, else the mean of the hidden states at length 1. `prompt` names one of its prompts. Longer texts are cut,
    which is said, or with long="windows" read in windows whose vectors are averaged by their number of tokens.

    >>> model.embed("the cat").shape, model.embed(["the cat", "the mat"]).shape
    ((8,), (2, 8))
    """
    embedder = model.embedder
    if embedder.unknown:
        raise BertJaxError(
            f"this embedder asks for {embedder.unknown}, which is not computed here; see `model.pooled`"
        )
    pooling = pooling or embedder.pooling
    normalize = embedder.normalize if normalize is None else normalize
    if pooling not in POOLINGS:
        raise BertJaxError(f'no pooling "{pooling}"; {nearest(pooling, POOLINGS)}')
    before = prompt_text(embedder, prompt)
    longest = model.config.max_positions
    cut = Cutter(model.tokenizer, min(embedder.max_length or longest, longest), long)
    program = pooling_program(model.config, pooling)

    def of_chunk(chunk):
        chunk = [before + text if isinstance(text, str) else text for text in chunk] if before else chunk
        windows = cut([lower(text) for text in chunk] if embedder.lower_case else chunk)
        flat = [window for found in windows for window in found]
        vectors = np.stack(model.run(flat, program))
        if len(flat) > len(chunk):
            vectors = averaged(vectors, windows)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors

    found = results(texts, of_chunk)
    if isinstance(found, list):
        return np.stack(found) if found else np.zeros((0, model.config.hidden_size), np.float32)
    return found


def prompt_text(embedder, prompt: str | None) -> str:
    if prompt is None and embedder.default_prompt is None:
        return ""
    name = embedder.default_prompt if prompt is None else prompt
    if name not in embedder.prompts:
        raise BertJaxError(f'this embedder has no prompt "{name}"; {nearest(name, embedder.prompts)}')
    before = embedder.prompts[name]
    if before and not embedder.pools_prompt:
        raise BertJaxError("this embedder leaves its prompt out of the pooling, which is not computed here")
    return before


def lower(text):
    return text.lower() if isinstance(text, str) else tuple(side.lower() for side in text)


def averaged(vectors, windows):
    """The windows' vectors [W, D] -> one for each text, weighted by how many tokens a window has."""
    found, at = [], 0
    for text in windows:
        weights = np.array([len(window.ids) for window in text], np.float32)
        found.append(np.average(vectors[at : at + len(text)], axis=0, weights=weights))
        at += len(text)
    return np.stack(found).astype(np.float32)


@functools.lru_cache(maxsize=16)
def pooling_program(config: EncoderConfig, pooling: str):
    encoder = Encoder(config)

    def run(params, batch):
        return pool(
            encoder.apply({"params": params["encoder"]}, batch), batch["mask"], pooling, normalize=False
        )

    return jax.jit(run)
