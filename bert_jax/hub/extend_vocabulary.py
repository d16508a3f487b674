"""Copy a model with words added to its vocabulary, for continued pre-training.

The embedding of a new word is the mean of the embeddings of its former pieces, so the model reads the word much as
before. Its bias in the masked-LM head is the mean of the biases of the pieces.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.text.text_source import TextSource
from bert_jax.text.vocabulary_training import TrainingLines, measure_vocabulary
from bert_jax.text.wordpiece import CASING, WordPiece

DEFAULT_ADDED = 1000  # words
LEAST = 5  # a word must occur at least this often to be added


def extend(model, source: TextSource, output, size: int) -> str:
    """Write the model to `output` with at most `size` new words, those that save the most tokens; return a summary."""
    output = Path(output)
    with hub.atomic_model_directory(output) as new:
        summary = write_extended(model, source, new, size)
    return f"{output}: {summary}"


def write_extended(model, source: TextSource, output: Path, size: int) -> str:
    directory = hub.ModelDirectory.open(model)
    tokenizer = directory.tokenizer
    if not isinstance(tokenizer, WordPiece):
        raise BertJaxError(
            f"{model}: only a WordPiece vocabulary can be extended, this is {type(tokenizer).__name__}"
        )
    lines = TrainingLines(source)
    words = worth_adding(tokenizer, lines, size)
    if not words:
        raise BertJaxError(
            f"nothing to add: {model} splits no word that occurs {LEAST} times or more in the text"
        )
    before = measure_vocabulary(tokenizer, lines.held_out)
    layout, params = add_embedding_rows(
        directory.layout, directory.read_params(), tokenizer.size, tokenizer.ids(words)
    )
    entries = tokenizer.tokens(range(tokenizer.size))
    casing = {key: getattr(tokenizer.rust.normalizer, attribute) for key, attribute in CASING.items()}
    extended = WordPiece.from_vocabulary([*entries, *words], tokenizer.settings, **casing)
    hub.save_model(output, layout, params, extended)
    return (
        f"{len(words):,} words added, {extended.size:,} entries; the first: {', '.join(words[:8])}\n"
        f"before:\n{before}\nnow:\n{measure_vocabulary(extended, lines.held_out)}"
    )


def worth_adding(tokenizer: WordPiece, lines: TrainingLines, size: int) -> list[str]:
    """Return at most `size` words that are split into pieces, sorted by the tokens that they would save.

    A word would save one token for each piece beyond the first, at each occurrence.
    """
    counts: Counter = Counter()
    normalizer, splitter = tokenizer.rust.normalizer, tokenizer.rust.pre_tokenizer
    for line in lines:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line)))
    words = [word for word, count in counts.items() if count >= LEAST and any(map(str.isalpha, word))]
    unknown = tokenizer.special.unk
    saved = {
        word: counts[word] * (len(pieces) - 1)
        for word, pieces in zip(words, tokenizer.ids(words), strict=True)
        if len(pieces) > 1 and unknown not in pieces
    }
    return sorted(saved, key=lambda word: (-saved[word], word))[:size]


def add_embedding_rows(
    layout: Layout, params: dict, first: int, pieces: list[list[int]]
) -> tuple[Layout, dict]:
    """Add a row for each new word, from row `first` on, to every parameter with a row per vocabulary entry.

    `pieces` are the ids of each new word's former pieces.
    """
    flat = flatten_dict(params, sep="/")
    for part in layout.parameter_mappings(prefixed=True):
        if part.per_entry:
            rows = flat[part.path]
            new = np.stack([rows[ids].mean(axis=0) for ids in pieces])
            # An embedding that is padded to a round number of rows has room for some of the new rows.
            flat[part.path] = np.concatenate([rows[:first], new, rows[first + len(pieces) :]])
    config = layout.config.replace(vocab_size=len(flat["encoder/embeddings/words"]))
    return replace(layout, config=config), unflatten_dict(flat, sep="/")
