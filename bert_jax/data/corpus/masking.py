"""Masked-language-model targets, drawn for a whole batch at once.

Every row has a 64-bit key, and every random draw is a hash of it and a counter, so the mask of a row does not depend on
its batch, its host, or the number of threads. The number of targets is BERT's: a fixed share of the row's tokens,
counting special ones. Targets are drawn without replacement, by tokens, whole words, or spans of words. Words or spans
are taken in random order, and one that no longer fits is skipped.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.randomness import random_bits, to_unit_floats
from bert_jax.text.tokenizer import Batch, Special, Tokenizer

# Disjoint ranges of counters for one row's key; a row is far shorter than a range.
ORDER, SPAN, FATE, REPLACEMENT = (i << 32 for i in range(4))
LAST = np.uint64(2**64 - 1)  # sorts what cannot be drawn after everything else


class Masking:
    """Draws the targets of rows of `length`. Special tokens are never targets and never drawn as replacements.

    `continues` [V] says whether an id continues the word before it."""

    def __init__(self, config: DataConfig, length: int, special: Special, continues: np.ndarray):
        self.config, self.special, self.continues = config, special, continues
        self.is_special = np.isin(np.arange(len(continues)), special.all)
        self.cap = config.max_targets(length)  # K

    def __call__(self, input_ids: np.ndarray, attention_mask: np.ndarray, keys: np.ndarray) -> Batch:
        """Mask tokens of `input_ids` [B, L], given the `attention_mask` [B, L] and a key [B] for each row.

        Return the masked tokens, and the positions, ids and weights of the targets [B, K]."""
        maskable = ~self.is_special[input_ids] & (attention_mask > 0)
        wanted = np.round(self.config.mlm_probability * attention_mask.sum(axis=1)).astype(np.int64)
        wanted = np.minimum(np.clip(wanted, 1, self.cap), maskable.sum(axis=1))
        if self.config.mask_unit == "token":
            chosen = choose_tokens(maskable, wanted, keys)
        else:
            chosen = choose_groups(self.number_groups(input_ids, maskable, keys), maskable, wanted, keys)
        row, position = np.nonzero(chosen)
        column = np.arange(len(row)) - np.searchsorted(row, row)
        positions = np.zeros((len(input_ids), self.cap), np.int32)
        targets, target_weights = np.zeros_like(positions), np.zeros(positions.shape, np.float32)
        positions[row, column], targets[row, column] = position, input_ids[row, position]
        target_weights[row, column] = 1
        masked = input_ids.copy()
        masked[row, position] = self.replace(input_ids[row, position], position, keys[row])
        return {
            "input_ids": masked,
            "target_positions": positions,
            "targets": targets,
            "target_weights": target_weights,
        }

    def number_groups(self, input_ids: np.ndarray, maskable: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return [B, L], the number of the word or span to which each token belongs."""
        joined = self.continues[input_ids] & maskable & shift(maskable, False)
        word = np.cumsum(~joined, axis=1) - 1
        if self.config.mask_unit == "word":
            return word
        # Spans lie end to end from the row's first word on. The length of a span is drawn with probability proportional
        # to 1 / length. A special token ends a span, as it ends a word. The first word, after [CLS], has number 1.
        length = input_ids.shape[1]
        shares = 1 / np.arange(1, self.config.max_span_length + 1)
        steps = np.cumsum(shares / shares.sum())[:-1]
        drawn = to_unit_floats(random_bits(keys[:, None], SPAN + np.arange(length)))
        sizes = 1 + np.searchsorted(steps, drawn, side="right")
        begins = np.minimum(np.cumsum(sizes, axis=1) - sizes, length)
        span_of_word = np.cumsum(count_occurrences(begins, length + 1), axis=1)
        span = np.take_along_axis(span_of_word, np.maximum(word - 1, 0), axis=1)
        new = (span != shift(span, -1)) | ~maskable | ~shift(maskable, False)
        return np.cumsum(new, axis=1) - 1

    def replace(self, targets: np.ndarray, positions: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return what stands in place of each target: [MASK], a random token, or the target itself."""
        fate = to_unit_floats(random_bits(keys, FATE + positions))
        drawn = to_unit_floats(random_bits(keys, REPLACEMENT + positions))
        special, masked = self.special.all, self.config.mask_replace_prob
        random = (drawn * (len(self.continues) - len(special))).astype(np.int32)
        for i in sorted(special):
            random += random >= i
        out = np.where(fate < masked + self.config.random_replace_prob, random, targets)
        return np.where(fate < masked, self.special.mask, out)


def choose_tokens(maskable: np.ndarray, wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return [B, L], true for the `wanted` [B] maskable positions with the lowest hashes."""
    order = draw_order(maskable, keys)
    highest = np.take_along_axis(np.sort(order, axis=1), np.maximum(wanted - 1, 0)[:, None], axis=1)
    return maskable & (order <= highest)


def choose_groups(
    group: np.ndarray, maskable: np.ndarray, wanted: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Return [B, L], true for the maskable positions of whole groups, taken in random order if they fit into what is
    left of `wanted` [B]. `group` [B, L] holds the number of each position's group."""
    count = int(group.max()) + 1
    size = count_occurrences(np.where(maskable, group, count), count + 1)[:, :count]
    order = np.argsort(draw_order(size > 0, keys), axis=1)
    size = np.take_along_axis(size, order, axis=1)
    size[size == 0] = group.shape[1] + 1  # never fits
    taken = np.cumsum(size, axis=1) <= wanted[:, None]
    left = wanted - np.where(taken, size, 0).sum(axis=1)
    while (fits := ~taken & (size <= left[:, None])).any():  # the groups after the first that did not fit
        rows = np.flatnonzero(fits.any(axis=1))
        first = fits[rows].argmax(axis=1)
        taken[rows, first] = True
        left[rows] -= size[rows, first]
    chosen = np.empty_like(taken)
    np.put_along_axis(chosen, order, taken, axis=1)
    return maskable & np.take_along_axis(chosen, group, axis=1)


def draw_order(drawable: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return random numbers [B, N] by whose order is drawn; what is not drawable comes last."""
    return np.where(drawable, random_bits(keys[:, None], ORDER + np.arange(drawable.shape[1])), LAST)


def count_occurrences(values: np.ndarray, n: int) -> np.ndarray:
    """Return [B, n]: how often each number of range(n) occurs in a row of `values`."""
    rows = len(values)
    return np.bincount((values + n * np.arange(rows)[:, None]).ravel(), minlength=rows * n).reshape(rows, n)


def shift(values: np.ndarray, first) -> np.ndarray:
    """Shift each row one position to the right, with `first` in front."""
    return np.concatenate([np.full((len(values), 1), first, values.dtype), values[:, :-1]], axis=1)


def word_continuations(tokenizer: Tokenizer) -> np.ndarray:
    """Return [V]: whether an entry of the vocabulary continues the word before it.

    WordPiece marks entries that continue a word (##ing). SentencePiece and byte-level BPE mark entries that begin one
    (▁the, Ġthe) and leave punctuation unmarked; here punctuation begins a new word.
    """
    entries: Sequence[str] = tokenizer.tokens(range(tokenizer.size))
    if any(entry.startswith("##") for entry in entries):
        return np.array([entry.startswith("##") and len(entry) > 2 for entry in entries])
    return np.array([bool(entry) and entry[0] not in "▁Ġ" and entry[0].isalnum() for entry in entries])
