"""The stream of pre-training batches. Batch N is a pure function of (corpora, seed, N), so any batch can be made again.

    stream = Stream(config.data, seed=0, steps=1_000_000)
    stream.batch(777)                          # the arrays of one step
    for batch in stream.batches(start=777): ... # the batches from step 777 on, made ahead

Step N of a length holds its examples N x batch up to (N + 1) x batch. Which those are is arithmetic on indices
(example_order.py), so nothing has to be replayed to get to step N, and a host makes only its own rows of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.data.batch_source import BatchSource, Fact, Features
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.example_order import ExampleOrder
from bert_jax.data.corpus.full_sentences import Rows, concatenated_ranges
from bert_jax.data.corpus.masking import Masking, word_continuations
from bert_jax.data.corpus.read_ahead import Maker, read_ahead
from bert_jax.data.corpus.sentence_pairs import Pairs
from bert_jax.data.randomness import random_bits, random_key
from bert_jax.text.tokenizer import Batch, Special


@dataclass(frozen=True)
class LengthPhase:
    """The steps up to, but not including, `stop`. Their rows have `length` tokens.

    `origin` is the step from which their examples are counted: the first step or, if earlier phases have the same
    length, so much before it that the examples of those phases are not taken again.
    """

    length: int
    origin: int
    stop: int

    def examples(self, step: int, batch_size: int) -> np.ndarray:
        """Return the indices of a step's examples among those of its length."""
        first = (step - self.origin) * batch_size
        return np.arange(first, first + batch_size)


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
        weights = config.weights or [float(size) ** config.alpha for size in sizes]
        planner = (
            Rows(config.max_documents_per_row)
            if config.packed
            else Pairs(config.sentence_objective, config.short_seq_prob)
        )
        self.order = ExampleOrder(self.corpora, weights, planner, config.dupe_factor, seed)
        self.continues = word_continuations(self.tokenizer)

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
            types = {name: dtype for name, (_, dtype) in self.config.features(1, phase.length).items()}
            yield from read_ahead(make, range(start, end), types, self.threads)
            start = end

    def validation_batches(self, length: int, host_index: int = 0, host_count: int = 1) -> Iterator[Batch]:
        """Yield every validation example once, always with the same masks. The last batch is padded with weight 0."""
        table, owner, keys = self.order.validation_rows(length)
        rows = rows_of_host(self.config.batch_size, host_index, host_count)
        make_rows = RowMaker(self, length, [corpus.validation.tokens for corpus in self.corpora])
        starts = range(0, len(table), self.config.batch_size)
        for first in track(starts, "batches", "validation") if host_index == 0 else starts:
            numbers = np.arange(first, first + self.config.batch_size)[rows]
            real, here = numbers < len(table), np.minimum(numbers, len(table) - 1)
            yield make_rows(owner[here], table[here], keys[here], real)

    def example_origins(self, step: int) -> list[dict[str, int]]:
        """Return, for each example of a step, its corpus, plan, pass and index in the plan."""
        names = ("corpus", "plan", "pass", "example")
        phase = self.phase(step)
        columns = self.order.locate(phase.length, phase.examples(step, self.config.batch_size))
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

    def _maker(self, length: int, host_index: int, host_count: int) -> Maker:
        """Return the function from a step of this length to the rows of one host."""
        batch_size = self.config.batch_size
        rows = rows_of_host(batch_size, host_index, host_count)
        self.order.require_batch(length, batch_size)
        make_rows = RowMaker(self, length, [corpus.train.tokens for corpus in self.corpora])

        def make(step: int) -> Batch:
            owner, plan, turn, example = self.order.locate(
                length, self.phase(step).examples(step, batch_size)[rows]
            )
            occasion = turn if self.config.dynamic_masking else plan
            key = random_key("mask", self.seed, length)
            keys = random_bits(random_bits(random_bits(key, owner), occasion), example)
            return make_rows(owner, self.order.read_rows(length, owner, plan, example), keys)

        return make


class RowMaker:
    """Makes masked rows of one length from the `tokens` of each corpus."""

    def __init__(self, stream: Stream, length: int, tokens: list[np.ndarray]):
        self.config, self.length, self.tokens = stream.config, length, tokens
        self.special = stream.tokenizer.special
        self.mask = Masking(self.config, length, self.special, stream.continues)

    def __call__(
        self, owner: np.ndarray, table: np.ndarray, keys: np.ndarray, real: np.ndarray | None = None
    ) -> Batch:
        """Make rows of plans' tables, given the corpus and the mask key of each; rows that are not `real` are zeros."""
        batch = self.assemble_all(owner, table)
        if real is not None:
            batch = {
                name: value * real.reshape(-1, *[1] * (value.ndim - 1)).astype(value.dtype)
                for name, value in batch.items()
            }
        batch |= self.mask(batch["input_ids"], batch["attention_mask"], keys)
        return {name: batch[name] for name in self.config.features(1, self.length)}

    def assemble_all(self, owner: np.ndarray, table: np.ndarray) -> Batch:
        batch: Batch = {}
        for c in np.unique(owner):
            here = np.flatnonzero(owner == c)
            made = assemble(self.tokens[c], table[here], self.special, self.length, self.config.packed)
            for name, value in made.items():
                batch.setdefault(name, np.empty((len(owner), *value.shape[1:]), value.dtype))[here] = value
        if not self.config.packed:
            batch["labels"] = table["label"].astype(np.int32)
            batch["label_weights"] = table["weight"].astype(np.float32)
        return batch


def rows_of_host(batch_size: int, host_index: int, host_count: int) -> slice:
    """Return the rows of a batch that a host makes."""
    if batch_size % host_count:
        raise BertJaxError(
            f"data.batch_size is {batch_size}; {host_count} hosts need a multiple of {host_count}"
        )
    share = batch_size // host_count
    return slice(host_index * share, (host_index + 1) * share)


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
    position = np.arange(length)
    attention_mask = (position < end[:, -1:]).astype(np.int32)
    batch = {"input_ids": input_ids.reshape(rows, length), "attention_mask": attention_mask}
    if not packed:
        return batch | {"token_type_ids": (position >= begin[:, 1:2]) * attention_mask}
    # Count the sequences that begin up to each position. Only spans that are present count.
    segment_ids = np.zeros((rows, length + 1), np.int32)
    np.add.at(segment_ids, (np.nonzero(present)[0], begin[present]), 1)
    return batch | {
        "token_type_ids": np.zeros_like(attention_mask),
        "segment_ids": np.cumsum(segment_ids[:, :length], axis=1, dtype=np.int32) * attention_mask,
        "cls_positions": np.where(present, begin, 0).astype(np.int32),
    }
