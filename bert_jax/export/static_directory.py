"""Directories with static embeddings that are distilled from an encoder, as model2vec does it."""

import json
import re
from dataclasses import replace

import numpy as np
import tokenizers

from bert_jax.core.config import Range, check_number
from bert_jax.core.progress import track
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.families.static import LONGEST
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import atomic_model_directory, save_model
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.computations import PooledStates
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.engine import open_directory
from bert_jax.text.static_tokenizer import StaticTokenizer, unknown_id
from bert_jax.text.tokenizer import Tokenizer

DIMENSIONS = 256
COMMON = 1e-4  # a token of this share of all tokens has half the weight of a rare one
NEVER_READ = re.compile(r"\[unused\d+\]")
TEXTS = 512  # of a batch
AT_ONCE = 16 * TEXTS


def export_static(source, output, dimensions: int | None = None) -> str:
    """Write static embeddings of `dimensions` numbers, by default of 256 or as many as the encoder has, and describe
    them.

    The row of a token is its vector as a text of its own. Principal components take what all tokens have in common
    out of it, and common tokens get a lower weight: their ranks are those in the vocabulary, and frequencies fall with
    the rank, as Zipf says. Tokens that stand for no text have zeros."""
    directory = open_directory(source, "jax")
    embedder = directory.layout.embedder
    model = Embedder.load(directory, pooling=None if embedder else "mean")
    width = model.layout.vector_size
    if dimensions is not None:
        check_number(dimensions, "dimensions", is_whole=True, allowed=Range(1, width))
    names = enumerate(model.tokenizer.tokens(range(model.tokenizer.size)))
    special = model.tokenizer.special.all
    ids = [i for i, name in names if name and i not in special and not NEVER_READ.fullmatch(name)]
    components, kept = principal_components(token_vectors(model, ids), dimensions or min(DIMENSIONS, width))
    rows = np.zeros((model.tokenizer.size, components.shape[1]), np.float32)
    rows[ids] = components * zipf_weights(len(ids))[:, None]
    family = FAMILIES["static"]
    config = family.read_config(
        {"vocab_size": len(rows), "hidden_dim": rows.shape[1], "max_length": LONGEST}, source
    )
    settings = EmbedderSettings(is_static=True, max_length=LONGEST)
    layout = Layout(config, family, pooler=False, embedder=settings)
    with atomic_model_directory(output) as new:
        params = {"encoder": {"embeddings": {"words": rows}}}
        save_model(new, layout, params, static_tokenizer(model.tokenizer, model.embedder.lower_case))
    return f"{len(ids):,} tokens, {rows.shape[1]} dimensions, which keep {kept:.0%} of the variance"


def token_vectors(model: Embedder, ids: list[int]) -> np.ndarray:
    """Return the vector [D] of each token as a text of its own."""
    template, embedder = model.tokenizer.template, model.embedder
    length = template.specials(pair=False) + 1
    model.engine.shapes = replace(model.engine.shapes, tokens=TEXTS * length, lengths=(length,), shared=0)
    wanted = PooledStates(embedder.pooling, projection=embedder.projection)
    encodings = [template.fill(([i], [(0, 0)]), None) for i in ids]
    parts = [encodings[i : i + AT_ONCE] for i in range(0, len(encodings), AT_ONCE)]
    return np.concatenate(
        [model.run(part, wanted) for part in track(parts, "parts", "embedding the vocabulary")]
    )


def principal_components(vectors: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Return the first components [N, count] of the centred vectors, and the share of the variance that they keep."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    components = centred @ axes[:, ::-1][:, :count]
    largest = np.abs(components).argmax(0)
    components *= np.sign(
        np.take_along_axis(components, largest[None], 0)
    )  # else a library chooses the signs
    return components, variances[::-1][:count].sum() / variances.sum()


def zipf_weights(count: int) -> np.ndarray:
    """Return the weights of tokens by their rank.

    >>> zipf_weights(30_000)[[0, 9, 999, -1]].round(2).tolist()
    [0.0, 0.01, 0.5, 0.97]
    """
    shares = 1 / np.arange(2, count + 2)
    return COMMON / (COMMON + shares / shares.sum())


def static_tokenizer(tokenizer: Tokenizer, lowercases: bool) -> StaticTokenizer:
    """Return the tokenizer without special tokens around texts."""
    parts = json.loads(tokenizer.rust.to_str())
    parts |= {"post_processor": None, "truncation": None, "padding": None}
    if lowercases:
        others = [parts["normalizer"]] if parts["normalizer"] else []
        parts["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *others]}
    content = json.dumps(parts, ensure_ascii=False)
    rust = tokenizers.Tokenizer.from_str(content)
    return StaticTokenizer(rust, keeps_unknown=False, unknown=unknown_id(rust, content))
