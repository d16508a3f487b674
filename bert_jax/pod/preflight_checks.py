"""Checks of a run before it starts, in addition to those of the compiler.

A check raises if the run would fail, and returns a line of facts otherwise.
"""

import dataclasses
import time

from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.data_config import DataConfig
from bert_jax.data.corpus.stream import Stream
from bert_jax.pod.topology import Slice
from bert_jax.training.run_config import CheckpointConfig, RunConfig
from bert_jax.training.task import Outline

MEASURE_SECONDS = 3.0  # seconds for which reading is measured
INPUT_MARGIN = 0.5  # a host should make batches by this share faster than its chips take them
MAX_DUPLICATE_SHARE = 0.05  # a larger share of duplicate lines causes a warning


def check_outline(config: RunConfig, outline: Outline, where: Slice) -> list[str]:
    """Return lines about the run of a config, and about its corpora if it reads any."""
    lines = [check_schedule(config, outline), check_hosts(outline.rows, where)]
    data = corpus_config(config)
    if data is None:
        return lines
    if not data.corpora:
        return [*lines, "corpus: not checked, because --config.data.corpora is not set"]
    corpora = [Corpus(name) for name in data.corpora]
    vocabulary = check_vocabulary(corpora, outline.task.layout.config.vocab_size)
    return [*lines, *map(describe_corpus, corpora), vocabulary]


def corpus_config(config: RunConfig) -> DataConfig | None:
    """Return the config's settings of corpora; None if the run reads other data."""
    data = getattr(config, "data", None)
    return data if isinstance(data, DataConfig) else None


def check_schedule(config: RunConfig, outline: Outline) -> str:
    steps, end = outline.steps, outline.config.steps
    if not steps:
        return "schedule: the number of steps is unknown; set --config.data.train or --config.steps"
    warmup, first = config.optimizer.num_warmup_steps(end), end - steps
    if warmup >= end:
        raise BertJaxError(
            f"{end:,} steps end within the warm-up of {warmup:,}; set --config.optimizer.warmup_steps=0.1"
        )
    every = config.checkpoints.every  # 0: depends on the data
    if every and (checkpoint := (first // every + 1) * every) > end:
        raise BertJaxError(
            f"{end:,} steps end before the first checkpoint at {checkpoint:,}; "
            f"set --config.checkpoints.every={max(steps // 10, 1)}"
        )
    return f"schedule: {max(warmup - first, 0):,} of {steps:,} steps warm up"


def check_hosts(rows: int, where: Slice) -> str:
    if rows % where.hosts:
        several = -(-rows // where.hosts) * where.hosts
        raise BertJaxError(
            f"a step of {rows} rows does not divide over {where.hosts} hosts; set --config.data.batch_size={several}"
        )
    return f"hosts: each of {where.hosts} makes {rows // where.hosts} rows per step"


def check_vocabulary(corpora: list[Corpus], size: int) -> str:
    """Check that all corpora have the same vocabulary, and that special tokens fit into the model's `size`."""
    tokenizer = corpora[0].tokenizer
    for corpus in corpora[1:]:
        corpus.require_tokenizer(tokenizer, corpora[0].name)
    for name, number in vars(tokenizer.special).items():
        if not 0 <= number < size:
            raise BertJaxError(
                f"{corpora[0].name}/tokenizer: the {name} token has id {number}, outside of the {size:,} embeddings;"
                " prepare the corpus with a tokenizer whose special tokens are in its vocabulary"
            )
    return f"vocabulary: {size:,} entries, as many as the tokenizer has"


def describe_corpus(corpus: Corpus) -> str:
    counts = corpus.manifest["counts"]
    lines, repeated = counts.get("lines", 0), counts.get("repeated_lines", 0)
    share = repeated / lines if lines else 0
    warning = "; remove them" if share > MAX_DUPLICATE_SHARE else ""
    return (
        f"corpus {corpus.name}: {counts['train']['documents']:,} documents, fingerprint {corpus.fingerprint[:12]}, "
        f"{share:.1%} of its lines are duplicates{warning}"
    )


def describe_machine(config: RunConfig, compiled: dict, where: Slice) -> list[str]:
    """Return lines about the space for checkpoints, and about the speed at which this machine makes batches."""
    phases, data = compiled["phases"], corpus_config(config)
    checkpoints = dataclasses.replace(config.checkpoints, **compiled["checkpoints"])
    lines = [describe_checkpoints(checkpoints, compiled["steps"], phases[0]["state"])]
    if data and data.corpora:
        lines += [
            check_input(data, config.seed, phase, where) for phase in phases if "rows_per_second" in phase
        ]
    return lines


def describe_checkpoints(config: CheckpointConfig, steps: int, state: int) -> str:
    """Say how much space the checkpoints take; each has `state` bytes."""
    kept = config.keep + (steps // config.keep_every if config.keep_every else 0) + bool(config.best_metric)
    needed = (kept + 1) * state  # the oldest is deleted after the next is written
    return (
        f"checkpoints: {state / 1e9:.1f} GB each, {needed / 1e9:,.0f} GB for {kept} and the one being written"
    )


def check_input(data: DataConfig, seed: int, phase: dict, where: Slice) -> str:
    length, taken = phase["length"], phase["rows_per_second"] / where.hosts
    made = rows_per_second(dataclasses.replace(data, lengths=(length,), length_ratios=(1.0,)), seed)
    warning = "" if made > taken * (1 + INPUT_MARGIN) else ": too slow, unless its hosts have more cores"
    return (
        f"input: this machine makes {made:,.0f} rows/s of {length} tokens, a host of the slice takes "
        f"at most {taken:,.0f}{warning}"
    )


def rows_per_second(data: DataConfig, seed: int) -> float:
    """Measure how many rows of a corpus this machine makes per second."""
    batches = Stream(data, seed, steps=1_000_000).batches()
    for _ in range(5):  # warm-up: plans, tracing, threads
        next(batches)
    start, rows = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < MEASURE_SECONDS:
        rows += len(next(batches)["input_ids"])
    return rows / passed
