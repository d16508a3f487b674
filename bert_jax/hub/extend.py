"""A model directory with words added to its vocabulary, ready for continued pre-training.

A new word's embedding is the mean of the embeddings of the pieces it had before, so the model reads it much
as it did; its bias in the masked-word head likewise.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from bert_jax.errors import BertJaxError
from bert_jax.files import replacing
from bert_jax.hub.tensors import Tensors
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.readers import Source
from bert_jax.text.vocabulary import Lines, measure
from bert_jax.text.wordpiece import WordPiece

LEAST = 5  # times a word must occur to be worth an entry
# Tensors with one row for each entry, by the ends of their names in every layout that we read.
PER_ENTRY = (
    "word_embeddings.weight", "predictions.bias", "predictions.decoder.weight", "predictions.decoder.bias",
    "lm_head.bias", "lm_head.decoder.weight", "lm_head.decoder.bias", "vocab_projector.weight",
    "vocab_projector.bias",
)  # fmt: skip


def extend(model, source: Source, output, size: int) -> str:
    """Adds the `size` words of the text that save the most tokens; returns a summary for people."""
    model, output = Path(model), Path(output)
    if output.exists():
        raise BertJaxError(f"{output} exists already; delete it, or give --output another name")
    tokenizer = open_tokenizer(model)
    if not isinstance(tokenizer, WordPiece):
        raise BertJaxError(
            f"{model}: only a WordPiece vocabulary can be extended, this is {type(tokenizer).__name__}"
        )
    lines = Lines(source)
    words = worth_adding(tokenizer, lines, size)
    if not words:
        raise BertJaxError(
            f"the text has no word, seen {LEAST} times or more, that {model} splits; nothing to add"
        )
    pieces = tokenizer.ids(words)
    before = measure(tokenizer, lines.held_out)
    entries = tokenizer.tokens(range(tokenizer.size))
    extended = WordPiece.from_vocabulary([*entries, *words], tokenizer.settings, **casing(tokenizer))
    tensors = {
        name: rows_added(name, array, tokenizer.size, pieces)
        for name, array in Tensors.in_directory(model).items()
    }
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["vocab_size"] = max(
        len(array) for name, array in tensors.items() if name.endswith("word_embeddings.weight")
    )
    extended.save(output)
    with replacing(output / "model.safetensors") as partial:
        save_file(tensors, partial, metadata={"format": "pt"})
    with replacing(output / "config.json") as partial:
        partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return (
        f"{output}: {len(words):,} words added, {extended.size:,} entries; the first: {', '.join(words[:8])}\n"
        f"before:\n{before}\nnow:\n{measure(extended, lines.held_out)}"
    )


def worth_adding(tokenizer: WordPiece, lines: Lines, size: int) -> list[str]:
    """Words by the tokens they would save: occurrences times the pieces beyond the first."""
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


def casing(tokenizer: WordPiece) -> dict:
    normalizer = tokenizer.rust.normalizer
    return {
        "do_lower_case": normalizer.lowercase,
        "strip_accents": normalizer.strip_accents,
        "tokenize_chinese_chars": normalizer.handle_chinese_chars,
    }


def rows_added(name: str, array: np.ndarray, first: int, pieces: list[list[int]]) -> np.ndarray:
    """The tensor with a row for each new word from row `first` on; others unchanged."""
    if not name.endswith(PER_ENTRY):
        return array
    new = np.stack([array[ids].astype(np.float32).mean(axis=0) for ids in pieces]).astype(array.dtype)
    # An embedding padded to a round number of rows has room for some of them.
    return np.concatenate([array[:first], new, array[first + len(pieces) :]])
