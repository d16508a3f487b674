"""The order of a stream's examples: which corpus, plan and pass an example comes from, as arithmetic on indices."""

import threading
from collections.abc import Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.full_sentences import Rows
from bert_jax.data.corpus.segment_plan import SegmentPlan, load_or_build
from bert_jax.data.corpus.sentence_pairs import Pairs
from bert_jax.data.randomness import permute, random_bits, random_key

BLOCK = 1 << 16  # examples; in a mixture, a corpus has the same number of examples in every block


class ExampleOrder:
    """A mixture decides which corpus an example comes from. Within a corpus, passes over its plans follow one another,
    each in its own order."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        weights: Sequence[float],
        planner: Rows | Pairs,
        plans: int,
        seed: int,
    ):
        self.corpora, self.weights, self.planner, self.plans, self.seed = (
            corpora,
            weights,
            planner,
            plans,
            seed,
        )
        self._plans: dict[tuple[int, int, int], SegmentPlan] = {}
        self._lock = threading.Lock()

    def plan(self, c: int, length: int, number: int) -> SegmentPlan:
        key = (c, length, number)
        with self._lock:  # several threads call this at the same time
            if key not in self._plans:
                self._plans[key] = load_or_build(
                    self.corpora[c].train, self.planner, self.seed, length, number
                )
            return self._plans[key]

    def require_batch(self, length: int, batch: int) -> None:
        """Refuse a corpus that has fewer examples of the length than a batch."""
        examples = [len(self.plan(c, length, 0)) for c in range(len(self.corpora))]
        if len(examples) == 1 and examples[0] < batch:
            raise BertJaxError(
                f"{self.corpora[0].name} gives {examples[0]} examples of length {length}, fewer than a batch of "
                f"{batch}; set --config.data.batch_size={examples[0]} or less, or prepare more text"
            )

    def locate(self, length: int, examples: np.ndarray):
        """Return the corpus, plan, pass and index in the plan of examples, given their indices within the length."""
        mixture = Mixture(self.weights, random_key("mixture", self.seed, length))
        owner, position = mixture(examples)
        plan, turn, example = (np.empty_like(owner) for _ in range(3))
        for c in np.unique(owner):
            here = np.flatnonzero(owner == c)
            plan[here], turn[here], example[here] = self._locate_in_passes(c, length, position[here])
        return owner, plan, turn, example

    def _locate_in_passes(self, c: int, length: int, indices: np.ndarray):
        """Return the plan, pass and index in the plan of examples, given their `indices` within corpus `c`.

        A pass uses one plan. After the last plan the first one is used again. Each pass has its own order."""
        plans = self.plans
        ends = np.zeros(1, np.int64)
        while ends[-1] <= indices.max() and len(ends) <= plans:
            ends = np.append(ends, ends[-1] + len(self.plan(c, length, len(ends) - 1)))
        round_, within = divmod(indices, ends[-1]) if len(ends) > plans else (np.zeros_like(indices), indices)
        plan = np.searchsorted(ends, within, side="right") - 1
        turn = round_ * plans + plan
        position = within - ends[plan]
        for t in np.unique(turn):
            here = turn == t
            size = len(self.plan(c, length, int(t) % plans))
            position[here] = permute(position[here], size, random_key("order", self.seed, c, length, t))
        return plan, turn, position

    def read_rows(self, length: int, owner: np.ndarray, plan: np.ndarray, example: np.ndarray) -> np.ndarray:
        """Return the row of each example in its plan, given what `locate` returns."""
        table = np.empty(len(owner), self.plan(0, length, 0).table.dtype)
        for c, p in set(zip(owner.tolist(), plan.tolist(), strict=True)):
            here = np.flatnonzero((owner == c) & (plan == p))
            table[here] = self.plan(c, length, p).table[example[here]]
        return table

    def validation_rows(self, length: int):
        """Return the rows of all corpora's held-out plans, the index of each row's corpus, and each row's mask key."""
        tables = [load_or_build(c.validation, self.planner, self.seed, length, 0).table for c in self.corpora]
        sizes = [len(table) for table in tables]
        owner = np.repeat(np.arange(len(tables)), sizes)
        example = np.concatenate([np.arange(size) for size in sizes])
        # The word is part of the seed: another one would draw other masks.
        keys = random_bits(random_bits(random_key("heldout", self.seed, length), owner), example)
        return np.concatenate(tables), owner, keys


class Mixture:
    """Map example numbers to (corpus, index within the corpus) in closed form, with corpora in proportion to their
    weights.

    >>> corpus, place = Mixture([3.0, 1.0], key=7)(np.arange(4 * BLOCK))
    >>> np.bincount(corpus).tolist(), place[corpus == 1].max().item()
    ([196608, 65536], 65535)
    """

    def __init__(self, weights: Sequence[float], key):
        self.key = key
        self.counts = apportion(weights, BLOCK)
        self.edges = np.concatenate([[0], np.cumsum(self.counts)])

    def __call__(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(self.counts) == 1:
            return np.zeros_like(examples), examples
        corpus, position = np.empty_like(examples), np.empty_like(examples)
        blocks = examples // BLOCK
        for block in np.unique(blocks):
            here = np.flatnonzero(blocks == block)
            shuffled = permute(examples[here] % BLOCK, BLOCK, random_bits(self.key, block))
            corpus[here] = np.searchsorted(self.edges, shuffled, side="right") - 1
            position[here] = block * self.counts[corpus[here]] + shuffled - self.edges[corpus[here]]
        return corpus, position


def apportion(weights: Sequence[float], total: int) -> np.ndarray:
    """Divide `total` into whole numbers in proportion to `weights`, each at least 1, by the largest-remainder method.

    >>> apportion([2, 1], 10).tolist()
    [7, 3]
    """
    share = np.asarray(weights, np.float64) / np.sum(weights) * total
    counts = np.maximum(np.floor(share), 1).astype(np.int64)
    order = np.argsort(counts - share, kind="stable")
    for i in range(total - int(counts.sum())):
        counts[order[i % len(order)]] += 1
    counts[np.argmax(counts)] += total - counts.sum()
    return counts
