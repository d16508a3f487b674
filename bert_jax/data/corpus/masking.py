"""Masked-language-model targets, drawn for a whole batch at once in TensorFlow ops.

Every row has a 64-bit key and every draw is a hash of it, so a row is masked the same in whatever batch, on
whatever host, with however many threads it is made. The count is BERT's: a fixed share of the row's tokens,
special ones counted, drawn without replacement. Draws are over tokens, whole words, or spans of words; the
words or spans are taken in random order, and one that no longer fits is passed over.
"""

from collections.abc import Sequence

import numpy as np

from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.randomness import GOLDEN, MIX
from bert_jax.text.host_tensorflow import tf
from bert_jax.text.tokenizer import Special, Tokenizer

# Disjoint counters of one row's key; rows are far shorter than these are apart.
ORDER, SPAN, FATE, REPLACEMENT = (i << 32 for i in range(4))


class Masking:
    """For rows of `length`; special tokens are never targets and never drawn as replacements. `continues` [V]:
    whether an id continues the word before it."""

    def __init__(self, config: DataConfig, length: int, special: Special, continues: np.ndarray):
        self.config, self.special, self.continues = config, special, continues
        self.cap = config.targets(length)  # K

    def __call__(self, tokens, mask, keys) -> dict[str, tf.Tensor]:
        """`tokens` and `mask` are [B, L], `keys` [B]; gives tokens with their masks, and the targets."""
        special = tf.reduce_any(tokens[..., None] == tf.constant(self.special.all, tf.int32), axis=-1)
        open_to = ~special & (mask > 0)
        length = tf.cast(tf.reduce_sum(mask, axis=1), tf.float64)
        wanted = tf.cast(tf.round(self.config.rate * length), tf.int32)  # halves to even, as Python rounds
        wanted = tf.minimum(tf.clip_by_value(wanted, 1, self.cap), count(open_to))
        if self.config.unit == "token":
            positions = self._tokens(open_to, wanted, keys)
        else:
            positions = self._groups(self._group(tokens, open_to, keys), open_to, wanted, keys)
        weight = tf.cast(positions < tokens.shape[1], tf.int32)
        positions = positions * weight
        targets = tf.gather(tokens, positions, batch_dims=1) * weight
        changed = self._replace(targets, positions, keys)
        rows = tf.broadcast_to(tf.range(tf.shape(tokens)[0])[:, None], tf.shape(positions))
        real = tf.where(weight > 0)
        where = tf.gather_nd(tf.stack([rows, positions], axis=-1), real)
        tokens = tf.tensor_scatter_nd_update(tokens, where, tf.gather_nd(changed, real))
        return {
            "tokens": tokens,
            "target_positions": positions,
            "targets": targets,
            "target_weight": tf.cast(weight, tf.float32),
        }

    def _tokens(self, open_to, wanted, keys):
        """The `wanted` open positions of lowest hash, ascending; L where there is none."""
        length = open_to.shape[1]
        order = tf.where(open_to, hashes(keys, ORDER + np.arange(length)), CLOSED)
        lowest = tf.math.top_k(-order, min(self.cap, length)).indices
        lowest = tf.where(tf.range(lowest.shape[1]) < wanted[:, None], lowest, length)
        return self._padded(tf.sort(lowest, axis=1), length)

    def _group(self, tokens, open_to, keys):
        """[B, L], the number of the word or span that each token belongs to."""
        joined = tf.gather(tf.constant(self.continues), tokens) & open_to & shifted(open_to, False)
        word = tf.cumsum(tf.cast(~joined, tf.int32), axis=1) - 1
        if self.config.unit == "word":
            return word
        # Spans lie end to end from the row's first word on, each of a length drawn in proportion to 1 /
        # length. A special token ends a span as it ends a word; the first word is number 1, after [CLS].
        length = tokens.shape[1]
        word = tf.maximum(word - 1, 0)
        shares = 1 / np.arange(1, self.config.longest_span + 1)
        steps = np.cumsum(shares / shares.sum())[:-1]
        drawn = uniform(keys, SPAN + np.arange(length))
        sizes = 1 + tf.reduce_sum(tf.cast(drawn[..., None] >= steps, tf.int32), axis=-1)
        begins = tf.minimum(tf.cumsum(sizes, axis=1, exclusive=True), length)
        span = tf.gather(tf.cumsum(occurrences(begins, length + 1), axis=1), word, batch_dims=1)
        new = (span != shifted(span, -1)) | ~open_to | ~shifted(open_to, False)
        return tf.cumsum(tf.cast(new, tf.int32), axis=1) - 1

    def _groups(self, group, open_to, wanted, keys):
        """Positions of whole groups, taken in random order while they fit into `wanted`."""
        length = open_to.shape[1]
        size = occurrences(tf.where(open_to, group, length), length + 1)[:, :length]
        order = tf.argsort(tf.where(size > 0, hashes(keys, ORDER + np.arange(length)), CLOSED), axis=1)
        size = tf.gather(size, order, batch_dims=1)
        size = tf.where(size > 0, size, length + 1)  # never fits

        def any_fits(undecided, _, left):
            return tf.reduce_any(undecided & (size <= left[:, None]))

        def take(undecided, taken, left):
            # The groups that fit are taken up to the first that does not fit beside those before it.
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
        chosen = tf.gather(taken, group, batch_dims=1) & open_to
        first = tf.math.top_k(tf.where(chosen, length - tf.range(length), 0), min(self.cap, length)).values
        return self._padded(length - first, length)

    def _padded(self, positions, length: int):
        return tf.pad(positions, [[0, 0], [0, self.cap - positions.shape[1]]], constant_values=length)

    def _replace(self, targets, positions, keys):
        fate = hash_unit(hash_at(keys[:, None], FATE + tf.cast(positions, tf.int64)))
        drawn = hash_unit(hash_at(keys[:, None], REPLACEMENT + tf.cast(positions, tf.int64)))
        special, masked = self.special.all, self.config.masked
        random = tf.cast(drawn * (len(self.continues) - len(special)), tf.int32)
        for i in sorted(special):
            random += tf.cast(random >= i, tf.int32)
        out = tf.where(fate < masked + self.config.replaced, random, targets)
        return tf.where(fate < masked, self.special.mask, out)


# No hash is as high, so what is closed comes after all that is open.
CLOSED = np.int64(2**62)


def count(flags):
    return tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)


def occurrences(values, n: int):
    """[B, n], how often each of range(n) occurs in a row of `values`."""
    rows = tf.shape(values)[0]
    flat = tf.reshape(values + n * tf.range(rows)[:, None], [-1])
    return tf.reshape(tf.math.unsorted_segment_sum(tf.ones_like(flat), flat, rows * n), [rows, n])


def shifted(values, first):
    """Each row one to the right, `first` in front."""
    return tf.concat([tf.fill([tf.shape(values)[0], 1], first), values[:, :-1]], axis=1)


def hash_at(keys, counters):
    """SplitMix64, as in randomness.bits, in TensorFlow ops."""
    x = keys + (tf.cast(counters, tf.uint64) + 1) * tf.constant(int(GOLDEN), tf.uint64)
    for shift, factor in (*MIX, (31, 1)):
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.constant(shift, tf.uint64)))
        x = x * tf.constant(factor, tf.uint64)
    return x


def hashes(keys, counters):
    """[B, N] whole numbers below 2 ** 61 from keys [B] and counters [N]."""
    x = hash_at(keys[:, None], tf.constant(counters, tf.int64)[None, :])
    return tf.cast(tf.bitwise.right_shift(x, tf.constant(3, tf.uint64)), tf.int64)


def hash_unit(x):
    words = tf.cast(tf.bitwise.right_shift(x, tf.constant(11, tf.uint64)), tf.int64)
    return tf.cast(words, tf.float64) * 2.0**-53


def uniform(keys, counters):
    return hash_unit(hash_at(keys[:, None], tf.constant(counters, tf.int64)[None, :]))


def word_continuations(tokenizer: Tokenizer) -> np.ndarray:
    """[V], whether an entry continues the word before it.

    WordPiece marks what continues (##ing); SentencePiece and byte-level BPE mark what begins (▁the, Ġthe),
    and leave punctuation unmarked, which begins a new word here.
    """
    entries: Sequence[str] = tokenizer.tokens(range(tokenizer.size))
    if any(entry.startswith("##") for entry in entries):
        return np.array([entry.startswith("##") and len(entry) > 2 for entry in entries])
    return np.array([bool(entry) and entry[0] not in "▁Ġ" and entry[0].isalnum() for entry in entries])
