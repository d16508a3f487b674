"""Masked-language-model targets, drawn for a whole batch at once in TensorFlow ops.

Every row has a 64-bit key, and every random draw is a hash of it and a counter, so the mask of a row does not depend on
its batch, its host, or the number of threads. The number of targets is BERT's: a fixed share of the row's tokens,
counting special ones. Targets are drawn without replacement, by tokens, whole words, or spans of words. Words or spans
are taken in random order, and one that no longer fits is skipped.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.randomness import GOLDEN, MIX
from bert_jax.text.host_tensorflow import tf
from bert_jax.text.tokenizer import Special, Tokenizer

# Disjoint ranges of counters for one row's key; a row is far shorter than a range.
ORDER, SPAN, FATE, REPLACEMENT = (i << 32 for i in range(4))


class Masking:
    """Draws the targets of rows of `length`. Special tokens are never targets and never drawn as replacements.

    `continues` [V] says whether an id continues the word before it."""

    def __init__(self, config: DataConfig, length: int, special: Special, continues: np.ndarray):
        self.config, self.special, self.continues = config, special, continues
        self.cap = config.max_targets(length)  # K

    def __call__(self, input_ids, attention_mask, keys) -> dict[str, tf.Tensor]:
        """Mask tokens of `input_ids` [B, L], given the `attention_mask` [B, L] and a key [B] for each row.

        Return the masked tokens, and the positions, ids and weights of the targets [B, K]."""
        special = tf.reduce_any(input_ids[..., None] == tf.constant(self.special.all, tf.int32), axis=-1)
        maskable = ~special & (attention_mask > 0)
        length = tf.cast(tf.reduce_sum(attention_mask, axis=1), tf.float64)
        wanted = tf.cast(
            tf.round(self.config.mlm_probability * length), tf.int32
        )  # halves to even, as Python rounds
        wanted = tf.minimum(tf.clip_by_value(wanted, 1, self.cap), count_true(maskable))
        if self.config.mask_unit == "token":
            positions = self._tokens(maskable, wanted, keys)
        else:
            positions = self._groups(self._group(input_ids, maskable, keys), maskable, wanted, keys)
        target_weights = tf.cast(positions < input_ids.shape[1], tf.int32)
        positions = positions * target_weights
        targets = tf.gather(input_ids, positions, batch_dims=1) * target_weights
        changed = self._replace(targets, positions, keys)
        rows = tf.broadcast_to(tf.range(tf.shape(input_ids)[0])[:, None], tf.shape(positions))
        real = tf.where(target_weights > 0)
        where = tf.gather_nd(tf.stack([rows, positions], axis=-1), real)
        input_ids = tf.tensor_scatter_nd_update(input_ids, where, tf.gather_nd(changed, real))
        return {
            "input_ids": input_ids,
            "target_positions": positions,
            "targets": targets,
            "target_weights": tf.cast(target_weights, tf.float32),
        }

    def _tokens(self, maskable, wanted, keys):
        """Return the `wanted` maskable positions with the lowest hashes, in ascending order, padded with L."""
        length = maskable.shape[1]
        order = tf.where(maskable, hash_integers(keys, ORDER + np.arange(length)), UNMASKABLE)
        lowest = tf.math.top_k(-order, min(self.cap, length)).indices
        lowest = tf.where(tf.range(lowest.shape[1]) < wanted[:, None], lowest, length)
        return self._padded(tf.sort(lowest, axis=1), length)

    def _group(self, input_ids, maskable, keys):
        """Return [B, L], the number of the word or span to which each token belongs."""
        joined = tf.gather(tf.constant(self.continues), input_ids) & maskable & shifted(maskable, False)
        word = tf.cumsum(tf.cast(~joined, tf.int32), axis=1) - 1
        if self.config.mask_unit == "word":
            return word
        # Spans lie end to end from the row's first word on. The length of a span is drawn with probability proportional
        # to 1 / length. A special token ends a span, as it ends a word. The first word, after [CLS], has number 1.
        length = input_ids.shape[1]
        word = tf.maximum(word - 1, 0)
        shares = 1 / np.arange(1, self.config.max_span_length + 1)
        steps = np.cumsum(shares / shares.sum())[:-1]
        drawn = uniform(keys, SPAN + np.arange(length))
        sizes = 1 + tf.reduce_sum(tf.cast(drawn[..., None] >= steps, tf.int32), axis=-1)
        begins = tf.minimum(tf.cumsum(sizes, axis=1, exclusive=True), length)
        span = tf.gather(tf.cumsum(occurrences(begins, length + 1), axis=1), word, batch_dims=1)
        new = (span != shifted(span, -1)) | ~maskable | ~shifted(maskable, False)
        return tf.cumsum(tf.cast(new, tf.int32), axis=1) - 1

    def _groups(self, group, maskable, wanted, keys):
        """Return the positions of whole groups, taken in random order as long as they fit into `wanted`."""
        length = maskable.shape[1]
        size = occurrences(tf.where(maskable, group, length), length + 1)[:, :length]
        order = tf.argsort(
            tf.where(size > 0, hash_integers(keys, ORDER + np.arange(length)), UNMASKABLE), axis=1
        )
        size = tf.gather(size, order, batch_dims=1)
        size = tf.where(size > 0, size, length + 1)  # never fits

        def any_fits(undecided, _, left):
            return tf.reduce_any(undecided & (size <= left[:, None]))

        def take(undecided, taken, left):
            # Take the groups in order, up to the first that does not fit together with those before it.
            fits = undecided & (size <= left[:, None])
            filled = tf.cumsum(tf.where(fits, size, 0), axis=1)
            now = fits & (filled <= left[:, None])
            left -= tf.reduce_sum(tf.where(now, size, 0), axis=1)
            blocked = fits & ~now
            blocked &= tf.cumsum(tf.cast(blocked, tf.int32), axis=1) == 1
            return fits & ~now & ~blocked, taken | now, left

        everything = tf.ones_like(size, tf.bool)
        _, taken, _ = tf.while_loop(any_fits, take, (everything, tf.zeros_like(everything), wanted))
        taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)
        chosen = tf.gather(taken, group, batch_dims=1) & maskable
        first = tf.math.top_k(tf.where(chosen, length - tf.range(length), 0), min(self.cap, length)).values
        return self._padded(length - first, length)

    def _padded(self, positions, length: int):
        return tf.pad(positions, [[0, 0], [0, self.cap - positions.shape[1]]], constant_values=length)

    def _replace(self, targets, positions, keys):
        fate = hash_unit(hash_at(keys[:, None], FATE + tf.cast(positions, tf.int64)))
        drawn = hash_unit(hash_at(keys[:, None], REPLACEMENT + tf.cast(positions, tf.int64)))
        special, masked = self.special.all, self.config.mask_replace_prob
        random = tf.cast(drawn * (len(self.continues) - len(special)), tf.int32)
        for i in sorted(special):
            random += tf.cast(random >= i, tf.int32)
        out = tf.where(fate < masked + self.config.random_replace_prob, random, targets)
        return tf.where(fate < masked, self.special.mask, out)


# Higher than any hash, so that these positions are sorted after all maskable ones.
UNMASKABLE = np.int64(2**62)


def count_true(flags):
    return tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)


def occurrences(values, n: int):
    """Return [B, n]: how often each number of range(n) occurs in a row of `values`."""
    rows = tf.shape(values)[0]
    flat = tf.reshape(values + n * tf.range(rows)[:, None], [-1])
    return tf.reshape(tf.math.unsorted_segment_sum(tf.ones_like(flat), flat, rows * n), [rows, n])


def shifted(values, first):
    """Shift each row one position to the right, with `first` in front."""
    return tf.concat([tf.fill([tf.shape(values)[0], 1], first), values[:, :-1]], axis=1)


def hash_at(keys, counters):
    """Compute randomness.bits (SplitMix64) in TensorFlow ops."""
    x = keys + (tf.cast(counters, tf.uint64) + 1) * tf.constant(int(GOLDEN), tf.uint64)
    for shift, factor in (*MIX, (31, 1)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64)))
        x = x * tf.constant(factor, tf.uint64)
    return x


def hash_integers(keys, counters):
    """Return [B, N] whole numbers below 2 ** 61, from keys [B] and counters [N]."""
    x = hash_at(keys[:, None], tf.constant(counters, tf.int64)[None, :])
    return tf.cast(tf.bitwise.right_shift(x, tf.constant(3, tf.uint64)), tf.int64)


def hash_unit(x):
    words = tf.cast(tf.bitwise.right_shift(x, tf.constant(11, tf.uint64)), tf.int64)
    return tf.cast(words, tf.float64) * 2.0**-53


def uniform(keys, counters):
    return hash_unit(hash_at(keys[:, None], tf.constant(counters, tf.int64)[None, :]))


def word_continuations(tokenizer: Tokenizer) -> np.ndarray:
    """Return [V]: whether an entry of the vocabulary continues the word before it.

    WordPiece marks entries that continue a word (##ing). SentencePiece and byte-level BPE mark entries that begin one
    (▁the, Ġthe) and leave punctuation unmarked; here punctuation begins a new word.
    """
    entries: Sequence[str] = tokenizer.tokens(range(tokenizer.size))
    if any(entry.startswith("##") for entry in entries):
        return np.array([entry.startswith("##") and len(entry) > 2 for entry in entries])
    return np.array([bool(entry) and entry[0] not in "▁Ġ" and entry[0].isalnum() for entry in entries])
