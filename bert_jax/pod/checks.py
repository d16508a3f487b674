"""Checks of a run before it begins, beside those of the compiler.

A check raises where the run would fail, and returns a line of facts otherwise.
"""

import dataclasses
import shutil
import time
from pathlib import Path

from bert_jax.data.corpus.config import DataConfig
from bert_jax.data.corpus.directory import Corpus
from bert_jax.errors import BertJaxError
from bert_jax.pod.topology import Slice
from bert_jax.tasks.outline import Outline
from bert_jax.train.config import CheckpointConfig, RunConfig

MEASURED = 3.0  # seconds of reading
SPARE = 0.5  # how much faster than the chips a host should make batches
DUPLICATES = 0.05  # share of repeated lines that brings a warning


def check_outline(config: RunConfig, outline: Outline, where: Slice) -> list[str]:
    """Lines about the run of a config, and about its corpora if it reads some."""
    lines = [check_schedule(config, outline), check_hosts(outline.rows, where)]
    data = corpora_of(config)
    if data is None:
        return lines
    if not data.corpora:
        return [*lines, "corpus: none (--config.data.corpora), so none was checked"]
    corpora = [Corpus(name) for name in data.corpora]
    vocabulary = check_vocabulary(corpora, outline.task.layout.config.vocab_size)
    return [*lines, *map(describe_corpus, corpora), vocabulary]


def corpora_of(config: RunConfig) -> DataConfig | None:
    """What the config says of corpora; None if its data are others."""
    data = getattr(config, "data", None)
    return data if isinstance(data, DataConfig) else None


def check_schedule(config: RunConfig, outline: Outline) -> str:
    steps, end = outline.steps, outline.config.steps
    if not steps:
        return (
            "schedule: how many steps there are is known with --config.data.train, or set by --config.steps"
        )
    warmup, first = config.optimizer.warmup_of(end), end - steps
    if warmup >= end:
        setting = "warmup_share=0.1" if config.optimizer.warmup_share else f"warmup={end // 10}"
        raise BertJaxError(
            f"{end:,} steps end within the warm-up of {warmup:,}; set --config.optimizer.{setting}"
        )
    every = config.checkpoints.every  # 0: left to the data
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
            f"a step of {rows} rows does not divide over {where.hosts} hosts; set --config.data.batch={several}"
        )
    return f"hosts: each of {where.hosts} makes {rows // where.hosts} rows of a step"


def check_vocabulary(corpora: list[Corpus], size: int) -> str:
    """That all corpora share their vocabulary, and the model has its `size`."""
    tokenizer = corpora[0].tokenizer
    for corpus in corpora[1:]:
        corpus.check(tokenizer, corpora[0].name)
    for name, number in vars(tokenizer.special).items():
        if not 0 <= number < size:
            raise BertJaxError(
                f"{corpora[0].name}/tokenizer: the {name} token has id {number}, outside of the {size:,} embeddings;"
                " prepare the corpus with a tokenizer whose ids are its own"
            )
    return f"vocabulary: {size:,} entries, as the tokenizer's"


def describe_corpus(corpus: Corpus) -> str:
    counts = corpus.manifest["counts"]
    lines, repeated = counts.get("lines", 0), counts.get("repeated_lines", 0)
    share = repeated / lines if lines else 0
    warning = "; remove them" if share > DUPLICATES else ""
    return (
        f"corpus {corpus.name}: {counts['train']['documents']:,} documents, fingerprint {corpus.fingerprint[:12]}, "
        f"{share:.1%} of its lines are duplicates{warning}"
    )


def check_machine(config: RunConfig, compiled: dict, where: Slice, workdir: str | None) -> list[str]:
    """Lines about space for checkpoints, and whether this machine makes batches as fast as the slice takes them."""
    phases, data = compiled["phases"], corpora_of(config)
    checkpoints = dataclasses.replace(config.checkpoints, **compiled["checkpoints"])
    lines = [check_space(checkpoints, compiled["steps"], phases[0]["state"], workdir)]
    if data and data.corpora:
        lines += [
            check_input(data, config.seed, phase, where) for phase in phases if "rows_per_second" in phase
        ]
    return lines


def check_space(config: CheckpointConfig, steps: int, state: int, workdir: str | None) -> str:
    """`state` is the bytes of a checkpoint."""
    kept = config.keep + (steps // config.keep_every if config.keep_every else 0) + bool(config.best)
    needed = (kept + 1) * state  # the oldest is deleted once the next is written
    line = (
        f"checkpoints: {state / 1e9:.1f} GB each, {needed / 1e9:,.0f} GB for {kept} and the one being written"
    )
    if workdir is None:
        return line
    if "://" in workdir:
        return f"{line}; the free space of {workdir} is unknown"
    path = Path(workdir).absolute()
    free = shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free
    if free < needed:
        raise BertJaxError(
            f"{needed / 1e9:,.1f} GB of checkpoints do not fit in {workdir}, where {free / 1e9:,.1f} GB are free; "
            "free some space, or keep fewer: --config.checkpoints.keep, --config.checkpoints.keep_every"
        )
    return f"{line}, {free / 1e9:,.0f} GB free in {workdir}"


def check_input(data: DataConfig, seed: int, phase: dict, where: Slice) -> str:
    length, taken = phase["length"], phase["rows_per_second"] / where.hosts
    made = rows_per_second(dataclasses.replace(data, lengths=(length,), shares=(1.0,)), seed)
    warning = "" if made > taken * (1 + SPARE) else ": too slow, unless its hosts have more cores"
    return (
        f"input: this machine makes {made:,.0f} rows/s of {length}, a host of the slice takes "
        f"{taken:,.0f} at most{warning}"
    )


def rows_per_second(data: DataConfig, seed: int = 0, seconds: float = MEASURED) -> float:
    """How many rows of a corpus this machine makes."""
    from bert_jax.data.corpus.stream import Stream  # TensorFlow takes seconds

    batches = Stream(data, seed, steps=1_000_000).batches()
    for _ in range(5):  # plans, tracing, threads
        next(batches)
    begun, rows = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        rows += len(next(batches)["tokens"])
    return rows / passed
