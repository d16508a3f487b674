"""The stream of pre-training batches. Batch N is a pure function of (corpora, seed, N), so any batch can be made again.

    stream = Stream(config.data, seed=0, steps=1_000_000)
    stream.batch(777)                          # the arrays of one step
    for batch in stream.batches(start=777): ... # the batches from step 777 on, made ahead

Step N of a length holds its examples N x batch up to (N + 1) x batch. A mixture decides which corpus an example comes
from. Within a corpus, passes over its plans follow one another, each in its own order. All of this is arithmetic on
indices, so nothing has to be replayed to get to step N, and a host makes only its own rows of a batch.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.data.batch_source import BatchSource, Fact, Features
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.full_sentences import Rows, concatenated_ranges
from bert_jax.data.corpus.masking import Masking, word_continuations
from bert_jax.data.corpus.read_ahead import Maker, read_ahead
from bert_jax.data.corpus.segment_plan import SegmentPlan, load_or_build
from bert_jax.data.corpus.sentence_pairs import Pairs
from bert_jax.data.randomness import permuted, random_bits, random_key
from bert_jax.text.tokenizer import Batch, Special

BLOCK = 1 << 16  # examples; in a mixture, a corpus has the same number of examples in every block


@dataclass(frozen=True)
class LengthPhase:
    """The steps up to, but not including, `stop`. Their rows have `length` tokens.

    `origin` is the step from which their examples are counted: the first step or, if earlier phases have the same
    length, so much before it that the examples of those phases are not taken again.
    """

    length: int
    origin: int
    stop: int


class Stream(BatchSource):
    def __init__(self, config: DataConfig, seed: int, steps: int, threads: int | None = None):
        if not config.corpora:
            raise BertJaxError("no corpus given; set --config.data.corpora=DIR (see `bert-jax prepare`)")
        self.config, self.seed, self.threads = config, seed, threads
        self.rows_per_step = config.batch_size
        self.corpora = [Corpus(path) for path in config.corpora]
        self.tokenizer = self.corpora[0].tokenizer
        for corpus in self.corpora[1:]:
            corpus.require_tokenizer(self.tokenizer, config.corpora[0])
        self.phases = phases(config, steps)
        sizes = [corpus.manifest["counts"]["train"]["tokens"] for corpus in self.corpora]
        self.weights = config.weights or [float(size) ** config.alpha for size in sizes]
        self.kind = (
            Rows(config.max_documents_per_row)
            if config.packed
            else Pairs(config.sentence_objective, config.short_seq_prob)
        )
        self.continues = word_continuations(self.tokenizer)
        self._plans: dict[tuple[int, int, int], SegmentPlan] = {}
        self._lock = threading.Lock()

    def row_length(self, step: int) -> int:
        return self.phase(step).length

    def features(self, step: int) -> Features:
        return self.config.features(self.rows_per_step, self.row_length(step))

    def phase(self, step: int) -> LengthPhase:
        if step < 0:
            raise BertJaxError(f"there is no step {step}; steps begin at 0")
        return next((phase for phase in self.phases if step < phase.stop), self.phases[-1])

    def batch(self, step: int, host_index: int = 0, host_count: int = 1) -> Batch:
        """Make the rows of one step that belong to one host. The rows of all hosts, in order, are the whole batch."""
        return self._maker(self.row_length(step), host_index, host_count)(step)

    def batches(
        self, start: int = 0, stop: int | None = None, host_index: int = 0, host_count: int = 1
    ) -> Iterator[Batch]:
        """Yield the `batch` of consecutive steps, made ahead in threads; without end unless `stop` is given."""
        stop = np.iinfo(np.int64).max if stop is None else stop
        while start < stop:
            phase = self.phase(start)
            end = stop if phase is self.phases[-1] else min(phase.stop, stop)
            make = self._maker(phase.length, host_index, host_count)
            types = {name: kind for name, (_, kind) in self.config.features(1, phase.length).items()}
            yield from read_ahead(make, range(start, end), types, self.threads)
            start = end

    def validation_batches(self, length: int, host_index: int = 0, host_count: int = 1) -> Iterator[Batch]:
        """Yield every validation example once, always with the same masks. The last batch is padded with weight 0."""
        table, owner, keys = self._validation_rows(length)
        rows = self._rows_of(host_index, host_count)
        masking = self._masking(length)
        tokens = [corpus.validation.tokens for corpus in self.corpora]
        starts = range(0, len(table), self.config.batch_size)
        for first in track(starts, "batches", "validation") if host_index == 0 else starts:
            numbers = np.arange(first, first + self.config.batch_size)[rows]
            real, here = numbers < len(table), np.minimum(numbers, len(table) - 1)
            batch = {
                name: value * real.reshape(-1, *[1] * (value.ndim - 1)).astype(value.dtype)
                for name, value in self._gather(tokens, owner[here], table[here], length).items()
            }
            masked = masking(batch["input_ids"], batch["attention_mask"], keys[here])
            yield self._order_arrays(batch | masked)

    def example_origins(self, step: int) -> list[dict[str, int]]:
        """Return, for each example of a step, its corpus, plan, pass and index in the plan."""
        names = ("corpus", "plan", "pass", "example")
        columns = self._locate(self.row_length(step), self._examples(step, slice(None)))
        return [dict(zip(names, map(int, row), strict=True)) for row in zip(*columns, strict=True)]

    def identity(self) -> dict[str, str]:
        return {f"corpus {n}": corpus.train.identity for n, corpus in enumerate(self.corpora)}

    def facts(self) -> Iterator[Fact]:
        for corpus in self.corpora:
            train, validation = (
                f"{part['documents']:,} documents ({part['tokens']:,} tokens)"
                for part in (corpus.manifest["counts"]["train"], corpus.manifest["counts"]["validation"])
            )
            yield "corpus", f"{corpus.name}: {train} to train on, {validation} for validation"

    def describe_passes(self, steps: int, tokens: float) -> str:
        corpus = sum(corpus.manifest["counts"]["train"]["tokens"] for corpus in self.corpora)
        return f", which are {tokens / corpus:,.1f} passes over the corpora at most"

    def metrics(self, predicted: list[np.ndarray]) -> dict[str, float]:
        """Compute a metric from the ranks of targets; -1 is none."""
        ranks = np.concatenate([rows[rows >= 0] for rows in predicted if rows is not None] or [np.empty(0)])
        return {"mlm_top5_accuracy": float((ranks < 5).mean())} if len(ranks) else {}

    # How a batch is made.

    def _maker(self, length: int, host_index: int, host_count: int) -> Maker:
        """Return the function from a step of this length to the rows of one host."""
        rows = self._rows_of(host_index, host_count)
        self._check_size(length)
        masking = self._masking(length)

        def make(step: int) -> Batch:
            batch, keys = self._unmasked(step, length, rows)
            return self._order_arrays(batch | masking(batch["input_ids"], batch["attention_mask"], keys))

        return make

    def _order_arrays(self, batch):
        return {name: batch[name] for name in self.config.features(1, batch["input_ids"].shape[1])}

    def _rows_of(self, host_index: int, host_count: int) -> slice:
        if self.config.batch_size % host_count:
            batch = self.config.batch_size
            raise BertJaxError(
                f"data.batch_size is {batch}; {host_count} hosts need a multiple of {host_count}"
            )
        share = self.config.batch_size // host_count
        return slice(host_index * share, (host_index + 1) * share)

    def _check_size(self, length: int) -> None:
        examples = [len(self._plan(c, length, 0)) for c in range(len(self.corpora))]
        if len(examples) == 1 and examples[0] < self.config.batch_size:
            raise BertJaxError(
                f"{self.corpora[0].name} gives {examples[0]} examples of length {length}, fewer than a batch of "
                f"{self.config.batch_size}; set --config.data.batch_size={examples[0]} or less, or prepare more text"
            )

    def _masking(self, length: int) -> Masking:
        return Masking(self.config, length, self.tokenizer.special, self.continues)

    def _examples(self, step: int, rows: slice) -> np.ndarray:
        """Return the indices of a step's examples among those of its length."""
        first = (step - self.phase(step).origin) * self.config.batch_size
        return np.arange(first, first + self.config.batch_size)[rows]

    def _unmasked(self, step: int, length: int, rows: slice) -> tuple[Batch, np.ndarray]:
        owner, plan, turn, example = self._locate(length, self._examples(step, rows))
        table = np.empty(len(owner), self._plan(0, length, 0).table.dtype)
        for c, p in set(zip(owner.tolist(), plan.tolist(), strict=True)):
            here = np.flatnonzero((owner == c) & (plan == p))
            table[here] = self._plan(c, length, p).table[example[here]]
        occasion = turn if self.config.dynamic_masking else plan
        keys = random_bits(
            random_bits(random_bits(random_key("mask", self.seed, length), owner), occasion), example
        )
        return self._gather([corpus.train.tokens for corpus in self.corpora], owner, table, length), keys

    def _gather(self, tokens: list[np.ndarray], owner: np.ndarray, table: np.ndarray, length: int) -> Batch:
        batch: Batch = {}
        for c in np.unique(owner):
            here = np.flatnonzero(owner == c)
            made = assemble(tokens[c], table[here], self.tokenizer.special, length, self.config.packed)
            for name, value in made.items():
                batch.setdefault(name, np.empty((len(owner), *value.shape[1:]), value.dtype))[here] = value
        if not self.config.packed:
            batch["labels"] = table["label"].astype(np.int32)
            batch["label_weights"] = table["weight"].astype(np.float32)
        return batch

    def _locate(self, length: int, examples: np.ndarray):
        """Return the corpus, plan, pass and index in the plan of examples, given their indices within the length."""
        mixture = Mixture(self.weights, random_key("mixture", self.seed, length))
        owner, place = mixture(examples)
        plan, turn, example = (np.empty_like(owner) for _ in range(3))
        for c in np.unique(owner):
            here = np.flatnonzero(owner == c)
            plan[here], turn[here], example[here] = self._locate_in_passes(c, length, place[here])
        return owner, plan, turn, example

    def _locate_in_passes(self, c: int, length: int, indices: np.ndarray):
        """Return the plan, pass and index in the plan of examples, given their `indices` within corpus `c`.

        A pass uses one plan. After the last plan the first one is used again. Each pass has its own order."""
        plans = self.config.dupe_factor
        ends = np.zeros(1, np.int64)
        while ends[-1] <= indices.max() and len(ends) <= plans:
            ends = np.append(ends, ends[-1] + len(self._plan(c, length, len(ends) - 1)))
        round_, within = divmod(indices, ends[-1]) if len(ends) > plans else (np.zeros_like(indices), indices)
        plan = np.searchsorted(ends, within, side="right") - 1
        turn = round_ * plans + plan
        place = within - ends[plan]
        for t in np.unique(turn):
            here = turn == t
            size = len(self._plan(c, length, int(t) % plans))
            place[here] = permuted(place[here], size, random_key("order", self.seed, c, length, t))
        return plan, turn, place

    def _plan(self, c: int, length: int, number: int) -> SegmentPlan:
        key = (c, length, number)
        with self._lock:  # several threads call this at the same time
            if key not in self._plans:
                self._plans[key] = load_or_build(self.corpora[c].train, self.kind, self.seed, length, number)
            return self._plans[key]

    def _validation_rows(self, length: int):
        """Return the rows of all corpora's held-out plans, the index of each row's corpus, and each row's mask key."""
        tables = [load_or_build(c.validation, self.kind, self.seed, length, 0).table for c in self.corpora]
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
        self.counts = apportioned(weights, BLOCK)
        self.edges = np.concatenate([[0], np.cumsum(self.counts)])

    def __call__(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(self.counts) == 1:
            return np.zeros_like(examples), examples
        corpus, place = np.empty_like(examples), np.empty_like(examples)
        blocks = examples // BLOCK
        for block in np.unique(blocks):
            here = np.flatnonzero(blocks == block)
            shuffled = permuted(examples[here] % BLOCK, BLOCK, random_bits(self.key, block))
            corpus[here] = np.searchsorted(self.edges, shuffled, side="right") - 1
            place[here] = block * self.counts[corpus[here]] + shuffled - self.edges[corpus[here]]
        return corpus, place


def apportioned(weights: Sequence[float], total: int) -> np.ndarray:
    """Divide `total` into whole numbers in proportion to `weights`, each at least 1, by the largest-remainder method.

    >>> apportioned([2, 1], 10).tolist()
    [7, 3]
    """
    share = np.asarray(weights, np.float64) / np.sum(weights) * total
    counts = np.maximum(np.floor(share), 1).astype(np.int64)
    order = np.argsort(counts - share, kind="stable")
    for i in range(total - int(counts.sum())):
        counts[order[i % len(order)]] += 1
    counts[np.argmax(counts)] += total - counts.sum()
    return counts


def phases(config: DataConfig, steps: int) -> list[LengthPhase]:
    """Divide the steps into one phase for each length. Steps after the last phase belong to it."""
    shares = np.cumsum(config.length_ratios) / np.sum(config.length_ratios)
    edges = [0, *np.round(shares * steps).astype(int).tolist()]
    made: list[LengthPhase] = []
    taken = dict.fromkeys(config.lengths, 0)  # steps of each length so far
    for length, first, stop in zip(config.lengths, edges[:-1], edges[1:], strict=True):
        made.append(LengthPhase(length, first - taken[length], stop))
        taken[length] += stop - first
    return made


def assemble(tokens: np.ndarray, table: np.ndarray, special: Special, length: int, packed: bool):
    """Build rows of tokens from spans of a corpus: [CLS] A [SEP] B [SEP], or several [CLS] ... [SEP], with padding.

    Return the arrays for rows of a plan's table: input_ids, attention_mask and token_type_ids [B, L]; if
    `packed`, also segment_ids [B, L] and cls_positions."""
    rows, spans = table["length"].shape
    size = table["length"].astype(np.int64)
    present = size > 0
    starts_cls = present & (packed | (np.arange(spans) == 0))
    taken = size + present + starts_cls
    begin = np.cumsum(taken, axis=1) - taken  # where each span begins in its row, with its special tokens
    end = begin + taken
    row = np.arange(rows)[:, None] * length
    input_ids = np.full(rows * length, special.pad, np.int32)
    source, owner = concatenated_ranges(table["start"].astype(np.int64).ravel(), size.ravel())
    shift = (row + begin + starts_cls).ravel() - (np.cumsum(size.ravel()) - size.ravel())
    input_ids[np.arange(len(source)) + shift[owner]] = tokens[source]
    input_ids[(row + begin)[starts_cls]] = special.cls
    input_ids[(row + end - 1)[present]] = special.sep
    place = np.arange(length)
    attention_mask = (place < end[:, -1:]).astype(np.int32)
    batch = {"input_ids": input_ids.reshape(rows, length), "attention_mask": attention_mask}
    if not packed:
        return batch | {"token_type_ids": (place >= begin[:, 1:2]) * attention_mask}
    # Count the sequences that begin up to each position. Only spans that are present count.
    segment_ids = np.zeros((rows, length + 1), np.int32)
    np.add.at(segment_ids, (np.nonzero(present)[0], begin[present]), 1)
    return batch | {
        "token_type_ids": np.zeros_like(attention_mask),
        "segment_ids": np.cumsum(segment_ids[:, :length], axis=1, dtype=np.int32) * attention_mask,
        "cls_positions": np.where(present, begin, 0).astype(np.int32),
    }
