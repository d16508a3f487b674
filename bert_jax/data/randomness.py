"""Random numbers as a pure function of a key and a counter: no generator, so no state to save or to advance.

The numbers never change, whereas the next version of NumPy may draw other numbers from its generators.
"""

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # the finaliser of SplitMix64


def random_key(*parts) -> np.uint64:
    """Make a key from names and numbers.

    >>> bool(random_key("order", 0) == random_key("order", 0)), bool(random_key("order", 0) == random_key("order", 1))
    (True, False)
    """
    digest = hashlib.blake2b(repr(tuple(map(str, parts))).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def random_bits(key, counter) -> np.ndarray:
    """Draw 64 random bits for each counter. Key and counter broadcast."""
    with np.errstate(over="ignore"):
        x = np.asarray(key, np.uint64) + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * GOLDEN
        for shift, factor in MIX:
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return x ^ (x >> np.uint64(31))


def to_unit_floats(words: np.ndarray) -> np.ndarray:
    """Convert 64-bit words to numbers in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def to_integers(words: np.ndarray, n) -> np.ndarray:
    """Convert 64-bit words to uniform whole numbers in [0, n)."""
    n = np.asarray(n, np.int64)
    return np.minimum((to_unit_floats(words) * n).astype(np.int64), n - 1)


def sample_indices(name: str, count: int, most: int) -> np.ndarray:
    """Draw at most `most` of `count` indices, sorted. The same name always gives the same indices.

    >>> sample_indices("texts", 2, 5).tolist(), len(sample_indices("texts", 9, 5))
    ([0, 1], 5)
    """
    return np.sort(np.argsort(random_bits(random_key(name), np.arange(count)), kind="stable")[:most])


def count_heads(key, counts: np.ndarray) -> np.ndarray:
    """Toss `counts` fair coins and return the numbers of heads. Each count has its own key.

    >>> count_heads(random_key("coins"), np.array([0, 1000])).tolist()
    [0, 498]
    """
    key, counts = np.broadcast_arrays(np.asarray(key, np.uint64), counts)
    total = np.zeros(counts.shape, np.int64)
    for word in range(-(-int(counts.max(initial=0)) // 64)):
        rows = np.flatnonzero(counts > 64 * word)
        used = np.minimum(counts[rows] - 64 * word, 64).astype(np.uint64)
        drawn = random_bits(key[rows], word) >> (np.uint64(64) - used)
        total[rows] += np.bitwise_count(drawn)
    return total


def permute(indices, n: int, key) -> np.ndarray:
    """Apply a keyed permutation of range(n) to `indices`: a shuffle of any size without a buffer.

    A Feistel network permutes range(the next power of four). A value that falls outside range(n) is permuted again
    until it falls inside, so the result is a permutation of range(n).

    >>> sorted(permute(np.arange(5), 5, random_key("order")).tolist())
    [0, 1, 2, 3, 4]
    """
    half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << half) - np.uint64(1)
    round_keys = random_bits(key, np.arange(6))
    values = np.asarray(indices).astype(np.uint64)
    if values.size and int(values.max()) >= n:
        raise IndexError(f"index {values.max()} is outside a permutation of {n}")
    outside = np.arange(values.size)
    while outside.size:
        left, right = values[outside] >> half, values[outside] & low
        for round_key in round_keys:
            left, right = right, left ^ (random_bits(round_key, right) & low)
        values[outside] = left << half | right
        outside = outside[values[outside] >= n]
    return values.astype(np.int64)
